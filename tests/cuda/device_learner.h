// A small language model that learns on a device as the trainer lets it, for the tests on the device.
#pragma once
#include "nn/optim.h"
#include "nn/safetensors.h"
#include "tensor/captured_step.h"
#include "tests/nn/small_models.h"

namespace flexformer::testing {

inline LanguageModelOptions with_dropout(const std::string& kind) {
  LanguageModelOptions options = tests::small(kind);
  options.transformer.dropout = 0.1f;
  return options;
}

struct Learning {
  bool captured = false;
  OptimizerOptions optimizer = {.kind = OptimizerKind::adamw, .kernel_lr = 5};
  std::size_t batches = 1;  // of a step
  double rate_falls = 0;    // the learning rate is 1e-2 / (1 + rate_falls * step)
};

// A model, its optimiser, and the losses of the steps so far.
struct Learner {
  Learner(const LanguageModelOptions& options, Device device, const Learning& how = {})
      : how(how),
        random(5),
        model(options, random, device),
        optimizer(model.parameters(), how.optimizer),
        number(Tensor::zeros({1}, DType::i32, device)),
        captured(device, how.captured) {}

  // Rows of T tokens; random ones, that differ from step to step.
  void step(Index T = 12) {
    const std::size_t at = losses.size();
    std::vector<Batch> batches;
    for (std::uint64_t b = 0; b < how.batches; ++b)
      batches.push_back({tests::random_ids(2, T, at + 1000 * b), tests::random_ids(2, T, 100 + at + 1000 * b)});
    number.copy_from(Tensor::from_ints({1}, std::vector{std::int32_t(at)}));
    optimizer.prepare(1e-2 / (1 + how.rate_falls * double(at)));
    const std::vector<Tensor> found =
        captured.run(batches, [&](const std::vector<Batch>& given) { return launch_step(given); });
    losses.push_back(0);
    for (const Tensor& loss : found) losses.back() += loss.item();
    norms.push_back(float(optimizer.finish()));
  }

  std::vector<Tensor> launch_step(const std::vector<Batch>& batches) {
    ++bodies;
    Random masks(7);
    if (planted_bug) masks = Random(7, std::uint64_t(losses.size()) << 32);
    std::vector<Tensor> found;
    model.parameters().clear_grads();
    for (const Batch& batch : batches) {
      Tape tape;
      const Tensor step = planted_bug ? Tensor() : number;
      const Var loss = model.loss(batch[0], batch[1], {.training = true, .random = &masks, .step = step});
      tape.backward(loss);
      found.push_back(loss.value());
    }
    optimizer.launch_step(1);
    return found;
  }

  NamedTensors state() const {
    NamedTensors all = model.parameters().tensors();
    for (const NamedTensor& item : optimizer.state()) all.push_back(item);
    return all;
  }
  std::string saved() const { return write_safetensors({state(), {}}); }
  void load(const std::string& bytes) { load_tensors(state(), read_safetensors(bytes, "saved").tensors, "saved"); }

  Learning how;
  Random random;
  LanguageModel model;
  Optimizer optimizer;
  Tensor number;  // of the step, on the device
  CapturedStep captured;
  std::vector<float> losses, norms;
  int bodies = 0;            // how often the work of a step was written down kernel by kernel
  bool planted_bug = false;  // the number of the step is an argument of dropout's kernels
};

}  // namespace flexformer::testing
