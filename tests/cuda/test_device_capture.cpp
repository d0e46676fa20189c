// Training steps that are captured and repeated give what they give one kernel after another, whatever happens between
// them; and what would make them differ is seen. Empty in a build without CUDA.
#if defined(FLEXFORMER_CUDA)
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "tests/autograd/op_cases.h"
#include "tests/cuda/device_learner.h"
#include "tests/cuda/device_ways.h"

namespace flexformer::testing {
namespace {

using namespace tests;

const int steps = for_races ? 3 : 7;

Learning eager(OptimizerKind kind) {
  return {.optimizer = {.kind = kind, .kernel_lr = 5}, .batches = 2, .rate_falls = 0.5};
}
Learning captured(OptimizerKind kind) {
  Learning how = eager(kind);
  how.captured = true;
  return how;
}

void check_same(const Learner& ours, const Learner& wanted) {
  CHECK_UNARY(same_bits(ours.losses, wanted.losses));
  CHECK_UNARY(same_bits(ours.norms, wanted.norms));
  CHECK_UNARY(ours.saved() == wanted.saved());
}

// Memory of many sizes that somebody holds while steps are made.
struct Foreign {
  Foreign() {
    for (Index n = 1; n < 40000; n = n * 5 / 4 + 1) held.push_back(Tensor::full({n}, float(n), Device::cuda));
  }
  bool whole() const {
    for (const Tensor& tensor : held)
      if (tensor.to_vector() != std::vector<float>(std::size_t(tensor.numel()), float(tensor.numel()))) return false;
    return true;
  }
  std::vector<Tensor> held;
};

// A classifier that learns from texts of which one is shorter than the others, in each step by more.
std::vector<float> classifier_losses(const ClassifierOptions& options, bool in_graph) {
  Random random(3);
  const Classifier model(options, random, Device::cuda);
  Optimizer optimizer(model.parameters(), {});
  CapturedStep captured(Device::cuda, in_graph);
  const auto body = [&](const std::vector<Batch>& batches) {
    const Batch& batch = batches[0];
    model.parameters().clear_grads();
    Tape tape;
    const Var logits = model.forward(std::span(batch).first(batch.size() - 1), {.training = true});
    const Var loss = cross_entropy(logits, batch.back(), {.mean = false});
    tape.backward(loss);
    optimizer.launch_step(1);
    return std::vector{loss.value()};
  };
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    const Tensor ids = random_ids(3, 13, std::uint64_t(i)), other = random_ids(3, 9, 50);
    std::fill_n(Tensor(ids).ints() + 2 * 13 - 1 - i, 1 + i, options.padding);
    Batch batch = options.two_tower ? model.inputs(ids, other) : model.inputs(ids);
    batch.push_back(Tensor::from_ints({3}, std::vector<std::int32_t>{i % 3, 0, 1}));
    optimizer.prepare(1e-2);
    losses.push_back(captured.run({batch}, body)[0].item());
    optimizer.finish();
  }
  return losses;
}

}  // namespace

TEST_CASE("training on the device by repeating a captured step gives the bits of the eager run") {
  if (!usable()) return;
  const Poisoned poisoned;
  for (const char* attention : {"softmax", "flexformer_n"})
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::adam, OptimizerKind::sgd}) {
      if (for_races && kind != OptimizerKind::adamw) continue;
      INFO(attention);
      Learner one(with_dropout(attention), Device::cuda, eager(kind));
      Learner other(with_dropout(attention), Device::cuda, captured(kind));
      for (int i = 0; i < steps; ++i) one.step(), other.step();
      check_same(other, one);
      CHECK_EQ(one.bodies, steps);
      CHECK_EQ(other.bodies, 2);  // to warm up, and to be captured
    }
}

TEST_CASE("a captured step on the device can be positions of any kind, tied, gated, on few blocks and late") {
  if (!usable()) return;
  LanguageModelOptions options = with_dropout("flexformer_s");
  options.position = Position::sinusoidal;
  options.tie = true;
  options.transformer.attention.qk_norm = QkNorm::l2;
  options.transformer.activation = Activation::swiglu;
  const Poisoned poisoned;
  Learner one(options, Device::cuda, eager(OptimizerKind::adamw));
  for (int i = 0; i < steps; ++i) one.step();
  for (const Way& way : ways) {
    if (for_races && &way != ways + 1) continue;
    use(way);
    INFO("the way of working: ", way.name);
    Learner other(options, Device::cuda, captured(OptimizerKind::adamw));
    for (int i = 0; i < steps; ++i) other.step();
    check_same(other, one);
  }
}

TEST_CASE("a captured step of a classifier on the device reads the masks, weights and types of each new batch") {
  if (!usable()) return;
  const Poisoned poisoned;
  ClassifierOptions typed = small_classifier("softmax"), pairs = small_classifier("flexformer_n");
  typed.pool = Pool::cls;
  typed.token_types = 2;
  typed.separator = 4;
  pairs.two_tower = true;
  for (const ClassifierOptions& options : {small_classifier("flexformer_n"), typed, pairs})
    CHECK_UNARY(same_bits(classifier_losses(options, true), classifier_losses(options, false)));
}

