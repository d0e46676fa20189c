// Whole models on the device against the CPU's: what they compute, how they learn, how they go on token by token, and
// that what one has learned the other can use. Empty in a build without CUDA.
#if defined(FLEXFORMER_CUDA)
#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "tests/autograd/op_cases.h"
#include "tests/cuda/device_learner.h"
#include "tests/cuda/device_ways.h"
#include "train/models/generation.h"

namespace flexformer::testing {
namespace {

using namespace tests;

// What a model makes of a batch: logits, loss, gradients in the order of the parameters.
using Outcome = std::vector<std::vector<float>>;
template <class LogitsAndLoss> Outcome outcome(const Parameters& parameters, const LogitsAndLoss& f) {
  parameters.clear_grads();
  Tape tape;
  const auto [logits, loss] = f();
  tape.backward(loss);
  Outcome out{logits.value().to_vector(), loss.value().to_vector()};
  for (const Parameter& p : parameters)
    out.push_back(p.var.has_grad() ? p.var.grad().to_vector() : std::vector<float>());
  return out;
}

void check_close(const Parameters& parameters, const Outcome& ours, const Outcome& cpu) {
  REQUIRE_EQ(ours.size(), cpu.size());
  auto parameter = parameters.begin();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const std::string what = i == 0 ? "logits" : i == 1 ? "loss" : "gradient of " + (parameter++)->name;
    INFO(what);
    CHECK_EQ(difference(ours[i], Numbers(cpu[i].begin(), cpu[i].end()), 1e-4), "");
  }
}

// The outcome on the device is close to the CPU's, and the same to the last bit in every way of working.
template <class Model, class Options, class LogitsAndLoss>
void check_model(const Options& options, const LogitsAndLoss& logits_and_loss) {
  const auto make = [&](Device device) {
    Random random(3);
    return std::make_unique<Model>(options, random, device);
  };
  const auto here = make(Device::cpu);
  const Outcome cpu = outcome(here->parameters(), [&] { return logits_and_loss(*here); });
  const Index live = memory::stats(Device::cuda).live_bytes;
  const Poisoned poisoned;
  Outcome first;
  for (const Way& way : ways) {
    if (for_races && &way != ways + 1) continue;
    use(way);
    INFO("the way of working: ", way.name);
    const auto there = make(Device::cuda);
    const Outcome ours = outcome(there->parameters(), [&] { return logits_and_loss(*there); });
    if (first.empty()) check_close(there->parameters(), first = ours, cpu);
    for (std::size_t i = 0; i < ours.size(); ++i) CHECK_UNARY(same_bits(ours[i], first[i]));
  }
  use(ways[0]);
  CHECK_EQ(memory::stats(Device::cuda).live_bytes, live);
}

void check_language_model(const LanguageModelOptions& options) {
  const Tensor ids = random_ids(3, 13, 1), targets = random_ids(3, 13, 2);
  check_model<LanguageModel>(options, [&](const LanguageModel& model) {
    return std::pair(model.forward(ids), model.loss(ids, targets, {}, {.label_smoothing = 0.1f}));
  });
}

// Texts of 13, 5 and no tokens, padded.
void check_classifier(const ClassifierOptions& options) {
  Tensor ids = random_ids(3, 13, 1);
  for (Index i = 13 + 5; i < 3 * 13; ++i) ids.ints()[i] = options.padding;
  const Tensor labels = Tensor::from_ints({3}, std::vector<std::int32_t>{2, 0, 1});
  check_model<Classifier>(options, [&](const Classifier& model) {
    const Var logits = options.two_tower ? model.forward(ids, random_ids(3, 9, 5)) : model.forward(ids);
    return std::pair(logits, cross_entropy(logits, labels));
  });
}

const char* const kinds[] = {"softmax", "flexformer_n"};

std::vector<std::int32_t> greedy(const LanguageModel& model, Index tokens) {
  Generator generator(model, {.temperature = 0}, 1);
  generator.feed(1);
  std::vector<std::int32_t> ids;
  for (Index i = 0; i < tokens; ++i) ids.push_back(generator.next());
  return ids;
}

}  // namespace

