// Attention weight distillation as a training task: the kernels of a model's layers learn the weights that softmax
// attention gives the same queries and keys, while everything else stands still.
#pragma once
#include <span>
#include <vector>

#include "nn/transformer.h"
#include "train/training/trainer.h"

namespace flexformer {

// The mean of each layer and head over many tokens, from batch means.
class HeadLosses {
 public:
  HeadLosses(Index layers, Index heads) : layers_(layers), heads_(heads), sums_(std::size_t(layers * heads), 0) {}

  Index heads() const { return heads_; }
  void add(Index layer, const Tensor& losses, double tokens);  // losses [heads]
  double mean() const;
  double at(Index layer, Index head) const { return sums_[std::size_t(layer * heads_ + head)] / tokens_per_layer(); }
  std::string table() const;  // for people: a row for each layer
  Json to_json() const;       // [layer][head]

 private:
  double tokens_per_layer() const { return tokens_ / double(layers_); }

  Index layers_, heads_;
  std::vector<double> sums_;
  double tokens_ = 0;
};

// The batches of another task with the loss of attention_distillation() (ops.h), averaged over tokens, layers and
// heads. The model runs on as its teacher, by softmax attention, so that every layer reads what the teacher's would.
class DistillationTask : public Task {
 public:
  // `task` trains a model around `transformer`, all of whose parameters but the kernels' are frozen.
  DistillationTask(Task& task, const Transformer& transformer);

  Index begin_step(Index step) override { return task_.begin_step(step), task_.step_tokens(); }
  Index step_tokens() const override { return task_.step_tokens(); }
  Index micro_batches() const override { return task_.micro_batches(); }
  Batch batch(Index micro_batch) const override { return task_.batch(micro_batch); }
  Var loss_sum(const Batch& batch, const Pass& pass) override;

  bool has_validation() const override { return task_.has_validation(); }
  // The distillation loss; how the teacher itself does is in the words and, as teacher_loss, in the metrics.
  Evaluation evaluate(const Pass& pass) override;

  const HeadLosses& validation() const { return validation_; }  // of the last evaluation

 private:
  Task& task_;
  Index layers_;
  HeadLosses validation_;
};

// Mean distance of a layer's kernel weights from softmax's, for each head: [heads]. `tokens` is set to how many
// counted.
Var layer_distillation(const MultiHeadAttention& layer, const Var& projected, const AttentionMask& mask,
                       double& tokens);

// Gives the kernels of the trigonometric kinds a start from which they can learn, by one batch of `task`. The usual one
// approximates softmax's own kernel, but where the teacher's queries and keys are long that kernel is so narrow that a
// few frequencies oscillate across it: half of the weights are negative, and give no gradient. Here each head measures
// q and k in units in which |q - k|^2 / sqrt d has a mean of 1 at most, and exp(-tau) falls until the keys' log-weights
// have a deviation of 1 at most: nearly even weights, which sharpen as they learn.
void fit_kernels(Task& task);

// A hash of all parameters but the attention kernels', to prove that they did not change.
std::uint64_t hash_without_kernels(const Parameters& parameters);

}  // namespace flexformer
