// Products beyond the op table: fused ops against the same written with plain ops, and operands in bfloat16.
#include <doctest/doctest.h>

#include <bit>

#include "autograd/ops.h"
#include "tensor/parallel.h"
#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

Var random_var(const Shape& shape, std::uint64_t stream, float scale = 1) {
  Tensor x = Tensor::empty(shape);
  launch(Device::cpu, FillNormal{.y = x.data(), .n = x.numel(), .scale = scale, .key = {7, stream}});
  return Var(x, true);
}

// The value of f and the gradients of its inputs, for one incoming gradient.
std::vector<std::vector<float>> value_and_gradients(const Vars& inputs, const std::function<Var(const Vars&)>& f) {
  for (const Var& x : inputs) x.clear_grad();
  Tape tape;
  const Var y = f(inputs);
  tape.backward(y, random_var(y.shape(), 99).value());
  std::vector<std::vector<float>> all{y.value().to_vector()};
  for (const Var& x : inputs) all.push_back(x.grad().to_vector());
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE_EQ(a.size(), b.size());
  double most = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(double(a[i]) - double(b[i])));
    size = std::max(size, std::fabs(double(b[i])));
  }
  return most / std::max(size, 1e-30);
}

float to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u);
}

// Restores the precision that was set before.
struct InBf16 {
  InBf16() { set_precision(Precision::bf16); }
  ~InBf16() { set_precision(Precision::f32); }
};

struct Size {
  Index M, N, K;
  bool a_transposed, b_transposed;
};

Gemm gemm_of(const Size& s, float* c, const float* a, const float* b) {
  return {.c = {c, false},
          .a = a,
          .b = b,
          .bias = nullptr,
          .M = s.M,
          .N = s.N,
          .K = s.K,
          .a_row = s.a_transposed ? 1 : s.K,
          .a_col = s.a_transposed ? s.M : 1,
          .b_row = s.b_transposed ? 1 : s.N,
          .b_col = s.b_transposed ? s.K : 1,
          .c_row = s.N,
          .bf16 = true};
}

}  // namespace

TEST_CASE("a fused mlp gives the very bits of linear, gelu, linear and add") {
  const Vars inputs{random_var({2, 33, 20}, 1),    random_var({70, 20}, 2, 0.3f), random_var({70}, 3),
                    random_var({20, 70}, 4, 0.3f), random_var({20}, 5),           random_var({2, 33, 20}, 6)};
  const auto fused = value_and_gradients(inputs, [](const Vars& v) { return mlp(v[0], v[1], v[2], v[3], v[4], v[5]); });
  const auto composed = value_and_gradients(
      inputs, [](const Vars& v) { return add(v[5], linear(gelu(linear(v[0], v[1], v[2])), v[3], v[4])); });
  for (std::size_t i = 0; i < fused.size(); ++i) {
    CAPTURE(i);
    CHECK(fused[i] == composed[i]);
  }
}

TEST_CASE("a fused mlp works without a tape, and gives frozen parameters no gradient") {
  Vars inputs{random_var({5, 4}, 1), random_var({6, 4}, 2), random_var({6}, 3), random_var({4, 6}, 4)};
  const Var evaluated = mlp(inputs[0], inputs[1], inputs[2], inputs[3], Var());
  for (int i : {0, 1, 2}) inputs[std::size_t(i)].set_requires_grad(false);
  Tape tape;
  const Var y = mlp(inputs[0], inputs[1], inputs[2], inputs[3], Var());
  CHECK(y.value().to_vector() == evaluated.value().to_vector());
  tape.backward(sum(y));
  CHECK_FALSE(inputs[0].has_grad());
  CHECK(inputs[3].has_grad());
}

TEST_CASE("a loss over a large vocabulary goes through in chunks and equals the whole") {
  const Index R = 150, V = 65600, I = 5;  // chunks of 64 rows: 64, 64, 22
  const Vars inputs{random_var({R, I}, 1), random_var({V, I}, 2), random_var({V}, 3)};
  Tensor targets = Tensor::empty({R}, DType::i32);
  for (Index r = 0; r < R; ++r) targets.ints()[r] = r % 7 == 0 ? -100 : std::int32_t((r * 4391) % V);
  const CrossEntropyOptions options{.ignore_index = -100, .label_smoothing = 0.1f, .mean = true};
  memory::reset_peak(Device::cpu);
  const Index before = memory::stats(Device::cpu).live_bytes;
  const auto fused = value_and_gradients(
      inputs, [&](const Vars& v) { return linear_cross_entropy(v[0], v[1], v[2], targets, options); });
  const Index chunked = memory::stats(Device::cpu).peak_bytes - before;
  const auto whole = value_and_gradients(
      inputs, [&](const Vars& v) { return cross_entropy(linear(v[0], v[1], v[2]), targets, options); });
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CAPTURE(i);
    CHECK(largest_difference(fused[i], whole[i]) <= 1e-5);
  }
  CHECK(chunked < R * V * Index(sizeof(float)) * 2 / 3);  // the logits alone would need R * V floats, twice
}