TEST_CASE("language models on the device compute what the CPU does") {
  if (!usable()) return;
  for (const char* kind : kinds) {
    INFO(kind);
    check_language_model(small(kind));
  }
  LanguageModelOptions other = small("flexformer_s");
  other.position = Position::sinusoidal;
  other.tie = true;
  other.norm_embeddings = true;
  check_language_model(other);
  other = small("softmax");
  other.position = Position::rope;
  other.transformer.norm.kind = NormKind::rms;
  other.transformer.activation = Activation::swiglu;
  other.transformer.attention.kv_heads = 1;
  check_language_model(other);
}

TEST_CASE("classifiers on the device compute what the CPU does, with padding") {
  if (!usable()) return;
  for (const char* kind : kinds) {
    INFO(kind);
    check_classifier(small_classifier(kind));
  }
  ClassifierOptions other = small_classifier("softmax");
  other.pool = Pool::cls;
  other.token_types = 2;
  other.separator = 4;
  other.pooler = true;
  other.transformer.norm_first = false;
  check_classifier(other);
  other = small_classifier("linear");
  other.two_tower = true;
  check_classifier(other);
}

TEST_CASE("a model starts with the same numbers on every device, and a file of it is the same") {
  if (!usable()) return;
  for (const char* kind : {"softmax", "flexformer_n", "performer", "hedgehog"}) {
    INFO(kind);
    const Learner here(small(kind), Device::cpu), there(small(kind), Device::cuda);
    CHECK_EQ(there.model.parameters().device(), Device::cuda);
    CHECK_EQ(there.saved(), here.saved());
  }
}

TEST_CASE("training on the device, dropout included, gives the CPU's losses, and the same bits again") {
  if (!usable()) return;
  for (const char* kind : kinds) {
    INFO(kind);
    Learner here(with_dropout(kind), Device::cpu);
    for (int i = 0; i < 5; ++i) here.step();
    const Poisoned poisoned;
    std::string first;
    for (const Way& way : ways) {
      if (for_races && &way != ways + 1) continue;
      use(way);
      Learner there(with_dropout(kind), Device::cuda);
      for (int i = 0; i < 5; ++i) there.step();
      CHECK_EQ(difference(there.losses, Numbers(here.losses.begin(), here.losses.end()), 1e-3), "");
      CHECK_EQ(difference(there.norms, Numbers(here.norms.begin(), here.norms.end()), 1e-3), "");
      if (first.empty()) first = there.saved();
      CHECK_UNARY(there.saved() == first);
    }
  }
}

TEST_CASE("training on the device in bfloat16 follows the CPU's losses, to the same bits again, in less memory") {
  if (!usable()) return;
  for (const char* kind : kinds) {
    INFO(kind);
    LanguageModelOptions options = with_dropout(kind);
    options.transformer.dim = 64;  // heads of 32 channels, which tensor cores take
    Learner here(options, Device::cpu);
    for (int i = 0; i < 5; ++i) here.step();
    const auto learn = [&](bool captured) {
      Learner there(options, Device::cuda, {.captured = captured});
      const Index before = memory::stats(Device::cuda).live_bytes;
      memory::reset_peak(Device::cuda);
      for (int i = 0; i < 5; ++i) there.step();
      // Five steps at a large rate take roundings apart.
      CHECK_EQ(there.losses[0], doctest::Approx(here.losses[0]).epsilon(5e-3));
      CHECK_EQ(difference(there.losses, Numbers(here.losses.begin(), here.losses.end()), 5e-2), "");
      return std::pair(there.saved(), memory::stats(Device::cuda).peak_bytes - before);
    };
    const Index in_float = learn(false).second;
    const InBf16 precision;
    const Poisoned poisoned;
    std::string first;
    for (const Way& way : ways) {
      if (for_races && &way != ways + 1) continue;
      use(way);
      const auto [saved, bytes] = learn(&way == ways + 2);
      if (first.empty()) first = saved;
      CHECK_UNARY(saved == first);
      CHECK_LT(bytes, in_float);
    }
  }
}

