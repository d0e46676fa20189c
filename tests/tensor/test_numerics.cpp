// Where careless formulas break: masked rows, nothing to average, huge and equal logits, constant rows, ties, infinite
// derivatives behind a mask, NaN that must not be swallowed.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "autograd/ops.h"

namespace flexformer {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
using Floats = std::vector<float>;

Var parameter(const Shape& shape, std::initializer_list<float> values) {
  return Var(Tensor::from(shape, values), true);
}
Tensor ints(const Shape& shape, std::initializer_list<std::int32_t> values) {
  return Tensor::from_ints(shape, std::vector(values));
}

bool all_finite(const Tensor& x) {
  for (float v : x.to_vector())
    if (!std::isfinite(v)) return false;
  return true;
}

// The gradient of sum(f(x) * dy), dy = 1 unless given.
Floats gradient(const Var& x, const std::function<Var(const Var&)>& f) {
  x.clear_grad();
  Tape tape;
  tape.backward(sum(f(x)));
  return x.grad().to_vector();
}

}  // namespace

TEST_CASE("NaN and infinity are told apart from numbers in this build") {
  CHECK(std::isnan(nan));
  CHECK(std::isinf(inf));
  CHECK_FALSE(nan == nan);
  CHECK_EQ(logsumexp(parameter({3}, {-inf, -inf, 0}), 0).value().item(), 0);
  CHECK_EQ(logsumexp(parameter({2}, {-inf, -inf}), 0).value().item(), -inf);
  CHECK_EQ(softmax(parameter({3}, {-inf, 1, -inf}), 0).value().to_vector(), Floats{0, 1, 0});
}

TEST_CASE("a row of -infinity gives zeros and no gradient, and leaves other rows alone") {
  for (int axis : {0, 1}) {
    CAPTURE(axis);
    Var x = parameter({2, 2}, {1, 2, -inf, -inf});
    if (axis == 0) x = Var(permute(x, {1, 0}).value(), true);
    const auto weighted = [&](const Var& y) { return y * parameter({2, 2}, {1, 5, 7, 2}); };
    const Floats y = softmax(x, axis).value().to_vector();
    const Floats dx = gradient(x, [&](const Var& v) { return weighted(softmax(v, axis)); });
    for (int i : axis ? std::vector{2, 3} : std::vector{1, 3}) {
      CHECK_EQ(y[std::size_t(i)], 0);
      CHECK_EQ(dx[std::size_t(i)], 0);
    }
    CHECK_NE(dx[0], 0);
    const Floats dlog = gradient(x, [&](const Var& v) {
      return masked_fill(log_softmax(v, axis), ints({2, 2}, {0, 0, 0, 0}), 0);
    });
    CHECK_EQ(dlog[3], 0);
  }
}

TEST_CASE("a NaN reaches the result: no maximum, relu or softmax swallows it") {
  for (const Var& x : {parameter({3}, {1, nan, 2}), parameter({3}, {nan, 1, 2}), parameter({3}, {-inf, nan, -inf})}) {
    CHECK(std::isnan(max(x, 0).value().item()));
    CHECK(std::isnan(logsumexp(x, 0).value().item()));
    for (float v : softmax(x, 0).value().to_vector()) CHECK(std::isnan(v));
    const Var column = reshape(x, {3, 1}), wide = concat({column, column}, 1);
    for (float v : softmax(wide, 0).value().to_vector()) CHECK(std::isnan(v));
    for (float v : max(wide, 0).value().to_vector()) CHECK(std::isnan(v));
  }
  const Var x = parameter({1}, {nan}), one = parameter({1}, {1});
  for (const Var& y : {relu(x), maximum(x, one), maximum(one, x), minimum(x, one), minimum(one, x), gelu(x), silu(x)})
    CHECK(std::isnan(y.value().item()));
}

TEST_CASE("cross entropy of nothing is 0 with zero gradients") {
  const Var logits(Tensor::full({1, 5, 10}, 3), true);
  for (bool mean : {true, false}) {
    const auto loss = [&](const Var& x) {
      return cross_entropy(x, ints({1, 5}, {-100, -100, -100, -100, -100}), {.mean = mean});
    };
    CHECK_EQ(loss(logits).value().item(), 0);
    CHECK_EQ(gradient(logits, loss), Floats(50, 0.0f));
  }
  CHECK_EQ(cross_entropy(parameter({0, 3}, {}), ints({0}, {})).value().item(), 0);
}

