// Labels that do not exclude each other, as a training task: each output says by itself whether its label applies.
#pragma once
#include "train/training/text_task.h"

namespace flexformer {

// The loss of a row is the mean over its K labels of the binary cross-entropy of sigmoid(output):
//   1/K sum_k softplus(x_k) - y_k x_k,   y_k in {0, 1}, smoothed to y_k (1 - s) + s/2.
// A label counts as given from probability 0.5 on. Figures: the share of rows with all labels right, and F1 over all
// labels together (micro) and as the mean of the labels' own (macro; 0 for a label that neither stands nor is given).
class TagsTask : public TextTask {
 public:
  using TextTask::TextTask;

  Var loss_sum(const Batch& batch, const Pass& pass) override;
  Evaluation evaluate(const Pass& pass) override;
  Figures figures(const EncodedTexts& texts, const Pass& pass) const override;

 private:
  Tensor labels(std::span<const Index> rows) const override;  // [rows, labels]
};

}  // namespace flexformer