TEST_CASE("a run begun on one device goes on on the other") {
  if (!usable()) return;
  for (const auto& [from, to] : {std::pair(Device::cpu, Device::cuda), std::pair(Device::cuda, Device::cpu)}) {
    Learner unbroken(with_dropout("flexformer_n"), Device::cpu), begun(with_dropout("flexformer_n"), from);
    for (int i = 0; i < 4; ++i) unbroken.step();
    for (int i = 0; i < 2; ++i) begun.step();
    Learner resumed(with_dropout("flexformer_n"), to);
    resumed.load(begun.saved());
    CHECK_UNARY(resumed.saved() == begun.saved());
    CHECK_EQ(resumed.optimizer.steps(), 2);
    resumed.losses = begun.losses;
    for (int i = 0; i < 2; ++i) resumed.step();
    CHECK_EQ(difference(resumed.losses, Numbers(unbroken.losses.begin(), unbroken.losses.end()), 1e-3), "");
  }
}

TEST_CASE("decoding on the device gives the CPU's logits and texts, past the end of the positions too") {
  if (!usable()) return;
  for (const char* kind : kinds)
    for (const Position position : {Position::learned, Position::rope}) {
      INFO(kind);
      LanguageModelOptions options = small(kind);
      options.position = position;
      const Learner here(options, Device::cpu), there(options, Device::cuda);
      for (const WeightFormat format : {WeightFormat::f32, WeightFormat::int8}) {
        Decoder on_host(here.model, format), on_device(there.model, format);
        DecodeState ours[2], cpu[2];
        DecodeState* const all_ours[] = {&ours[0], &ours[1]};
        DecodeState* const all_cpu[] = {&cpu[0], &cpu[1]};
        const Tensor ids = random_ids(14, 2);
        const auto compare = [&](const Tensor& given, const Tensor& wanted) {
          const std::vector<float> numbers = wanted.to_vector();
          CHECK_EQ(difference(given.to_vector(), Numbers(numbers.begin(), numbers.end()), 1e-4), "");
        };
        // The first goes on from a prompt of five tokens, the second begins with its first.
        const std::span prompt(ids.ints(), 5);
        compare(on_device.feed(prompt, ours[0]), on_host.feed(prompt, cpu[0]));
        for (Index t = 3; t < 12; ++t) {
          const std::span next(ids.ints() + 2 * t, 2);
          compare(on_device.step(next, all_ours), on_host.step(next, all_cpu));
        }
        CHECK_EQ(ours[0].bytes(), cpu[0].bytes());
      }
      CHECK_EQ(greedy(there.model, 20), greedy(here.model, 20));
    }
}

TEST_CASE("the gradient check works on the device") {
  if (!usable()) return;
  const auto variable = [](std::uint64_t stream) {
    return Var(Tensor::from({6}, normal_numbers(6, stream), Device::cuda), true);
  };
  const Gradcheck right = gradcheck([](const Vars& x) { return x[0] * tanh(x[1]); }, {variable(1), variable(2)});
  CHECK_MESSAGE(right.ok, right.message);
  const Gradcheck wrong =
      gradcheck([](const Vars& x) { return x[0] * Var(x[1].value()) + x[1]; }, {variable(1), variable(2)});
  CHECK_FALSE(wrong.ok);
}

#if defined(FLEXFORMER_EMULATION)
TEST_CASE("a training step never waits for the device before all of it is launched") {
  const Tensor ids = random_ids(2, 12, 1), targets = random_ids(2, 12, 2);
  for (const char* kind : kinds) {
    Learner learner(with_dropout(kind), Device::cuda);
    emu::set_deferred(true);  // nothing runs before it is waited for
    const long before = emu::grids_run();
    learner.optimizer.prepare(1e-3);
    learner.launch_step({{ids, targets}});
    CHECK_EQ(emu::grids_run(), before);
    learner.optimizer.finish();
    CHECK_GT(emu::grids_run(), before);
    emu::set_deferred(false);
  }
}
#endif

}  // namespace flexformer::testing
#endif
