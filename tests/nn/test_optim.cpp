// Optimisers against their formulas in double, clipping, gradients that are not finite, and learning-rate schedules.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "nn/optim.h"
#include "nn/schedule.h"

using namespace flexformer;

namespace {

// Two parameters, a matrix that decays and a bias that does not, whose gradients are set by hand.
struct Problem {
  Parameters parameters;
  Var matrix, bias;
  Problem() {
    matrix = parameters.add({"matrix", Var(Tensor::from({2, 2}, {1, -2, 0.5f, 3}), true), true, false});
    bias = parameters.add({"bias", Var(Tensor::from({2}, {0.25f, -1}), true), false, false});
  }
};

void set_gradient(const Var& x, const std::vector<double>& values) {
  x.clear_grad();
  const GradOut out = x.gradient().out();
  for (std::size_t i = 0; i < values.size(); ++i) out.p[i] = float(values[i]);
}

// Gradients of step t: any smooth, repeatable numbers.
std::vector<double> gradient(std::size_t n, int t, double phase) {
  std::vector<double> g(n);
  for (std::size_t i = 0; i < n; ++i) g[i] = double(float(2 * std::sin(1.7 * double(i) + 0.9 * t + phase)));
  return g;
}

// p after one step, in double: (p, m, v, scaled gradient, t, decays) -> p.
using Rule = std::function<double(double, double&, double&, double, int, bool)>;

void check_three_steps(const OptimizerOptions& options, double lr, double clip, const Rule& rule) {
  Problem problem;
  Optimizer optimizer(problem.parameters, options);
  std::vector<double> p = {1, -2, 0.5, 3, 0.25, -1}, m(6), v(6);
  for (int t = 1; t <= 3; ++t) {
    std::vector<double> g = gradient(4, t, 0);
    set_gradient(problem.matrix, g);
    const std::vector<double> g_bias = gradient(2, t, 5);
    set_gradient(problem.bias, g_bias);
    g.insert(g.end(), g_bias.begin(), g_bias.end());
    double norm = 0;
    for (const double x : g) norm += x * x;
    norm = std::sqrt(norm);
    const double scale = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
    CHECK(optimizer.step(lr, clip) == doctest::Approx(norm).epsilon(1e-6));
    for (std::size_t i = 0; i < 6; ++i) {
      p[i] = rule(p[i], m[i], v[i], scale * g[i], t, i < 4 || options.decay_all);
      const float ours = i < 4 ? problem.matrix.value().data()[i] : problem.bias.value().data()[i - 4];
      CHECK(ours == doctest::Approx(p[i]).epsilon(1e-6));
    }
  }
  CHECK(optimizer.steps() == 3);
}

Rule adam_rule(double lr, double l2, double decay) {
  return [=](double p, double& m, double& v, double g, int t, bool decays) {
    if (decays) g += l2 * p;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    if (decays) p *= 1 - lr * decay;
    return p - lr * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
  };
}

}  // namespace

TEST_CASE("three AdamW steps equal the formula in double") {
  SUBCASE("decay on matrices only") { check_three_steps({.weight_decay = 0.1f}, 0.05, 0, adam_rule(0.05, 0, 0.1)); }
  SUBCASE("decay on every parameter, clipped") {
    check_three_steps({.weight_decay = 0.1f, .decay_all = true}, 0.05, 1, adam_rule(0.05, 0, 0.1));
  }
}

TEST_CASE("three Adam steps with L2 equal the formula in double") {
  check_three_steps({.kind = OptimizerKind::adam, .weight_decay = 0.01f}, 0.05, 0, adam_rule(0.05, 0.01, 0));
}

TEST_CASE("three SGD steps equal the formula in double") {
  for (const bool nesterov : {false, true}) {
    CAPTURE(nesterov);
    const Rule rule = [=](double p, double& m, double&, double g, int, bool decays) {
      if (decays) g += 0.01 * p;
      m = 0.9 * m + g;
      return p - 0.05 * (nesterov ? g + 0.9 * m : m);
    };
    check_three_steps({.kind = OptimizerKind::sgd, .nesterov = nesterov, .weight_decay = 0.01f}, 0.05, 1, rule);
  }
}

