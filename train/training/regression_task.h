// Regression on texts as a training task: a label is a number, or there are several numbers, each with an output.
#pragma once
#include <span>

#include "train/training/text_task.h"

namespace flexformer {

// The loss of a row is (output - (y - mean) / deviation)^2, with mean and deviation of the training labels (LabelMap),
// and of several outputs the mean of that:
// in units of their variance, so that 1 is what always answering their mean gives, and learning rates do not depend on
// the unit of y. Figures are in the unit of y: mean squared error, and Pearson's and Spearman's correlation;
// of several outputs their means, and a table of each.
class RegressionTask : public TextTask {
 public:
  using TextTask::TextTask;

  Var loss_sum(const Batch& batch, const Pass& pass) override;
  Evaluation evaluate(const Pass& pass) override;
  Figures figures(const EncodedTexts& texts, const Pass& pass) const override;

 private:
  Tensor labels(std::span<const Index> rows) const override;  // [rows, outputs]
};

// sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2); 0 where one of them does not vary.
double pearson(std::span<const double> x, std::span<const double> y);
// pearson() of the ranks; equal values share the mean of their ranks.
double spearman(std::span<const double> x, std::span<const double> y);

}  // namespace flexformer