TEST_CASE("an ignore index that is a class is skipped as well") {
  const Var x = parameter({2, 3}, {1, 2, 3, 0, 0, 0});
  const auto loss = [](const Var& v) { return cross_entropy(v, ints({2}, {2, 1}), {.ignore_index = 2}); };
  CHECK_EQ(loss(x).value().item(), doctest::Approx(std::log(3.0)));
  const Floats dx = gradient(x, loss);
  CHECK_EQ(Floats(dx.begin(), dx.begin() + 3), Floats{0, 0, 0});
}

TEST_CASE("cross entropy of extreme logits is exact") {
  const auto loss = [](std::int32_t target) {
    return [target](const Var& x) { return cross_entropy(x, ints({1}, {target})); };
  };
  const Var far = parameter({1, 2}, {200, -200});
  CHECK_EQ(loss(1)(far).value().item(), 400);
  CHECK_EQ(gradient(far, loss(1)), Floats{1, -1});
  CHECK_EQ(gradient(far, loss(0)), Floats{0, 0});
  const Var huge = parameter({1, 2}, {1e30f, 0});
  CHECK_EQ(loss(1)(huge).value().item(), 1e30f);
  CHECK_EQ(loss(0)(huge).value().item(), 0);
  CHECK_EQ(gradient(huge, loss(1)), Floats{1, -1});
  for (float size : {0.0f, -3.0f, 1e5f, 1e30f, -1e30f}) {
    CAPTURE(size);
    const Var equal(Tensor::full({1, 32}, size), true);
    CHECK_EQ(loss(7)(equal).value().item(), float(std::log(32.0)));
    Floats expected(32, 1.0f / 32);
    expected[7] -= 1;
    const Floats dx = gradient(equal, loss(7));
    for (std::size_t i = 0; i < 32; ++i) CHECK_EQ(dx[i], doctest::Approx(expected[i]).epsilon(2e-6));
  }
}

TEST_CASE("layer norm of constant rows is beta, with finite gradients through six of them") {
  for (const auto& row : {std::pair<Index, float>{256, 1234.0f}, {1, 5.0f}, {64, 0.0f}, {33, 1e20f}}) {
    const Index C = row.first;
    CAPTURE(C);
    const Var x(Tensor::full({2, C}, row.second), true), gamma(Tensor::full({C}, 1.5f), true),
        beta(Tensor::full({C}, 0.25f), true);
    CHECK_EQ(layer_norm(x, gamma, beta).value().to_vector(), Floats(std::size_t(2 * C), 0.25f));
    gradient(x, [&](Var y) {
      for (int i = 0; i < 6; ++i) y = layer_norm(y, gamma, beta);
      return y * y;
    });
    CHECK(all_finite(x.grad()));
    CHECK(all_finite(gamma.grad()));
  }
}

TEST_CASE("a row of zeros has length 0: normalising it gives zeros and no gradient") {
  const Var x = parameter({2, 2}, {0, 0, 3, 4});
  CHECK_EQ(l2_normalize(x).value().to_vector(), Floats{0, 0, 0.6f, 0.8f});
  const Floats dx = gradient(x, l2_normalize);
  CHECK_EQ(Floats(dx.begin(), dx.begin() + 2), Floats{0, 0});
  CHECK_EQ(l2_normalize(parameter({1, 2}, {3e30f, 4e30f})).value().data()[1], doctest::Approx(0.8));
}

