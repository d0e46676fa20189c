// What a classifier gets right and wrong.
#pragma once
#include <string>
#include <vector>

#include "train/util/json_file.h"

namespace flexformer {

// Counts of (true class, predicted class) pairs, and the figures that follow from them. A figure whose denominator is 0
// is 0.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(std::int64_t classes) : classes_(classes), counts_(std::size_t(classes * classes), 0) {}

  void add(std::int64_t truth, std::int64_t predicted, std::int64_t count = 1) {
    counts_[std::size_t(truth * classes_ + predicted)] += count;
  }
  std::int64_t at(std::int64_t truth, std::int64_t predicted) const {
    return counts_[std::size_t(truth * classes_ + predicted)];
  }

  std::int64_t classes() const { return classes_; }
  std::int64_t total() const;
  double accuracy() const;
  double majority_accuracy() const;  // of always answering the most frequent true class
  double precision(std::int64_t c) const;
  double recall(std::int64_t c) const;
  std::int64_t support(std::int64_t c) const;  // rows whose true class is c
  // Matthews correlation coefficient in its form for several classes (Gorodkin, 2004), in [-1, 1].
  double matthews() const;
  Json to_json() const;  // an array of rows, one for each true class

 private:
  std::int64_t predicted(std::int64_t c) const;
  std::int64_t correct() const;

  std::int64_t classes_;
  std::vector<std::int64_t> counts_;
};

}  // namespace flexformer
