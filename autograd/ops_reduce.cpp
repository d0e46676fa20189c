// Reductions. One over several axes is a chain of reductions over single axes, after neighbouring axes have been
// merged.
#include <cmath>

#include "autograd/op_util.h"

namespace flexformer {
namespace {

// Which axes are reduced; all if none are named.
std::vector<bool> reduced_axes(const char* op, const Shape& shape, const Axes& axes) {
  std::vector<bool> on(std::size_t(shape.rank()), axes.empty());
  for (int axis : axes) {
    const auto i = std::size_t(shape.normalise(op, axis));
    check(op, !on[i], "axis ", axis, " is repeated");
    on[i] = true;
  }
  return on;
}

// factor * sum over axes [from, to), which become size 1.
Var sum_group(const char* op, const Var& x, int from, int to, float factor) {
  const Shape& shape = x.shape();
  const Index outer = shape.numel(0, from), n = shape.numel(from, to), inner = shape.numel(to, shape.rank());
  Shape out = shape;
  for (int i = from; i < to; ++i) out = out.with(i, 1);
  Tensor y = Tensor::empty(out, x.dtype(), x.device());
  launch(x.device(),
         SumFwd{.y = {y.values()}, .x = x.value().values(), .outer = outer, .n = n, .inner = inner, .scale = factor});
  return record(op, y, {&x}, [dx = x.gradient(), outer, n, inner, factor](const Tensor& dy) {
    launch(dy.device(),
           SumBwd{.dx = dx.out(), .dy = dy.values(), .outer = outer, .n = n, .inner = inner, .scale = factor});
  });
}

Var sum_axes(const char* op, const Var& x, const Axes& axes, bool keep, bool mean) {
  check_input(op, "x", x);
  const std::vector<bool> on = reduced_axes(op, x.shape(), axes);
  const int rank = x.shape().rank();
  Var y = rank == 0 ? sum_group(op, x, 0, 0, 1) : x;
  Shape rest;
  for (int from = 0, to; from < rank; from = to) {
    for (to = from + 1; to < rank && on[std::size_t(to)] == on[std::size_t(from)];) ++to;
    for (int i = from; i < to; ++i)
      if (!on[std::size_t(i)] || keep) rest.append(on[std::size_t(i)] ? 1 : x.shape()[i]);
    if (!on[std::size_t(from)]) continue;
    const Index n = x.shape().numel(from, to);
    check(op, n > 0 || !mean, "the mean of nothing is undefined: shape ", x.shape());
    y = sum_group(op, y, from, to, mean ? 1.0f / float(n) : 1.0f);
  }
  return y.shape() == rest ? y : reshape(y, rest);
}

}  // namespace

Var sum(const Var& x, const Axes& axes, bool keep) { return sum_axes("sum", x, axes, keep, false); }
Var mean(const Var& x, const Axes& axes, bool keep) { return sum_axes("mean", x, axes, keep, true); }

Var variance(const Var& x, const Axes& axes, bool keep) {
  // Centred twice: what rounding left of a mean that is large beside the spread is in every difference.
  const auto centred = [&](const Var& v) { return sub(v, sum_axes("variance", v, axes, true, true)); };
  return sum_axes("variance", square(centred(centred(x))), axes, keep, true);
}

Var max(const Var& x, int axis, bool keep) {
  check_input("max", "x", x);
  const Split s = split("max", x.shape(), axis);
  check("max", s.n > 0, "the maximum of nothing is undefined: axis ", axis, " of shape ", x.shape());
  const Shape out = reduced(x.shape(), s.axis, keep);
  Tensor y = Tensor::empty(out, x.dtype(), x.device()), argmax = Tensor::empty(out, DType::i32, x.device());
  launch(x.device(), MaxFwd{.y = y.values(),
                            .argmax = argmax.ints(),
                            .x = x.value().values(),
                            .outer = s.outer,
                            .n = s.n,
                            .inner = s.inner});
  return record("max", y, {&x}, [dx = x.gradient(), argmax, s](const Tensor& dy) {
    launch(
        dy.device(),
        MaxBwd{
            .dx = dx.out(), .dy = dy.values(), .argmax = argmax.ints(), .outer = s.outer, .n = s.n, .inner = s.inner});
  });
}

Var cumsum(const Var& x, int axis) {
  check_input("cumsum", "x", x);
  const Split s = split("cumsum", x.shape(), axis);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  launch(
      x.device(),
      Cumsum{
          .y = {y.values()}, .x = x.value().values(), .outer = s.outer, .n = s.n, .inner = s.inner, .reverse = false});
  return record("cumsum", y, {&x}, [dx = x.gradient(), s](const Tensor& dy) {
    launch(dy.device(),
           Cumsum{.y = dx.out(), .x = dy.values(), .outer = s.outer, .n = s.n, .inner = s.inner, .reverse = true});
  });
}

namespace {

Var softmax_like(const char* op, const Var& x, int axis, bool log) {
  check_input(op, "x", x);
  const Split s = split(op, x.shape(), axis);
  Tensor y = Tensor::empty(x.shape(), DType::f32, x.device());
  launch(x.device(),
         SoftmaxFwd{.y = y.data(), .x = x.value().values(), .outer = s.outer, .n = s.n, .inner = s.inner, .log = log});
  return record(op, y, {&x}, [dx = x.gradient(), y, s, log](const Tensor& dy) {
    launch(
        dy.device(),
        SoftmaxBwd{
            .dx = dx.out(), .dy = dy.data(), .y = y.data(), .outer = s.outer, .n = s.n, .inner = s.inner, .log = log});
  });
}

}  // namespace

Var softmax(const Var& x, int axis) { return softmax_like("softmax", x, axis, false); }
Var log_softmax(const Var& x, int axis) { return softmax_like("log_softmax", x, axis, true); }

Var logsumexp(const Var& x, int axis, bool keep) {
  check_input("logsumexp", "x", x);
  const Split s = split("logsumexp", x.shape(), axis);
  Tensor y = Tensor::empty(reduced(x.shape(), s.axis, keep), DType::f32, x.device());
  launch(x.device(),
         LogSumExpFwd{.y = y.data(), .x = x.value().values(), .outer = s.outer, .n = s.n, .inner = s.inner});
  return record("logsumexp", y, {&x}, [x, y, s](const Tensor& dy) {
    launch(dy.device(), LogSumExpBwd{.dx = x.gradient().out(),
                                     .dy = dy.data(),
                                     .y = y.data(),
                                     .x = x.value().values(),
                                     .outer = s.outer,
                                     .n = s.n,
                                     .inner = s.inner});
  });
}

}  // namespace flexformer