TEST_CASE("at a tie the first of the largest takes the whole gradient") {
  const Var ones(Tensor::full({4, 3}, 1), true);
  const auto largest = [](const Var& x) { return max(x, 0); };
  CHECK_EQ(gradient(ones, largest), Floats{1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK_EQ(gradient(parameter({4}, {2, 5, 5, 1}), largest), Floats{0, 1, 0, 0});
}

TEST_CASE("the branch that a mask did not take leaks no NaN into the gradient") {
  const Var a = parameter({1}, {100}), x = parameter({2}, {-1, -4});
  CHECK_EQ(gradient(a, [](const Var& v) { return where(ints({1}, {0}), exp(scale(v, 10)), shift(v, 1)); }), Floats{1});
  CHECK_EQ(gradient(x, [](const Var& v) { return where(ints({2}, {0, 0}), sqrt(v), v); }), Floats{1, 1});
  const Var zero = parameter({2}, {0, 2});
  const auto safe = [](const Var& f) { return masked_fill(f, ints({2}, {1, 0}), 0); };
  CHECK_EQ(gradient(zero, [&](const Var& v) { return safe(log(v)); }), Floats{0, 0.5f});
  CHECK_EQ(gradient(zero, [&](const Var& v) { return safe(sqrt(v)); })[0], 0);
  CHECK_EQ(gradient(zero, [&](const Var& v) { return safe(v / v); }), Floats{0, 0});
  CHECK_EQ(gradient(zero, [&](const Var& v) { return log(masked_fill(v, ints({2}, {1, 0}), 1)); }), Floats{0, 0.5f});
}

TEST_CASE("powers, roots and absolute values at zero and below") {
  const auto power = [](float p) { return [p](const Var& x) { return pow(x, p); }; };
  const Var x = parameter({2}, {0, -2});
  CHECK_EQ(gradient(x, power(2)), Floats{0, -4});
  CHECK_EQ(gradient(x, power(3)), Floats{0, 12});
  CHECK_EQ(gradient(x, power(1)), Floats{1, 1});
  CHECK_EQ(gradient(x, power(0)), Floats{0, 0});
  CHECK_EQ(pow(x, 3).value().to_vector(), Floats{0, -8});
  CHECK_EQ(gradient(parameter({1}, {0}), power(0.5f)), Floats{inf});
  CHECK_EQ(gradient(parameter({1}, {0}), [](const Var& v) { return sqrt(v); }), Floats{inf});
  CHECK_EQ(gradient(parameter({3}, {0, -2, 2}), [](const Var& v) { return abs(v); }), Floats{0, -1, 1});
  CHECK_EQ(gradient(parameter({3}, {0, -2, 2}), [](const Var& v) { return relu(v); }), Floats{0, 0, 1});
  const Var a = parameter({1}, {3e-30f}), b = parameter({1}, {2e-30f});
  CHECK_EQ(gradient(b, [&](const Var& v) { return a / v; })[0], doctest::Approx(-7.5e29));
}

TEST_CASE("the squared norm of large numbers does not overflow, and shows a NaN") {
  const Tensor large = Tensor::full({100}, 1e20f);
  Tensor one_nan = Tensor::zeros({10000});
  one_nan.data()[7777] = nan;
  const SquaredNorms::Array arrays[] = {{large.data(), 100}, {one_nan.data(), 10000}, {nullptr, 0}};
  double sums[] = {-1, -1, -1};
  launch(Device::cpu, SquaredNorms{.sums = sums, .arrays = arrays, .count = 3});
  CHECK_EQ(std::sqrt(sums[0]), doctest::Approx(1e21).epsilon(1e-7));
  CHECK(std::isnan(sums[1]));
  CHECK_EQ(sums[2], 0);
}

TEST_CASE("gradients of a transposed result arrive transposed") {
  const Var x = parameter({2, 3}, {1, 2, 3, 4, 5, 6});
  const Var w = parameter({6}, {1, 10, 100, 1000, 10000, 100000});
  CHECK_EQ(reshape(transpose(x, 0, 1), {6}).value().to_vector(), Floats{1, 4, 2, 5, 3, 6});
  CHECK_EQ(gradient(x,
                    [&](const Var& v) {
                      return reshape(permute(v, {-1, -2}), {6}) * w;
                    }),
           Floats{1, 100, 10000, 10, 1000, 100000});
}

TEST_CASE("dropout keeps the expectation and repeats its mask for one key") {
  const Var x(Tensor::full({200000}, 1), true);
  const RandomKey key{3, 4};
  const Floats y = dropout(x, 0.25f, key).value().to_vector();
  double mean = 0;
  for (float v : y) mean += double(v) / 200000;
  CHECK_LT(std::fabs(mean - 1), 0.0065);  // 5 standard errors
  CHECK_EQ(gradient(x, [&](const Var& v) { return dropout(v, 0.25f, key); }), y);
  CHECK_NE(dropout(x, 0.25f, {3, 5}).value().to_vector(), y);
  CHECK(dropout(x, 0, key).same_as(x));
}

}  // namespace flexformer
