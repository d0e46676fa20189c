// What a classifier says of a text, for people and programs.
#pragma once
#include <string>
#include <vector>

#include "train/datasets/table.h"

namespace flexformer {

// What the outputs of a model mean: a probability for each class (they add up to 1), for each label by itself, or
// numbers in the unit of the training data.
std::vector<double> answer_of(const std::vector<float>& outputs, const LabelMap& labels);

// One line. Classes: the label and its probability; labels: those of probability 0.5 or more with theirs; numbers. As
// JSON: "task" and all values by name.
std::string answer_line(const std::vector<double>& values, const LabelMap& labels, bool json);

}  // namespace flexformer
