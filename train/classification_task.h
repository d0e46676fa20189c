// Text classification as a training task: every row once an epoch, in batches of similar length.
#pragma once
#include "nn/classifier.h"
#include "train/class_metrics.h"
#include "train/text_classes.h"
#include "train/trainer.h"

namespace flexformer {

struct ClassificationOptions {
  Index batch = 32;      // rows of a micro-batch
  Index accumulate = 1;  // micro-batches of a step
  float label_smoothing = 0;
  std::uint64_t seed = 0;
};

// Loss and predictions over a whole set of rows.
struct ClassificationResult {
  explicit ClassificationResult(Index classes) : confusion(classes) {}
  double loss = 0;  // nats per row
  ConfusionMatrix confusion;
};

class ClassificationTask : public Task {
 public:
  ClassificationTask(const Classifier& model, const EncodedTexts& train, const EncodedTexts& valid,
                     const LabelMap& labels, const ClassificationOptions& options)
      : model_(model), train_(train), valid_(valid), labels_(labels), options_(options) {}

  static Index steps_per_epoch(Index rows, const ClassificationOptions& options);

  Index begin_step(Index step) override;
  Index step_tokens() const override;
  Index micro_batches() const override;
  Var loss_sum(Index micro_batch, const Pass& pass) override;
  bool has_validation() const override { return !valid_.rows.empty(); }
  Evaluation evaluate() override;

  // Figures over `texts`. The result does not depend on how rows are batched.
  ClassificationResult measure(const EncodedTexts& texts) const;

 private:
  std::vector<std::vector<Index>> epoch_batches(Index epoch) const;

  const Classifier& model_;
  const EncodedTexts &train_, &valid_;
  const LabelMap& labels_;
  ClassificationOptions options_;
  Index epoch_ = -1;
  std::vector<std::vector<Index>> batches_;  // of epoch_
  std::vector<Index> rows_;                  // of the current step
};

// Logits [rows, classes] of some rows of `texts`, padded to the longest among them.
Var classify(const Classifier& model, const EncodedTexts& texts, std::span<const Index> rows, const Pass& pass);

// Rows in order of length, cut into groups of about `tokens` tokens with their padding: what to evaluate at a time.
std::vector<std::vector<Index>> length_groups(const EncodedTexts& texts, Index tokens);

}  // namespace flexformer
