// Maximum and sum of exponentials of one row: what softmax, log-sum-exp and cross-entropy start from.
#pragma once
#include "tensor/cpu_loops.h"

namespace flexformer::cpu {

// The largest element; a NaN may or may not be it. -infinity for an empty row.
inline float row_max(const float* x, Index n) {
  const Vec lowest = splat(-HUGE_VALF);
  Vec best = lowest;
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) best = max(load(x + i), best);
  float top = max_lanes(best);
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// What is taken from a row before it goes into exp: its maximum, unless that is infinite. Then exp itself gives the
// zeros of a masked row (or the infinity) that -inf - -inf would turn into NaN.
inline float shift_for(float top) { return std::isinf(top) ? 0.0f : top; }

// Sum of exp(x - shift), in double precision; each exponential also goes to y unless that is null.
inline double sum_exp(float* y, const float* x, Index n, float shift) {
  DoubleSum sum;
  for_lanes(n, [&](Index i, Index m) {
    const Vec e = exp(load_up_to(x + i, m) - shift);
    if (y) store_up_to(y + i, e, m);
    sum.add(keep_first(e, m));
  });
  return sum.total();
}

}  // namespace flexformer::cpu
