// Language modelling as a training task: random windows of a text to train on, the whole validation text to evaluate.
#pragma once
#include <functional>

#include "nn/language_model.h"
#include "train/text/text_data.h"
#include "train/training/trainer.h"

namespace flexformer {

struct WindowOptions {
  Index block = 128;       // tokens of a window
  Index batch = 32;        // windows of a micro-batch
  Index accumulate = 1;    // micro-batches of a step
  Index valid_stride = 0;  // tokens between the starts of validation windows; 0: block
  float label_smoothing = 0;
  std::uint64_t seed = 0;
};

class LanguageTask : public Task {
 public:
  // `draw_sample`, if given, makes a short text at each evaluation, for the metrics.
  LanguageTask(const LanguageModel& model, const TextData& data, const WindowOptions& options,
               std::function<std::string()> draw_sample = {})
      : model_(model), data_(data), options_(options), draw_sample_(std::move(draw_sample)) {}

  // From now on the training loss is (1 - weight) cross-entropy + weight KL(teacher || model), over the same targets.
  // The teacher reads without dropout; its parameters must be frozen. All logits of a micro-batch then exist at once.
  void learn_from(const LanguageModel& teacher, float weight) { teacher_ = &teacher, teacher_weight_ = weight; }

  Index begin_step(Index step) override;
  Index step_tokens() const override { return options_.accumulate * options_.batch * options_.block; }
  Index micro_batches() const override { return options_.accumulate; }
  Batch batch(Index micro_batch) const override;  // ids and targets i32 [batch, block]
  Var loss_sum(const Batch& batch, const Pass& pass) override;
  bool repeats() const override { return model_.options().adaptive.cutoffs.empty(); }  // bands differ in their tokens

  bool has_validation() const override { return data_.valid.size() >= 2; }
  // Every token but the first is a target once. A window's first block - stride tokens are context only, unless it is
  // the first window; the last window may be shorter.
  Evaluation evaluate(const Pass& pass) override;

 private:
  // Summed loss of windows of equal length, counting the last `counted` targets of each.
  double window_loss(const std::vector<Index>& starts, Index length, Index counted, const Pass& pass) const;

  const LanguageModel& model_;
  const TextData& data_;
  WindowOptions options_;
  std::function<std::string()> draw_sample_;
  const LanguageModel* teacher_ = nullptr;
  float teacher_weight_ = 0;
  Index step_ = 0;
};

}  // namespace flexformer
