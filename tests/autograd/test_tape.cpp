// Var and Tape: what is recorded, what a backward pass leaves behind, and how misuse is refused.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.h"

namespace flexformer {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& all, const std::string& part) { return all.find(part) != std::string::npos; }

Var parameter(const Shape& shape, std::initializer_list<float> values) {
  return Var(Tensor::from(shape, values), true);
}

Index live_bytes() { return memory::stats(Device::cpu).live_bytes; }

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("backward gives the gradient of a scalar with respect to each leaf") {
  const Var x = parameter({2}, {3, -2}), y = parameter({2}, {5, 7});
  Tape tape;
  tape.backward(sum(x * y + x));
  CHECK_EQ(x.grad().to_vector(), Floats{6, 8});
  CHECK_EQ(y.grad().to_vector(), Floats{3, -2});
}

TEST_CASE("a second backward on one tape is refused") {
  const Var a = parameter({1}, {3}), b = parameter({1}, {2});
  Tape tape;
  const Var c = a + b, e = c * Var(Tensor::full({1}, 1));
  tape.backward(e);
  CHECK(contains(message_of([&] { tape.backward(e); }), "open a new Tape for each forward pass"));
  CHECK_EQ(a.grad().item(), 1);
  CHECK(contains(message_of([&] { a + b; }), "add: this tape has been replayed"));
}

TEST_CASE("leaf gradients add up over tapes until they are cleared") {
  const Var x = parameter({1}, {3});
  for (float expected : {6.0f, 12.0f, 18.0f}) {
    Tape tape;
    tape.backward(square(x));
    CHECK_EQ(x.grad().item(), expected);
  }
  x.clear_grad();
  CHECK_FALSE(x.has_grad());
  CHECK(contains(message_of([&] { x.grad(); }), "no gradient here: run backward()"));
  Tape tape;
  tape.backward(square(x));
  CHECK_EQ(x.grad().item(), 6);
}

TEST_CASE("a frozen input gets no gradient") {
  Var x = parameter({1}, {3}), w = parameter({1}, {4});
  const Var copy = w;
  w.set_requires_grad(false);
  CHECK_FALSE(copy.requires_grad());
  {
    Tape tape;
    tape.backward(x * w);
  }
  CHECK_EQ(x.grad().item(), 4);
  CHECK_FALSE(w.has_grad());
  w.set_requires_grad(true);
  Tape tape;
  Var y = x * w;
  CHECK(contains(message_of([&] { y.set_requires_grad(false); }), "only a parameter can be frozen"));
  tape.backward(y);
  CHECK_EQ(w.grad().item(), 3);
}

