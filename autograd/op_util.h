// What the ops share: checks of their inputs, the split of a shape around an axis, and broadcasting.
#pragma once
#include <algorithm>

#include "autograd/ops.h"
#include "tensor/functors.h"

namespace flexformer {

inline void check_input(CheckedOp op, const char* name, const Var& x) {
  check(op, x.defined(), name, " is undefined");
  check(op, x.dtype() == DType::f32 || (x.dtype() == DType::bf16 && x.device() == Device::cuda), name, " holds ",
        name_of(x.dtype()), ", this op needs f32 (or, on a GPU, bf16)");
}
inline void check_same_device(CheckedOp op, Device a, Device b) {
  check(op, a == b, "inputs lie on ", name_of(a), " and ", name_of(b), "; move them to one device");
}
// What an op of two operands gives: activations if either is.
inline DType common_dtype(const Var& a, const Var& b) {
  return a.dtype() == DType::bf16 || b.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
}
inline void check_ints(CheckedOp op, const char* name, const Tensor& x) {
  check(op, x.defined(), name, " is undefined");
  check(op, x.dtype() == DType::i32, name, " holds ", name_of(x.dtype()), ", this op needs i32");
}

// A shape seen from one axis: [outer, n, inner].
struct Split {
  int axis;
  Index outer, n, inner;
};
inline Split split(CheckedOp op, const Shape& shape, int axis) {
  axis = shape.normalise(op, axis);
  return {axis, shape.numel(0, axis), shape[axis], shape.numel(axis + 1, shape.rank())};
}

// The shape without one axis, or with size 1 there.
inline Shape reduced(const Shape& shape, int axis, bool keep) {
  Shape out;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis)
      out.append(shape[i]);
    else if (keep)
      out.append(1);
  return out;
}

// The shape that two shapes broadcast to. Throws Error when they do not.
Shape broadcast_shape(CheckedOp op, const Shape& a, const Shape& b);
// The box in which operands of these shapes are read; each must broadcast to `out`.
Broadcast broadcast_box(const Shape& out, const Shape& a, const Shape& b);

// Writes zeros to a gradient of n elements that will be added to: the sum of no terms.
inline void clear_gradient(Device device, GradOut g, Index n) {
  launch(device, SumFwd{.y = g, .x = nullptr, .outer = n, .n = 0, .inner = 1, .scale = 1});
}

// g (+)= dy for n elements, which may be of different formats.
inline void pass_gradient(Device device, GradOut g, ValuesIn dy, Index n) {
  launch(device, SumFwd{.y = g, .x = dy, .outer = n, .n = 1, .inner = 1, .scale = 1});
}

// to (+)= dy * grad, grad [outer, dy's elements, ..]: a gradient that was made with the value, for a dy of ones.
inline void pass_scaled(const Gradient& to, const Tensor& grad, const Tensor& dy, Index outer) {
  const GradOut out = to.out();
  if (!out) return;
  const Shape box = {outer, dy.numel(), grad.numel() / std::max<Index>(1, outer * dy.numel())};
  launch(dy.device(), BinaryBwd{.da = out,
                                .db = {},
                                .dy = grad.values(),
                                .a = grad.values(),
                                .b = dy.values(),
                                .shape = broadcast_box(box, box, {1, dy.numel(), 1}),
                                .op = Binary::mul});
}

// c [M,N] (+)= a b for a [M,K] and b [K,N], or where transposed as [K,M] and [N,K]; precision as it is set.
Gemm product(GradOut c, ValuesIn a, bool a_transposed, ValuesIn b, bool b_transposed, Index M, Index N, Index K);

// Rows, outputs and inputs of y = x W^T + b. Throws Error if the shapes do not fit.
struct LinearSizes {
  Index R, O, I;
};
LinearSizes linear_sizes(CheckedOp op, const Var& x, const Var& W, const Var& b);

}  // namespace flexformer