TEST_CASE("a hundred gradients of 1e20 are clipped to 0.1 each") {
  Parameters parameters;
  const Var x = parameters.add({"x", Var(Tensor::zeros({100}), true), false, false});
  set_gradient(x, std::vector<double>(100, 1e20));
  Optimizer optimizer(parameters, {.kind = OptimizerKind::sgd, .momentum = 0});
  CHECK(optimizer.step(1.0, 1.0) == doctest::Approx(1e21).epsilon(1e-6));
  for (Index i = 0; i < 100; ++i) CHECK(x.value().data()[i] == doctest::Approx(-0.1).epsilon(1e-6));
}

TEST_CASE("a gradient that is not finite changes nothing and is named") {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Problem problem;
    Optimizer optimizer(problem.parameters, {});
    set_gradient(problem.matrix, {1, 1, 1, 1});
    set_gradient(problem.bias, {1, bad});
    CHECK_THROWS_WITH_AS(optimizer.step(0.1, 1.0), doctest::Contains("gradient of 'bias' is not finite"),
                         NonFiniteGradient);
    CHECK(problem.matrix.value().to_vector() == std::vector<float>{1, -2, 0.5f, 3});
    CHECK(problem.bias.value().to_vector() == std::vector<float>{0.25f, -1});
    CHECK(optimizer.steps() == 0);
    for (const NamedTensor& item : optimizer.state())
      if (item.tensor.dtype() == DType::f32)
        for (const float x : item.tensor.to_vector()) CHECK(x == 0);
  }
}

TEST_CASE("a parameter without a gradient stays as it is, decay included") {
  Problem problem;
  Optimizer optimizer(problem.parameters, {.weight_decay = 0.5f});
  set_gradient(problem.bias, {1, 1});
  CHECK(optimizer.step(0.1) == doctest::Approx(std::sqrt(2.0)));
  CHECK(problem.matrix.value().to_vector() == std::vector<float>{1, -2, 0.5f, 3});
  CHECK(problem.bias.value().data()[0] != 0.25f);
}

TEST_CASE("a frozen parameter has no state and does not count for the norm") {
  Problem problem;
  set_gradient(problem.matrix, {1e6, 0, 0, 0});
  problem.matrix.set_requires_grad(false);
  Optimizer optimizer(problem.parameters, {});
  set_gradient(problem.bias, {3, 4});
  CHECK(optimizer.step(0.1) == doctest::Approx(5));
  CHECK(problem.matrix.value().to_vector() == std::vector<float>{1, -2, 0.5f, 3});
  CHECK(optimizer.state().size() == 3);
}

TEST_CASE("kernel parameters have a learning rate of their own") {
  Parameters parameters;
  const Var plain = parameters.add({"plain", Var(Tensor::zeros({1}), true), false, false});
  const Var kernel = parameters.add({"kernel", Var(Tensor::zeros({1}), true), false, true});
  set_gradient(plain, {2});
  set_gradient(kernel, {2});
  Optimizer(parameters, {.kind = OptimizerKind::sgd, .kernel_lr = 5}).step(0.1);
  CHECK(kernel.value().item() == doctest::Approx(5 * plain.value().item()));
}

