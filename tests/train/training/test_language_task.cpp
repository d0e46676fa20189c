// Language modelling as a task: windows, the loss over exactly all targets, and that each kind can learn.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "nn/optim.h"
#include "tensor/allocator.h"
#include "tests/nn/small_models.h"
#include "train/training/language_task.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

std::vector<std::int32_t> random_text(Index length) {
  Random random(3);
  std::vector<std::int32_t> out;
  for (Index i = 0; i < length; ++i) out.push_back(std::int32_t(random.below(vocabulary)));
  return out;
}

TextData text_data(Index train, Index valid) {
  TextData data;
  data.train = random_text(train);
  data.valid = random_text(valid);
  data.valid_target_bytes = valid - 1;
  return data;
}

// The negative log-probability of the token at `target`, seen from a context that starts at `start`.
double surprise(const LanguageModel& model, const std::vector<std::int32_t>& text, Index start, Index target) {
  const Index T = target - start;
  const Tensor ids = Tensor::from_ints({1, T}, std::span(text.data() + start, std::size_t(T)));
  const std::vector<float> all = model.forward(ids).value().to_vector();
  const std::span<const float> logits(all.data() + (T - 1) * vocabulary, std::size_t(vocabulary));
  double sum = 0;
  for (float logit : logits) sum += std::exp(double(logit));
  return std::log(sum) - double(logits[std::size_t(text[std::size_t(target)])]);
}

}  // namespace

TEST_CASE("validation counts every token but the first once, whatever the length and the stride") {
  Random random(1);
  const LanguageModel model(small("flexformer_n"), random);
  for (Index length : {2, 3, 16, 17, 18, 33, 50})
    for (Index stride : {0, 1, 4, 5, 15, 16, 99}) {
      CAPTURE(length);
      CAPTURE(stride);
      const TextData data = text_data(40, length);
      LanguageTask task(model, data, {.block = 16, .batch = 3, .valid_stride = stride});
      const Evaluation result = task.evaluate({});
      const Index targets = length - 1, step = stride == 0 ? 16 : std::min<Index>(stride, 16);
      double sum = 0;
      for (Index j = 0; j < targets; ++j) {
        // The first window answers for the first 16 targets, each later one for its last `step`.
        Index start = 0;
        if (j >= 16) {
          const Index done = 16 + (j - 16) / step * step, counted = std::min(step, targets - done);
          start = step == 16 ? done : done + counted - 16;
        }
        sum += surprise(model, data.valid.ids(), start, j + 1);
      }
      CHECK(result.targets == targets);
      CHECK(result.loss == doctest::Approx(sum / double(targets)).epsilon(1e-6));
      CHECK(result.summary.at("valid_tokens") == targets);
      CHECK(result.summary.at("valid_ppl").get<double>() == doctest::Approx(std::exp(sum / double(targets))));
      CHECK(result.summary.at("valid_bits_per_byte").get<double>() ==
            doctest::Approx(sum / double(targets) / std::log(2.0)));
    }
}

TEST_CASE("validation does not depend on the size of training batches") {
  Random random(1);
  const LanguageModel model(small("softmax"), random);
  const TextData data = text_data(40, 500);
  std::set<double> losses;
  for (Index batch : {1, 2, 3, 5, 64})
    losses.insert(LanguageTask(model, data, {.block = 16, .batch = batch, .accumulate = batch}).evaluate({}).loss);
  CHECK(losses.size() == 1);
}

TEST_CASE("windows start anywhere in the text, as often at its ends as elsewhere, and never reach past it") {
  Random random(1);
  LanguageModelOptions options = small("softmax");
  options.block = 8;
  const LanguageModel model(options, random);
  TextData data = text_data(12, 2);  // four windows of 8 and a target
  // The loss of each window by itself tells the windows drawn.
  const auto loss_of = [&](Index start) {
    double sum = 0;
    for (Index t = 1; t <= 8; ++t) sum += surprise(model, data.train.ids(), start, start + t);
    return sum;
  };
  LanguageTask task(model, data, {.block = 8, .batch = 1, .seed = 5});
  std::vector<int> counts(4, 0);
  for (Index step = 0; step < 400; ++step) {
    CHECK(task.begin_step(step) == 8);
    const double loss = double(task.loss_sum(task.batch(0), {}).value().item());
    for (Index start = 0; start < 4; ++start) counts[std::size_t(start)] += std::fabs(loss - loss_of(start)) < 1e-4;
  }
  for (int count : counts) CHECK((count > 60 && count < 140));
  CHECK(counts[0] + counts[1] + counts[2] + counts[3] == 400);
}

TEST_CASE("a text of a block and one token has exactly one window") {
  Random random(1);
  LanguageModelOptions options = small("flexformer_s");
  options.block = 8;
  const LanguageModel model(options, random);
  const TextData data = text_data(9, 2);
  LanguageTask task(model, data, {.block = 8, .batch = 2, .accumulate = 2});
  std::set<float> losses;
  for (Index step = 0; step < 5; ++step) {
    CHECK(task.begin_step(step) == 32);
    for (Index micro = 0; micro < task.micro_batches(); ++micro)
      losses.insert(task.loss_sum(task.batch(micro), {}).value().item());
  }
  CHECK(losses.size() == 1);
}

TEST_CASE("every kind of attention learns one batch by heart") {
  for (const AttentionKind& kind : attention_kinds()) {
    CAPTURE(kind.name);
    Random random(1);
    LanguageModelOptions options = small(kind.name);
    options.transformer.dim = 32;
    options.transformer.ffn = 64;
    const LanguageModel model(options, random);
    const Tensor ids = random_ids(4, 16), targets = random_ids(4, 16, 2);
    Optimizer optimizer(model.parameters(), {.weight_decay = 0, .kernel_lr = 5});
    double loss = 1;
    for (int step = 0; step < 150 && loss >= 0.02; ++step) {
      model.parameters().clear_grads();
      Tape tape;
      const Var mean = model.loss(ids, targets, {});
      loss = double(mean.value().item());
      tape.backward(mean);
      optimizer.step(0.01, 1);
    }
    CHECK(loss < 0.02);
  }
}

TEST_CASE("memory of a training step grows linearly with the length in the linear kinds") {
  const auto peak = [](const char* kind, Index T) {
    LanguageModelOptions options = small(kind);
    options.transformer.layers = 1;
    options.block = T;
    Random random(1);
    const LanguageModel model(options, random);
    const Tensor ids = random_ids(1, T), targets = random_ids(1, T, 2);
    const Index before = memory::stats(Device::cpu).live_bytes;
    memory::reset_peak(Device::cpu);
    Tape tape;
    tape.backward(model.loss(ids, targets, {}));
    return double(memory::stats(Device::cpu).peak_bytes - before);
  };
  CHECK(peak("flexformer_n", 4096) < 4.5 * peak("flexformer_n", 1024));
  CHECK(peak("flexformer_s", 4096) < 4.5 * peak("flexformer_s", 1024));
}
