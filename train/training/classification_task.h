// Text classification as a training task.
#pragma once
#include "train/training/class_metrics.h"
#include "train/training/text_task.h"

namespace flexformer {

// Loss and predictions over a whole set of rows.
struct ClassificationResult {
  explicit ClassificationResult(Index classes) : confusion(classes) {}
  double loss = 0;  // nats per row
  ConfusionMatrix confusion;
};

// Cross-entropy in nats. With options.balanced the training loss of a batch of B rows is
//   1/B sum_i w(y_i) CE_i,  w(c) = N / (K N_c)  for N training rows, N_c of them of class c, and K classes with rows,
// so that all classes weigh the same and the mean weight over the training rows is 1. Validation is never weighted.
class ClassificationTask : public TextTask {
 public:
  ClassificationTask(const Classifier& model, const EncodedTexts& train, const EncodedTexts& valid,
                     const LabelMap& labels, const ClassificationOptions& options);

  Var loss_sum(const Batch& batch, const Pass& pass) override;
  Evaluation evaluate(const Pass& pass) override;
  Figures figures(const EncodedTexts& texts, const Pass& pass) const override;

 private:
  // Classes i32 [rows] or, if they are balanced, the weighted distributions [rows, classes] to learn.
  Tensor labels(std::span<const Index> rows) const override;
  ClassificationResult measure(const EncodedTexts& texts, const Pass& pass) const;

  std::vector<float> class_weights_;  // empty: all 1
};

}  // namespace flexformer