TEST_CASE("one Var used twice gets the sum of both gradients") {
  const Var x = parameter({3}, {1, -2, 3});
  struct Row {
    const char* name;
    std::function<Var()> op;
    Floats gradient;
  };
  const Row rows[] = {
      {"x * x", [&] { return x * x; }, {2, -4, 6}},
      {"x + x", [&] { return x + x; }, {2, 2, 2}},
      {"x - x", [&] { return x - x; }, {0, 0, 0}},
      {"x / x", [&] { return x / x; }, {0, 0, 0}},
      {"concat(x, x)",
       [&] {
         return concat({x, x}, 0);
       },
       {2, 2, 2}},
      {"x x^T",
       [&] {
         return reshape(x, {3, 1}) * reshape(x, {1, 3});
       },
       {4, 4, 4}},
      {"where(1, x, x)",
       [&] {
         return where(Tensor::from_ints({3}, std::vector{1, 0, 1}), x, x);
       },
       {1, 1, 1}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    x.clear_grad();
    Tape tape;
    tape.backward(sum(row.op()));
    CHECK_EQ(x.grad().to_vector(), row.gradient);
  }
}

TEST_CASE("without a tape nothing is recorded and no gradient is wanted") {
  const Var x = parameter({2}, {1, 2});
  CHECK_FALSE(exp(x).requires_grad());
  Tape tape;
  exp(Var(Tensor::full({2}, 1)));
  CHECK_EQ(tape.entries(), 0);
  CHECK(exp(x).requires_grad());
  CHECK_EQ(tape.entries(), 1);
}

TEST_CASE("after a step the live bytes are what they were before") {
  const Var x(Tensor::full({4, 33}, 0.5f));
  Var weight(Tensor::full({33}, 2), true), bias(Tensor::zeros({33}), true);
  const auto step = [&] {
    Tape tape;
    tape.backward(mean(square(layer_norm(gelu(x * weight), weight, bias))));
  };
  step();  // the leaves' gradients are allocated here, once
  const Index before = live_bytes(), calls = memory::stats(Device::cpu).system_calls;
  for (int i = 0; i < 3; ++i) step();
  CHECK_EQ(live_bytes(), before);
  CHECK_EQ(memory::stats(Device::cpu).system_calls, calls);
  {
    Tape unused;
    exp(weight);
  }
  CHECK_EQ(live_bytes(), before);
}

TEST_CASE("entries free what they saved while the tape is replayed") {
  constexpr Index n = 1 << 16, bytes = n * 4;
  const Var x(Tensor::full({n}, 1.0f), true);
  const Tensor dy = Tensor::full({n}, 1);
  // Passes its input on, and on the way back notes how many bytes live.
  std::vector<Index> seen;
  const auto watch = [&seen](const Var& v) {
    return record("watch", v.value(), {&v}, [&seen, dx = v.gradient()](const Tensor& dy) {
      std::copy_n(dy.data(), dy.numel(), dx.out().p.as<float>());
      seen.push_back(live_bytes());
    });
  };
  Tape tape;
  Var y = x;
  for (int i = 0; i < 8; ++i) y = sin(watch(y));  // each saves its input
  tape.backward(y, dy);
  REQUIRE_EQ(seen.size(), 8);
  for (std::size_t i = 2; i < 7; ++i) CHECK_EQ(seen[i], seen[i - 1] - bytes);
  CHECK_EQ(seen[7], seen[6]);  // the last one also gives x its gradient, which stays
  CHECK_EQ(tape.entries(), 0);
}

TEST_CASE("the innermost open tape records, and the one before it goes on afterwards") {
  const Var x = parameter({1}, {2});
  Tape outer;
  CHECK_EQ(Tape::current(), &outer);
  const Var y = square(x);
  {
    Tape inner;
    CHECK_EQ(Tape::current(), &inner);
    inner.backward(scale(x, 10));
  }
  CHECK_EQ(Tape::current(), &outer);
  CHECK_EQ(x.grad().item(), 10);
  x.clear_grad();
  outer.backward(scale(y, 3));
  CHECK_EQ(x.grad().item(), 12);
}

TEST_CASE("backward of more than one number needs the gradient of the result") {
  const Var x = parameter({2}, {1, 2});
  Tape tape;
  const Var y = square(x);
  CHECK(contains(message_of([&] { tape.backward(y); }), "needs one number, got [2]"));
  CHECK(contains(message_of([&] { tape.backward(Var()); }), "needs one number, got nothing"));
  CHECK(contains(message_of([&] { tape.backward(y, Tensor::full({3}, 1)); }), "y is [2], its gradient [3]"));
  tape.backward(y, Tensor::from({2}, {10, 100}));
  CHECK_EQ(x.grad().to_vector(), Floats{20, 400});
}

TEST_CASE("a result that this tape has not computed is refused") {
  const Var x = parameter({1}, {2});
  Var y;
  {
    Tape other;
    y = square(x);
  }
  Tape tape;
  CHECK(contains(message_of([&] { tape.backward(y); }), "the result was not computed on this tape"));
  CHECK(contains(message_of([&] { tape.backward(Var(Tensor::full({1}, 1))); }),
                 "does not depend on anything that requires a gradient"));
  tape.backward(x);  // a leaf is its own result
  CHECK_EQ(x.grad().item(), 1);
}

TEST_CASE("results that the loss does not need cost nothing and get no gradient") {
  const Var x = parameter({1}, {2}), unused = parameter({1}, {5});
  Tape tape;
  log(unused);
  tape.backward(square(x));
  CHECK_FALSE(unused.has_grad());
  CHECK_EQ(x.grad().item(), 4);
}

TEST_CASE("gradcheck accepts right gradients and names the place of a wrong one") {
  const Var x(Tensor::from({2, 3}, {0.5f, -1, 2, 0.3f, 0.9f, -0.4f}), true), w(Tensor::full({3}, 1.5f), true);
  const auto right = [](const std::vector<Var>& v) { return softmax(tanh(v[0] * v[1]), 1); };
  const Gradcheck report = gradcheck(right, {x, w});
  CHECK_MESSAGE(report.ok, report.message);
  CHECK_LT(report.worst, 1e-3);
  CHECK_EQ(x.value().to_vector(), Floats{0.5f, -1, 2, 0.3f, 0.9f, -0.4f});
  CHECK_FALSE(x.has_grad());

  // x^2 whose gradient is wrong by a tenth in its last element.
  const auto wrong = [](const std::vector<Var>& v) {
    return record("wrong", square(v[0]).value(), {&v[0]}, [x = v[0]](const Tensor& dy) {
      const GradOut g = x.gradient().out();
      for (Index i = 0; i < dy.numel(); ++i)
        g.p[i] = 2 * x.value().data()[i] * dy.data()[i] * (i == dy.numel() - 1 ? 1.1f : 1.0f);
    });
  };
  const Gradcheck found = gradcheck(wrong, {x}, {.directions = 0});
  CHECK_FALSE(found.ok);
  CHECK_GT(found.worst, 0.03);
  CHECK(contains(found.message, "input 0 element 5: the gradient says"));
  CHECK_FALSE(gradcheck(wrong, {x}, {.coordinates = 0}).ok);

  const Var frozen(Tensor::full({2}, 1));
  CHECK(contains(message_of([&] { gradcheck(right, {frozen, frozen}); }), "no input requires a gradient"));
  CHECK(contains(message_of([&] { gradcheck([&](const std::vector<Var>&) { return frozen; }, {x}); }),
                 "the result depends on no input"));
}

}  // namespace flexformer
