// What is said of a model's answers, against values worked out by hand.
#include <doctest/doctest.h>

#include <cmath>

#include "train/training/class_metrics.h"
#include "train/training/regression_task.h"

using namespace flexformer;

TEST_CASE("figures of a confusion matrix are those of the textbooks") {
  ConfusionMatrix m(3);
  for (const auto& [truth, predicted] :
       std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 1}, {1, 1}, {2, 2}, {2, 0}})
    m.add(truth, predicted);
  CHECK(m.total() == 6);
  CHECK(m.accuracy() == doctest::Approx(4.0 / 6));
  CHECK(m.majority_accuracy() == doctest::Approx(2.0 / 6));
  CHECK(m.precision(1) == doctest::Approx(2.0 / 3));
  CHECK(m.recall(1) == 1.0);
  CHECK(m.recall(2) == 0.5);
  CHECK(m.support(0) == 2);
  // correct n - sum t p = 4 * 6 - (2*2 + 2*3 + 2*1); sqrt((n^2 - sum p^2)(n^2 - sum t^2)) = sqrt(22 * 24)
  CHECK(m.matthews() == doctest::Approx(12 / std::sqrt(22.0 * 24)));
  CHECK(dump_json(m.to_json()) == "[[1,1,0],[0,2,0],[1,0,1]]");
}

TEST_CASE("for two classes the Matthews coefficient is (TP TN - FP FN) over its root, and 0 for a constant answer") {
  ConfusionMatrix m(2);
  m.add(1, 1, 6), m.add(0, 0, 3), m.add(0, 1, 1), m.add(1, 0, 2);
  CHECK(m.matthews() == doctest::Approx((6.0 * 3 - 1 * 2) / std::sqrt(7.0 * 8 * 4 * 5)));
  ConfusionMatrix constant(2);
  constant.add(1, 1, 6), constant.add(0, 1, 3);
  CHECK(constant.matthews() == 0);
  CHECK(constant.precision(0) == 0);
}

TEST_CASE("correlations are those of the textbooks, ties sharing their ranks") {
  const std::vector<double> x = {1, 2, 3, 4, 5}, y = {2, 1, 4, 3, 5}, flat = {7, 7, 7, 7, 7},
                            curve = {1, 4, 9, 16, 100};
  CHECK(pearson(x, y) == doctest::Approx(0.8));
  CHECK(pearson(x, curve) == doctest::Approx(0.81).epsilon(0.01));
  CHECK(spearman(x, curve) == doctest::Approx(1.0));
  CHECK(pearson(x, flat) == 0);
  const std::vector<double> tied = {1, 2, 2, 3, 3};  // ranks 1, 2.5, 2.5, 4.5, 4.5
  CHECK(spearman(x, tied) == doctest::Approx(9 / std::sqrt(10.0 * 9)));
  CHECK_THROWS_WITH_AS(pearson(x, std::vector<double>{1}), doctest::Contains("pearson: 5 values and 1 others"), Error);
}
