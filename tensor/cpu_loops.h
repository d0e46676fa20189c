// Loops that the CPU kernels share. A loop body is written once, for `m` neighbouring elements from `i` on: m is kLanes
// but for the end of a row. Bodies are copied into each piece of work, so that what they captured stays in registers.
#pragma once
#include <cassert>
#include <type_traits>

#include "tensor/broadcast.h"
#include "tensor/parallel.h"
#include "tensor/simd.h"

namespace flexformer::cpu {

// Sums floats in double precision, each lane by itself. Two halves as wide as the processor's registers: one twice as
// wide would be kept in memory.
class DoubleSum {
 public:
  void add(Vec v) {
    const Wide wide = widen(v);
    low_ += wide.low;
    high_ += wide.high;
  }
  void add_square(Vec v) {
    const Wide wide = widen(v);
    low_ += wide.low * wide.low;
    high_ += wide.high * wide.high;
  }
  double total() const {
    double sum = 0;
    for (int i = 0; i < kLanes / 2; ++i) sum += low_[i] + high_[i];
    return sum;
  }
  // Each lane's sum, as a float.
  Vec lanes() const {
    Doubles doubles;
    std::memcpy(&doubles, &low_, sizeof low_);
    std::memcpy(reinterpret_cast<char*>(&doubles) + sizeof low_, &high_, sizeof high_);
    return __builtin_convertvector(doubles, Vec);
  }

 private:
  typedef double Doubles __attribute__((vector_size(kLanes * 8)));
  typedef double Half __attribute__((vector_size(kLanes * 4)));
  struct Wide {
    Half low, high;
  };
  static Wide widen(Vec v) {
    const Doubles doubles = __builtin_convertvector(v, Doubles);
    Wide wide;
    std::memcpy(&wide, &doubles, sizeof wide);
    return wide;
  }
  Half low_{}, high_{};
};

// v with lanes m and above set to 0.
inline Vec keep_first(Vec v, Index m) {
  for (Index lane = m; lane < kLanes; ++lane) v[lane] = 0;
  return v;
}

// Writes m elements of a gradient: overwrites or adds, as the flag says.
inline void put(GradOut y, Index i, Vec v, Index m) {
  if (y.add) v += load_up_to(y.p + i, m);
  store_up_to(y.p + i, v, m);
}

// dy times a derivative; exactly 0 where dy is, even if the derivative is infinite.
inline Vec chain(Vec dy, Vec slope) { return select(dy == 0.0f, Vec{}, dy * slope); }

// body(i, m) over one row of n elements.
template <class Body> inline void for_lanes(Index n, Body&& body) {
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Index(kLanes));
  if (i < n) body(i, n - i);
}

// body(i, m) over n elements in parallel; `cost` is the work per element in additions or so.
template <class Body> void parallel_lanes(Index n, Index cost, const Body& body) {
  parallel_for(n, (grain_for(cost) + 63) / 64 * 64, [&](Index begin, Index end) {
    const Body local = body;
    for_lanes(end - begin, [&](Index i, Index m) { local(begin + i, m); });
  });
}

// Walks the rows (all axes but the last) of a box and keeps both offsets.
class RowWalk {
 public:
  RowWalk(const Broadcast& shape, Index row) : s(shape) {
    for (int axis = 2; axis >= 0; --axis) {
      i[axis] = row % s.size[axis];
      row /= s.size[axis];
      a += i[axis] * s.a[axis];
      b += i[axis] * s.b[axis];
    }
  }
  void next() {
    for (int axis = 2; axis >= 0; --axis) {
      a += s.a[axis];
      b += s.b[axis];
      if (++i[axis] < s.size[axis]) return;
      a -= s.size[axis] * s.a[axis];
      b -= s.size[axis] * s.b[axis];
      i[axis] = 0;
    }
  }
  Index a = 0, b = 0;

 private:
  const Broadcast s;
  Index i[3];
};

// body(offset in the dense output, in a, in b, count) over stretches of rows, in parallel; a and b move on by the
// strides of the last axis within a stretch.
template <class Body> void parallel_rows(const Broadcast& s, Index cost, const Body& body) {
  constexpr Index stretch = 16384;
  const Index n = s.size[3], rows = s.size[0] * s.size[1] * s.size[2];
  if (n > stretch) {
    const Index per_row = (n + stretch - 1) / stretch;
    parallel_for(rows * per_row, 1, [&](Index begin, Index) {
      const Body local = body;
      const Index row = begin / per_row, from = begin % per_row * stretch;
      const RowWalk walk(s, row);
      local(row * n + from, walk.a + from * s.a[3], walk.b + from * s.b[3], std::min(stretch, n - from));
    });
    return;
  }
  parallel_for(rows, grain_for(n * cost), [&](Index begin, Index end) {
    const Body local = body;
    RowWalk walk(s, begin);
    for (Index row = begin; row < end; ++row, walk.next()) local(row * n, walk.a, walk.b, n);
  });
}

// m elements of an operand whose stride along the row is 1 (Step) or 0.
template <bool Step> inline Vec load_operand(const float* p, Index i, Index m) {
  if constexpr (Step)
    return load_up_to(p + i, m);
  else
    return splat(*p);
}

// Calls g with std::true_type for a stride of 1, with std::false_type for 0.
template <class G> void with_step(Index stride, G&& g) {
  assert(stride == 0 || stride == 1);
  if (stride) return g(std::true_type{});
  return g(std::false_type{});
}

}  // namespace flexformer::cpu
