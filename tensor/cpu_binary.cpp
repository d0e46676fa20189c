// Elementwise kernels of two inputs with broadcasting. The box of sizes and strides is first brought to its fewest axes
// (merge_axes): same shapes become one long row, a bias becomes rows of columns, a scalar one row with stride 0.
#include "tensor/cpu_sums.h"
#include "tensor/functors.h"

namespace flexformer::cpu {
namespace {

// The derivatives of a sum and a difference are constant: their ops save no operands, and a and b are null here.
template <class F>
constexpr bool reads_operands = !std::is_same_v<F, functors::Add> && !std::is_same_v<F, functors::Sub>;

// dy times the derivative to the first (or second) operand, m elements from i on. Own and Other say whether this and
// the other operand move along the row.
template <class F, bool First, bool Own, bool Other>
inline Vec slope(Vec dy, const float* a, const float* b, Index i, Index m) {
  Vec x{}, y{};
  if constexpr (reads_operands<F>) {
    x = load_operand < First ? Own : Other > (a, i, m);
    y = load_operand < First ? Other : Own > (b, i, m);
  }
  if constexpr (First)
    return chain(dy, F::da(x, y));
  else
    return chain(dy, F::db(x, y));
}

// One operand, never repeated: its gradient has the output's shape.
template <class F, bool First> void whole_gradient(GradOut out, const BinaryBwd& k, const Broadcast& s) {
  with_step((First ? s.b : s.a)[3], [&](auto other) {
    parallel_rows(s, 4, [out, dy = k.dy, pa = k.a, pb = k.b](Index at, Index a, Index b, Index n) {
      for_lanes(n, [&](Index i, Index m) {
        const Vec g = slope<F, First, true, decltype(other)::value>(load_up_to(dy + at + i, m), pa + a, pb + b, i, m);
        put(out, at + i, g, m);
      });
    });
  });
}

// The terms that are summed along one axis of the box. `rest` are the axes that tell the rows of terms apart, its a and
// b the strides of the operands.
template <bool First, bool Own, bool Other> struct SlopeTerms {
  Binary op;  // looked up for each vector: a sum for each op would take seconds to compile, and this is no hot path
  const float *dy, *a, *b;
  Broadcast rest;
  const Index* rest_dy;  // [4] strides of dy along the axes of rest
  const Index* along;    // [3] strides of dy, a and b along the summed axis

  auto operator()(Index o) const {
    Index at_dy = 0, at_a = 0, at_b = 0;
    for (int i = 3; i >= 0; --i) {
      if (rest.size[i] == 1) continue;
      const Index at = o % rest.size[i];
      o /= rest.size[i];
      at_dy += at * rest_dy[i];
      at_a += at * rest.a[i];
      at_b += at * rest.b[i];
    }
    return [op = op, dy = dy + at_dy, a = a + at_a, b = b + at_b, step_dy = along[0], step_a = along[1],
            step_b = along[2]](Index n, Index j, Index m) {
      Vec result{};
      with_functor(op, [&](auto f) {
        result = slope<decltype(f), First, Own, Other>(load_up_to(dy + n * step_dy + j, m), a + n * step_a,
                                                       b + n * step_b, j, m);
      });
      return result;
    };
  }
};

// One operand that was repeated along one or two axes (neighbours have been merged): the inner one is summed while the
// terms are computed, the outer one from what that left.
template <bool First> void summed_gradient(GradOut out, const BinaryBwd& k, const Broadcast& s) {
  const Index* own = First ? s.a : s.b;
  const auto repeated_before = [&](int i) {
    while (--i >= 0 && (s.size[i] == 1 || own[i] != 0)) continue;
    return i;
  };
  const int axis = repeated_before(4), second = repeated_before(axis);
  assert(axis >= 0 && (second < 0 || repeated_before(second) < 0));

  Broadcast rest = s;
  rest.size[axis] = rest.size[3] = 1;
  const Index n = s.size[axis], inner = axis == 3 ? 1 : s.size[3], outer = numel(rest);
  const Index dy[4] = {s.size[1] * s.size[2] * s.size[3], s.size[2] * s.size[3], s.size[3], 1};
  Tensor scratch;
  GradOut target = out;
  if (second >= 0) {
    scratch = Tensor::empty({outer * inner});
    target = {scratch.data(), false};
  }
  const Index along[3] = {dy[axis], s.a[axis], s.b[axis]};
  if (axis == 3) {
    const SlopeTerms<First, false, true> terms{k.op, k.dy, k.a, k.b, rest, dy, along};
    sum_rows(target, outer, n, 1.0f, terms);
  } else {
    with_step((First ? s.b : s.a)[3], [&](auto other) {
      const SlopeTerms<First, true, decltype(other)::value> terms{k.op, k.dy, k.a, k.b, rest, dy, along};
      sum_columns(target, outer, n, inner, 1.0f, terms);
    });
  }
  if (second < 0) return;
  const Index after = dy[second] / n;
  sum_axis(out, outer * inner / (s.size[second] * after), s.size[second], after, 1.0f,
           LoadTerms{scratch.data(), s.size[second], after});
}

template <class F, bool First> void gradient(GradOut out, const BinaryBwd& k, const Broadcast& s) {
  if (!out) return;
  const Index* own = First ? s.a : s.b;
  bool repeated = false;
  Index own_numel = 1;
  for (int i = 0; i < 4; ++i) {
    repeated = repeated || (s.size[i] != 1 && own[i] == 0);
    if (own[i] != 0) own_numel *= s.size[i];
  }
  if (numel(s) == 0) {
    if (!out.add) std::fill_n(out.p.as<float>(), own_numel, 0.0f);
  } else if (repeated) {
    summed_gradient<First>(out, k, s);
  } else {
    whole_gradient<F, First>(out, k, s);
  }
}

}  // namespace

void run(const BinaryFwd& k) {
  const Broadcast s = merge_axes(k.shape);
  if (numel(s) == 0) return;
  with_functor(k.op, [&](auto f) {
    using F = decltype(f);
    with_step(s.a[3], [&](auto a_moves) {
      with_step(s.b[3], [&](auto b_moves) {
        parallel_rows(s, 2, [k](Index at, Index a, Index b, Index n) {
          for_lanes(n, [&](Index i, Index m) {
            const Vec x = load_operand<decltype(a_moves)::value>(k.a + a, i, m);
            const Vec y = load_operand<decltype(b_moves)::value>(k.b + b, i, m);
            store_up_to(k.y + at + i, F::f(x, y), m);
          });
        });
      });
    });
  });
}

// The two gradients may be the same memory (x * x): the second pass then adds to what the first has written.
void run(const BinaryBwd& k) {
  const Broadcast s = numel(k.shape) == 0 ? k.shape : merge_axes(k.shape);
  with_functor(k.op, [&](auto f) {
    gradient<decltype(f), true>(k.da, k, s);
    gradient<decltype(f), false>(k.db, k, s);
  });
}

}  // namespace flexformer::cpu
