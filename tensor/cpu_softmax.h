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

// p_v = exp(x_v - shift) * factor for a row of logits. exp(x - lse) will do while lse has the bits for it: its rounding
// error is a relative error of p, below 1e-6 up to 16. Beyond, the sum is made again.
struct Softmax {
  float shift, factor;
};
inline Softmax softmax_of(const float* x, Index V, float lse) {
  if (std::fabs(lse) <= 16) return {lse, 1.0f};
  const float shift = shift_for(row_max(x, V));
  return {shift, float(1 / sum_exp(nullptr, x, V, shift))};
}

}  // namespace flexformer::cpu
