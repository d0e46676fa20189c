// What training on labelled texts shares, whatever the labels are: every row once an epoch, in batches of similar
// length.
#pragma once
#include "nn/classifier.h"
#include "train/datasets/text_classes.h"
#include "train/training/trainer.h"

namespace flexformer {

struct ClassificationOptions {
  Index batch = 32;      // rows of a micro-batch
  Index accumulate = 1;  // micro-batches of a step
  float label_smoothing = 0;
  bool balanced = false;  // each class counts as much as any other, see ClassificationTask
  std::uint64_t seed = 0;
};

// How a model does on a set of rows.
struct Figures {
  double loss = 0;               // per row
  Json scores = Json::object();  // "accuracy": .., "mcc": .. and the like, by their names in summary.json
  std::string words, table;      // the same for people: one line; a table of several, or nothing
};

class TextTask : public Task {
 public:
  TextTask(const Classifier& model, const EncodedTexts& train, const EncodedTexts& valid, const LabelMap& labels,
           const ClassificationOptions& options)
      : model_(model), train_(train), valid_(valid), labels_(labels), options_(options) {}

  // From now on the training loss is (1 - weight) times that against the labels + weight times the distance from the
  // teacher's outputs: KL(teacher || model), or in regression the squared difference. Every row counts alike there. The
  // teacher reads without dropout; its parameters must be frozen.
  void learn_from(const Classifier& teacher, float weight) { teacher_ = &teacher, teacher_weight_ = weight; }

  static Index steps_per_epoch(Index rows, const ClassificationOptions& options);

  Index begin_step(Index step) override;
  Index step_tokens() const override;
  Index micro_batches() const override;
  Batch batch(Index micro_batch) const override;  // what the model reads of the rows, and then their labels()
  bool repeats() const override { return true; }
  bool has_validation() const override { return !valid_.rows.empty(); }

  // The result does not depend on how rows are batched. Throws Stopped if stop_signal() is set on the way.
  virtual Figures figures(const EncodedTexts& texts, const Pass& pass) const = 0;

 protected:
  virtual Tensor labels(std::span<const Index> rows) const = 0;  // of training rows, as the loss takes them
  // The outputs for a batch [rows, classes].
  Var outputs(const Batch& batch, const Pass& pass) const { return outputs_of(model_, batch, pass); }

  // `loss` of a batch's outputs against its labels, or what learn_from() makes of it.
  Var with_teacher(const Var& loss, const Var& outputs, const Batch& batch,
                   Var (*distance)(const Tensor& teacher, const Var& outputs)) const;

  const Classifier& model_;
  const EncodedTexts &train_, &valid_;
  const LabelMap& labels_;
  ClassificationOptions options_;

 private:
  static Var outputs_of(const Classifier& model, const Batch& batch, const Pass& pass);
  std::vector<std::vector<Index>> epoch_batches(Index epoch) const;

  const Classifier* teacher_ = nullptr;
  float teacher_weight_ = 0;
  Index epoch_ = -1;
  std::vector<std::vector<Index>> batches_;  // of epoch_
  std::vector<Index> rows_;                  // of the current step
};

// Logits [rows, classes] of some rows of `texts`, padded to the longest among them.
Var classify(const Classifier& model, const EncodedTexts& texts, std::span<const Index> rows, const Pass& pass);

// Rows in order of length, cut into groups of about `tokens` tokens with their padding: what to evaluate at a time.
std::vector<std::vector<Index>> length_groups(const EncodedTexts& texts, Index tokens);
inline constexpr Index kEvaluationTokens = 8192;

}  // namespace flexformer