TEST_CASE("between captured steps on the device memory is anybody's, but for the step's own") {
  if (!usable()) return;
  const Poisoned poisoned;
  for (const bool caching : {true, false}) {  // false: as test_device.cpp has it
    memory::set_caching(Device::cuda, caching);
    Learner one(with_dropout("flexformer_n"), Device::cuda, eager(OptimizerKind::adamw));
    Learner other(with_dropout("flexformer_n"), Device::cuda, captured(OptimizerKind::adamw));
    const Tensor ids = random_ids(3, 13, 1);
    std::vector<Foreign> held;
    for (int i = 0; i < steps; ++i) {
      one.step();
      other.step();
      held.emplace_back();
      CHECK_EQ(other.model.loss(ids, ids, {}).value().item(), one.model.loss(ids, ids, {}).value().item());
    }
    check_same(other, one);
    for (const Foreign& foreign : held) CHECK_UNARY(foreign.whole());
  }
  CHECK_EQ(memory::stats(Device::cuda).live_bytes, 0);
}

TEST_CASE("a captured run on the device is resumed exactly, captured or not") {
  if (!usable()) return;
  Learner unbroken(with_dropout("softmax"), Device::cuda, captured(OptimizerKind::adamw));
  for (int i = 0; i < 6; ++i) unbroken.step();
  for (const bool again : {false, true}) {
    Learner begun(with_dropout("softmax"), Device::cuda, captured(OptimizerKind::adamw));
    for (int i = 0; i < 3; ++i) begun.step();
    Learner resumed(with_dropout("softmax"), Device::cuda,
                    again ? captured(OptimizerKind::adamw) : eager(OptimizerKind::adamw));
    resumed.load(begun.saved());
    resumed.losses = begun.losses;
    resumed.norms = begun.norms;
    for (int i = 3; i < 6; ++i) resumed.step();
    check_same(resumed, unbroken);
  }
}

TEST_CASE("batches of other shapes between captured steps on the device run as they are") {
  if (!usable()) return;
  const Poisoned poisoned;
  Learner one(with_dropout("flexformer_n"), Device::cuda, eager(OptimizerKind::adamw));
  Learner other(with_dropout("flexformer_n"), Device::cuda, captured(OptimizerKind::adamw));
  for (const Index T : {7, 12, 12, 12, 5, 12, 7, 7, 12}) one.step(T), other.step(T);
  check_same(other, one);
  CHECK_EQ(other.bodies, 6);  // 7, 12, 12 (captured), 5, 7, 7
}

TEST_CASE("a number of the step that is an argument of a captured kernel on the device is noticed") {
  if (!usable()) return;
  Learner one(with_dropout("softmax"), Device::cuda, eager(OptimizerKind::sgd));
  Learner wrong(with_dropout("softmax"), Device::cuda, captured(OptimizerKind::sgd));
  one.planted_bug = wrong.planted_bug = true;
  for (int i = 0; i < 4; ++i) one.step(), wrong.step();
  for (std::size_t i = 0; i < 4; ++i) {
    INFO("step ", i);
    CHECK_EQ(one.losses[i] == wrong.losses[i], i < 2);  // from the second replay on all masks are the captured ones
  }
}

TEST_CASE("a captured step on the device with a gradient that is not finite changes nothing and names it") {
  if (!usable()) return;
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    Learner learner(with_dropout("softmax"), Device::cuda, captured(kind));
    for (int i = 0; i < 3; ++i) learner.step();
    Tensor weight = learner.model.parameters()["head.bias"].var.value();
    weight.copy_from(Tensor::full(weight.shape(), std::numeric_limits<float>::quiet_NaN()));
    const std::string before = learner.saved();
    CHECK_THROWS_WITH_AS(learner.step(), doctest::Contains("the gradient of 'token.weight' is not finite"),
                         NonFiniteGradient);
    CHECK_EQ(learner.bodies, 2);
    CHECK_UNARY(learner.saved() == before);
  }
}

TEST_CASE("a captured step on the device must not wait, nor copy from or to the host") {
  if (!usable()) return;
  Tensor x = Tensor::from({3}, {1, 2, 3}, Device::cuda), y = Tensor::zeros({3}, DType::f32, Device::cuda);
  const auto fails = [&](const std::function<void()>& what, const char* words) {
    CHECK_THROWS_WITH_AS(device::Graph{what}, doctest::Contains(words), Error);
  };
  fails([&] { x.item(); }, "item: shape [3] has 3 elements");  // what was wrong with the work itself
  fails([&] { x.to_vector(); }, "cuda: a captured step must not copy to the host");
  fails([&] { x.copy_from(Tensor::zeros({3})); }, "cuda: a captured step must not copy from the host");
  fails([] { device::synchronize(); }, "cuda: a captured step must not wait for the GPU");
  const device::Graph graph([&] { y.copy_from(x); });  // and all goes on
  CHECK_EQ(y.to_vector(), std::vector<float>{0, 0, 0});
  graph.launch();
  CHECK_EQ(y.to_vector(), std::vector<float>{1, 2, 3});
  x.copy_from(Tensor::from({3}, {4, 5, 6}));
  graph.launch();
  CHECK_EQ(y.to_vector(), std::vector<float>{4, 5, 6});
}

}  // namespace flexformer::testing
#endif
