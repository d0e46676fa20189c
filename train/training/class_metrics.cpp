#include "train/training/class_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace flexformer {
namespace {
double ratio(double a, double b) { return b == 0 ? 0 : a / b; }
}  // namespace

std::int64_t ConfusionMatrix::total() const { return std::accumulate(counts_.begin(), counts_.end(), std::int64_t(0)); }

std::int64_t ConfusionMatrix::correct() const {
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c < classes_; ++c) sum += at(c, c);
  return sum;
}

std::int64_t ConfusionMatrix::support(std::int64_t c) const {
  std::int64_t sum = 0;
  for (std::int64_t p = 0; p < classes_; ++p) sum += at(c, p);
  return sum;
}

std::int64_t ConfusionMatrix::predicted(std::int64_t c) const {
  std::int64_t sum = 0;
  for (std::int64_t t = 0; t < classes_; ++t) sum += at(t, c);
  return sum;
}

double ConfusionMatrix::accuracy() const { return ratio(double(correct()), double(total())); }

double ConfusionMatrix::majority_accuracy() const {
  std::int64_t largest = 0;
  for (std::int64_t c = 0; c < classes_; ++c) largest = std::max(largest, support(c));
  return ratio(double(largest), double(total()));
}

double ConfusionMatrix::precision(std::int64_t c) const { return ratio(double(at(c, c)), double(predicted(c))); }
double ConfusionMatrix::recall(std::int64_t c) const { return ratio(double(at(c, c)), double(support(c))); }

double ConfusionMatrix::matthews() const {
  const double n = double(total());
  double cross = 0, truth = 0, guess = 0;
  for (std::int64_t c = 0; c < classes_; ++c) {
    const double t = double(support(c)), p = double(predicted(c));
    cross += t * p;
    truth += t * t;
    guess += p * p;
  }
  return ratio(double(correct()) * n - cross, std::sqrt((n * n - guess) * (n * n - truth)));
}

Json ConfusionMatrix::to_json() const {
  Json rows = Json::array();
  for (std::int64_t t = 0; t < classes_; ++t) {
    Json row = Json::array();
    for (std::int64_t p = 0; p < classes_; ++p) row.push_back(std::uint64_t(at(t, p)));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace flexformer