TEST_CASE("products in bfloat16 round their operands and nothing else") {
  for (const Size s : {Size{1, 1, 1, false, false},
                       {3, 5, 7, false, false},
                       {65, 63, 33, true, false},
                       {64, 64, 65, false, true},
                       {70, 130, 129, true, true},
                       {200, 49, 1100, false, false},
                       {130, 100, 2050, false, true},
                       {97, 333, 77, true, false},
                       {64, 64, 64, true, true}}) {
    CAPTURE(s.M);
    CAPTURE(s.N);
    CAPTURE(s.K);
    const Tensor a = random_var({s.M, s.K}, 1).value(), b = random_var({s.K, s.N}, 2).value();
    Tensor c = Tensor::full({s.M, s.N}, NAN);
    launch(Device::cpu, gemm_of(s, c.data(), a.data(), b.data()));
    double worst = 0;
    for (Index i = 0; i < s.M; ++i)
      for (Index j = 0; j < s.N; ++j) {
        double sum = 0, size = 0;
        for (Index k = 0; k < s.K; ++k) {
          const double term = double(to_bf16(a.data()[s.a_transposed ? k * s.M + i : i * s.K + k])) *
                              double(to_bf16(b.data()[s.b_transposed ? j * s.K + k : k * s.N + j]));
          sum += term;
          size += std::fabs(term);
        }
        worst = std::max(worst, std::fabs(double(c.data()[i * s.N + j]) - sum) / size);
      }
    CHECK(worst <= 1e-6);
  }
}

TEST_CASE("products in bfloat16 have the same bits as one large product and as small ones of a few rows") {
  for (Index K : {64, 65, 200, 511}) {
    const Size s{65, 70, K, false, false}, few{5, 70, K, false, false};  // large from 64 * 64 * 64 on
    const Tensor a = random_var({s.M, K}, 1).value(), b = random_var({K, s.N}, 2).value();
    Tensor whole = Tensor::full({s.M, s.N}, NAN), parts = Tensor::full({s.M, s.N}, NAN);
    launch(Device::cpu, gemm_of(s, whole.data(), a.data(), b.data()));
    for (Index i = 0; i < s.M; i += few.M)
      launch(Device::cpu, gemm_of(few, parts.data() + i * s.N, a.data() + i * K, b.data()));
    CHECK(whole.to_vector() == parts.to_vector());
  }
}

TEST_CASE("with precision bf16 linear, matmul and mlp compute and differentiate in bfloat16") {
  const Vars inputs{random_var({70, 65}, 1), random_var({80, 65}, 2, 0.2f), random_var({80}, 3),
                    random_var({65, 80}, 4, 0.2f)};
  const std::function<Var(const Vars&)> ops[] = {
      [](const Vars& v) { return linear(linear(v[0], v[1], v[2]), v[3], Var()); },
      [](const Vars& v) { return matmul(v[0], v[1], false, true) + matmul(v[0], v[3]) + v[2]; },
      [](const Vars& v) { return mlp(v[0], v[1], v[2], v[3], Var()); }};
  for (const auto& op : ops) {
    const auto exact = value_and_gradients(inputs, op);
    const InBf16 scope;
    const auto rounded = value_and_gradients(inputs, op);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      CAPTURE(i);
      const double error = largest_difference(rounded[i], exact[i]);
      CHECK(error <= 2e-2);
      if (i != 3) CHECK(error > 1e-6);  // a bias has no product in it
    }
  }
}

TEST_CASE("products do not depend on the number of threads, in either precision") {
  const Index M = 300, N = 200, K = 1100;
  const Var a = random_var({M, K}, 1), b = random_var({N, K}, 2);
  const int before = threads();
  for (Precision precision : {Precision::f32, Precision::bf16}) {
    set_precision(precision);
    std::vector<std::vector<float>> first;
    for (int count : {1, 2, 3}) {
      set_threads(count);
      auto all = value_and_gradients({a, b}, [](const Vars& v) { return matmul(v[0], v[1], false, true); });
      if (first.empty()) first = all;
      CHECK(all == first);
    }
  }
  set_precision(Precision::f32);
  set_threads(before);
}

}  // namespace flexformer::testing
