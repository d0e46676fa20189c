// Elementwise kernels of two inputs with broadcasting. The box of sizes and strides is first brought to its fewest axes
// (merge_axes): same shapes become one long row, a bias becomes rows of columns, a scalar one row with stride 0.
// Operands may have different formats, a parameter and activations.
#include "cuda/box.h"
#include "cuda/sums.h"
#include "tensor/functors.h"

namespace flexformer::cuda {
namespace {

// The derivatives of a sum and a difference are constant: their ops save no operands, and a and b are null here.
template <class F>
constexpr bool reads_operands = !std::is_same_v<F, functors::Add> && !std::is_same_v<F, functors::Sub>;

template <class F, class Int> __global__ void binary_fwd(BinaryFwd k, Index n) {
  for (Index i = thread_number(); i < n; i += thread_count()) {
    const Offsets at = offsets_at(k.shape, Int(i));
    write(k.y, i, F::f(read(k.a, at.a), read(k.b, at.b)));
  }
}

// dy times the derivative to the first (or second) operand.
template <class F, bool First> __device__ float slope(float dy, ValuesIn a, Index at_a, ValuesIn b, Index at_b) {
  float x = 0, y = 0;
  if constexpr (reads_operands<F>) x = read(a, at_a), y = read(b, at_b);
  return chain(dy, First ? F::da(x, y) : F::db(x, y));
}

// An operand that was never repeated: its gradient has the output's shape.
template <class F, bool First, class Int> __global__ void whole_gradient(GradOut out, BinaryBwd k, Index n) {
  for (Index i = thread_number(); i < n; i += thread_count()) {
    const Offsets at = offsets_at(k.shape, Int(i));
    put(out, i, slope<F, First>(read(k.dy, i), k.a, at.a, k.b, at.b));
  }
}

// The terms that are summed along one axis of the box. `rest` are the axes that tell the rows of terms apart: its a and
// b are the operands' strides; those of dy come by themselves.
template <class F, bool First> struct SlopeTerms {
  ValuesIn dy, a, b;
  Broadcast rest;
  Index rest_dy[4];                  // strides of dy along the axes of rest
  Index step_dy, step_a, step_b;     // along the summed axis
  Index inner_dy, inner_a, inner_b;  // along the last axis, where that is not the summed one

  __device__ float operator()(Index o, Index k, Index j) const {
    Index at_dy = k * step_dy + j * inner_dy, at_a = k * step_a + j * inner_a, at_b = k * step_b + j * inner_b;
    for (int axis = 3; axis >= 0; --axis) {
      if (rest.size[axis] == 1) continue;
      const Index index = o % rest.size[axis];
      o /= rest.size[axis];
      at_dy += index * rest_dy[axis];
      at_a += index * rest.a[axis];
      at_b += index * rest.b[axis];
    }
    return slope<F, First>(read(dy, at_dy), a, at_a, b, at_b);
  }
};

// An operand that was repeated along one or two axes (neighbours have been merged): the inner one is summed while the
// terms are computed, the outer one from what that left.
template <class F, bool First> void summed_gradient(GradOut out, const BinaryBwd& k, const Broadcast& s) {
  const Index* own = First ? s.a : s.b;
  const auto repeated_before = [&](int axis) {
    while (--axis >= 0 && (s.size[axis] == 1 || own[axis] != 0)) continue;
    return axis;
  };
  const int axis = repeated_before(4), second = repeated_before(axis);
  Broadcast rest = s;
  rest.size[axis] = rest.size[3] = 1;
  const Index n = s.size[axis], inner = axis == 3 ? 1 : s.size[3], outer = numel(rest);
  const Index dy[4] = {s.size[1] * s.size[2] * s.size[3], s.size[2] * s.size[3], s.size[3], 1};
  Tensor scratch;
  GradOut target = out;
  if (second >= 0) {
    scratch = Tensor::empty({outer * inner}, DType::f32, Device::cuda);
    target = {scratch.data(), false};
  }
  sum_axis(target, outer, n, inner, 1.0f,
           SlopeTerms<F, First>{.dy = k.dy,
                                .a = k.a,
                                .b = k.b,
                                .rest = rest,
                                .rest_dy = {dy[0], dy[1], dy[2], dy[3]},
                                .step_dy = dy[axis],
                                .step_a = s.a[axis],
                                .step_b = s.b[axis],
                                .inner_dy = 1,
                                .inner_a = s.a[3],
                                .inner_b = s.b[3]});
  if (second < 0) return;
  const Index after = dy[second] / n;
  sum_axis(out, outer * inner / (s.size[second] * after), s.size[second], after, 1.0f,
           LoadTerms<float>{scratch.data(), s.size[second], after});
}

template <class F, bool First> void gradient(GradOut out, const BinaryBwd& k) {
  if (!out) return;
  const Broadcast& s = k.shape;
  const Index* own = First ? s.a : s.b;
  bool repeated = false;
  Index own_numel = 1;
  for (int i = 0; i < 4; ++i) {
    repeated = repeated || (s.size[i] != 1 && own[i] == 0);
    if (own[i] != 0) own_numel *= s.size[i];
  }
  const Index n = numel(s);
  if (n == 0) {
    if (!out.add) run(SumFwd{.y = out, .x = nullptr, .outer = own_numel, .n = 0, .inner = 1, .scale = 1});
  } else if (repeated) {
    summed_gradient<F, First>(out, k, s);
  } else {
    with_index_type(
        n, [&](auto index) { launch_kernel(for_elements(n), whole_gradient<F, First, decltype(index)>, out, k, n); });
  }
}

}  // namespace

void run(const BinaryFwd& k) {
  const Index n = numel(k.shape);
  if (n == 0) return;
  BinaryFwd merged = k;
  merged.shape = merge_axes(k.shape);
  with_functor(k.op, [&](auto f) {
    with_index_type(
        n, [&](auto index) { launch_kernel(for_elements(n), binary_fwd<decltype(f), decltype(index)>, merged, n); });
  });
}

// The two gradients may be the same memory (x * x): the second pass then adds to what the first has written.
void run(const BinaryBwd& k) {
  BinaryBwd merged = k;
  if (numel(k.shape) > 0) merged.shape = merge_axes(k.shape);
  with_functor(k.op, [&](auto f) {
    gradient<decltype(f), true>(k.da, merged);
    gradient<decltype(f), false>(k.db, merged);
  });
}

}  // namespace flexformer::cuda
