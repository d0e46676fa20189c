// What rounding must not grow into: rows whose mean is large beside their spread, and sums of very many terms. On every
// device of the build.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

std::vector<Device> devices() {
#if defined(FLEXFORMER_CUDA)
  return {Device::cpu, Device::cuda};
#else
  return {Device::cpu};
#endif
}

using Op = std::function<Var(const Var& x, const Var& gamma)>;  // gamma [16]

struct Outcome {
  std::vector<float> y, dx, dgamma;
};
Outcome outcome(const Op& op, const Shape& shape, const std::vector<float>& values, Device device) {
  const Var x(Tensor::from(shape, values, device), true), gamma(Tensor::full({16}, 0.75f, device), true);
  Tape tape;
  const Var y = op(x, gamma);
  tape.backward(y, Tensor::from(y.shape(), normal_numbers(y.value().numel(), 3), device));
  return {y.value().to_vector(), x.grad().to_vector(),
          gamma.has_grad() ? gamma.grad().to_vector() : std::vector<float>()};
}

Numbers doubles(const std::vector<float>& x) { return Numbers(x.begin(), x.end()); }

}  // namespace

// 8192 + k / 1024 is exact in a float for small k, so that nothing but the op itself can lose the k.
TEST_CASE("a large mean changes nothing of what does not depend on it") {
  const Shape shape{6, 5, 16};
  std::vector<float> near, far;
  for (float number : normal_numbers(shape.numel(), 5)) {
    near.push_back(std::round(4 * number) / 1024);
    far.push_back(near.back() + 8192);
  }
  const auto layer = [](float eps) {
    return [eps](const Var& x, const Var& gamma) {
      return layer_norm(x, gamma, Var(Tensor::full({16}, 0.25f, x.device())), eps);
    };
  };
  struct Row {
    const char* name;
    Op op;
    bool shifts;  // the value moves with the mean
  };
  const Row rows[] = {
      {"layer_norm", layer(1e-5f), false},
      {"layer_norm eps", layer(1e-12f), false},
      {"variance of rows", [](const Var& x, auto&) { return variance(x, {2}); }, false},
      {"variance of columns", [](const Var& x, auto&) { return variance(x, {0}); }, false},
      {"variance of all", [](const Var& x, auto&) { return variance(x); }, false},
      {"softmax of rows", [](const Var& x, auto&) { return softmax(x, 2); }, false},
      {"softmax of columns", [](const Var& x, auto&) { return softmax(x, 0); }, false},
      {"log_softmax of rows", [](const Var& x, auto&) { return log_softmax(x, 2); }, false},
      {"log_softmax of columns", [](const Var& x, auto&) { return log_softmax(x, 1); }, false},
      {"logsumexp of rows", [](const Var& x, auto&) { return logsumexp(x, 2); }, true},
      {"logsumexp of columns", [](const Var& x, auto&) { return logsumexp(x, 0); }, true},
      {"cross_entropy",
       [](const Var& x, auto&) {
         return cross_entropy(x, Tensor::zeros({6, 5}, DType::i32));
       },
       false},
  };
  for (const Device device : devices())
    for (const Row& row : rows) {
      INFO(row.name, " on ", device == Device::cpu ? "the CPU" : "the GPU");
      const Outcome expected = outcome(row.op, shape, near, Device::cpu), ours = outcome(row.op, shape, far, device);
      if (!row.shifts) CHECK_EQ(difference(ours.y, doubles(expected.y), 4e-6), "");
      CHECK_EQ(difference(ours.dx, doubles(expected.dx), 1e-5), "");
      CHECK_EQ(difference(ours.dgamma, doubles(expected.dgamma), 1e-5), "");
    }
}

TEST_CASE("sums of very many equal terms keep all their digits") {
  const Index n = 50000;
  for (const Device device : devices())
    for (const bool columns : {false, true}) {
      CAPTURE(columns);
      const Shape shape = columns ? Shape{n, 2} : Shape{2, n};
      const int axis = columns ? 0 : 1;
      const Var x(Tensor::full(shape, 0.3f, device), true);
      std::vector<float> peaked(std::size_t(2 * n), 0.3f);
      peaked[0] = peaked[std::size_t(columns ? 1 : n)] = 1.3f;
      const Var peak(Tensor::from(shape, peaked, device));
      const double log_sum = double(1.3f) + std::log(1 + double(n - 1) * std::exp(-1.0));
      const auto last = [&](const Var& y) { return double(y.value().to_vector().back()); };
      CHECK_EQ(last(softmax(peak, axis)) / std::exp(double(0.3f) - log_sum), doctest::Approx(1).epsilon(1e-6));
      CHECK_EQ(last(log_softmax(peak, axis)), doctest::Approx(double(0.3f) - log_sum).epsilon(1e-7));
      CHECK_EQ(last(logsumexp(peak, axis)), doctest::Approx(log_sum).epsilon(1e-7));
      CHECK_EQ(last(mean(x, {axis})), doctest::Approx(double(0.3f)).epsilon(1e-6));
      CHECK_EQ(last(variance(x, {axis})), doctest::Approx(0).epsilon(1e-12));
      CHECK_EQ(last(cumsum(x, axis)), doctest::Approx(double(0.3f) * double(n)).epsilon(1e-6));
      for (const bool log : {false, true}) {
        x.clear_grad();
        Tape tape;
        tape.backward(log ? log_softmax(x, axis) : softmax(x, axis), Tensor::full(shape, 0.7f, device));
        // Equal gradients have no direction. The terms of the logarithm's difference are n times as large.
        CHECK_LT(std::fabs(x.grad().to_vector().front()) * (log ? 1.0f : float(n)), 4e-6f);
      }
    }
}

}  // namespace flexformer::testing