TEST_CASE("an optimiser with its state copied goes on exactly as the original") {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    Problem a, b;
    Optimizer first(a.parameters, {.kind = kind}), second(b.parameters, {.kind = kind});
    const auto step = [](Problem& problem, Optimizer& optimizer, int t) {
      set_gradient(problem.matrix, gradient(4, t, 0));
      set_gradient(problem.bias, gradient(2, t, 5));
      optimizer.step(0.01, 1);
    };
    for (int t = 1; t <= 4; ++t) step(a, first, t);
    b.matrix.value().copy_from(a.matrix.value());
    b.bias.value().copy_from(a.bias.value());
    const NamedTensors from = first.state();
    NamedTensors to = second.state();
    REQUIRE(from.size() == (kind == OptimizerKind::sgd ? 3 : 5));
    for (std::size_t i = 0; i < from.size(); ++i) {
      CHECK(from[i].name == to[i].name);
      to[i].tensor.copy_from(from[i].tensor);
    }
    CHECK(second.steps() == 4);
    for (int t = 5; t <= 8; ++t) {
      step(a, first, t);
      step(b, second, t);
    }
    CHECK(a.matrix.value().to_vector() == b.matrix.value().to_vector());
    CHECK(a.bias.value().to_vector() == b.bias.value().to_vector());
  }
}

TEST_CASE("unknown optimisers and schedules are refused with the list") {
  CHECK(optimizer_from("sgd") == OptimizerKind::sgd);
  CHECK(schedule_from("constant") == ScheduleKind::constant);
  CHECK_THROWS_WITH_AS(optimizer_from("lion"), "there is no optimizer 'lion'; there are adamw, adam, sgd", Error);
  CHECK_THROWS_WITH_AS(schedule_from("linear"),
                       "there is no schedule 'linear'; there are cosine, inverse_sqrt, constant", Error);
}

TEST_CASE("schedules follow their formulas") {
  const Schedule cosine{.lr = 1e-3, .min_lr = 1e-4, .warmup = 20, .steps = 120};
  CHECK(cosine.at(1) == doctest::Approx(5e-5));
  CHECK(cosine.at(20) == doctest::Approx(1e-3));
  CHECK(cosine.at(70) == doctest::Approx(5.5e-4));
  CHECK(cosine.at(120) == 1e-4);
  CHECK(cosine.at(5000) == 1e-4);
  const Schedule root{.kind = ScheduleKind::inverse_sqrt, .lr = 1e-3, .warmup = 40, .steps = 200};
  CHECK(root.at(10) == doctest::Approx(2.5e-4));
  CHECK(root.at(160) == doctest::Approx(5e-4));
  const Schedule constant{.kind = ScheduleKind::constant, .lr = 1e-3, .warmup = 4, .steps = 10};
  CHECK(constant.at(1) == doctest::Approx(2.5e-4));
  CHECK(constant.at(99) == 1e-3);
}

TEST_CASE("a learning rate never leaves [0, lr]") {
  const double lr = 0.01;
  for (const ScheduleKind kind : {ScheduleKind::cosine, ScheduleKind::inverse_sqrt, ScheduleKind::constant})
    for (const Index warmup : {0, 1, 10, 500})
      for (const Index steps : {0, 1, 10, 100})
        for (const double min_lr : {0.0, 0.001, lr})
          for (Index t = 0; t <= 1200; t += t < 120 ? 1 : 90) {
            const Schedule schedule{kind, lr, min_lr, warmup, steps};
            const double rate = schedule.at(t);
            CAPTURE(t);
            CAPTURE(warmup);
            CAPTURE(steps);
            REQUIRE(rate >= (t > warmup ? min_lr : 0));
            REQUIRE(rate <= lr * (1 + 1e-12));
            REQUIRE(schedule.at(t + 1) >= 0);
          }
  CHECK(Schedule{.lr = lr, .warmup = 0, .steps = 10}.at(1) > 0.9 * lr);
  CHECK(Schedule{.lr = lr, .warmup = 100, .steps = 10}.at(10) == doctest::Approx(0.1 * lr));
}

TEST_CASE("a smallest rate above the rate is refused") {
  CHECK_THROWS_WITH_AS((Schedule{.lr = 0.1, .min_lr = 0.2}.at(1)),
                       doctest::Contains("the smallest rate must be in [0, 0.1], got 0.2"), Error);
}
