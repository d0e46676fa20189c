// Maximum and sum of exponentials of one row by one block: what softmax, log-sum-exp and cross-entropy start from.
#pragma once
#include "cuda/kernel.h"

namespace flexformer::cuda {

// What is taken from a row before it goes into exp: its maximum, unless that is infinite. Then exp itself gives the
// zeros of a masked row (or the infinity) that -inf - -inf would turn into NaN.
__device__ inline float shift_for(float top) { return std::isinf(top) ? 0.0f : top; }

// The largest element; a NaN may or may not be it. -infinity for an empty row.
template <class T> __device__ float row_max(const T* x, Index n) {
  float top = -INFINITY;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) top = Max::combine(float(x[i]), top);
  return block_max(top);
}

// Sum of exp(x - shift), in double precision.
template <class T> __device__ double sum_exp(const T* x, Index n, float shift) {
  double sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += double(std::exp(float(x[i]) - shift));
  return block_sum(sum);
}

// p_v = exp(x_v - shift) * factor for a row of logits. exp(x - lse) will do while lse has the bits for it: its rounding
// error is a relative error of p, below 1e-6 up to 16. Beyond, the sum is made again.
struct RowSoftmax {
  float shift, factor;
};
template <class T> __device__ RowSoftmax softmax_of(const T* x, Index V, float lse) {
  if (std::fabs(lse) <= 16) return {lse, 1.0f};
  const float shift = shift_for(row_max(x, V));
  return {shift, float(1 / sum_exp(x, V, shift))};
}

}  // namespace flexformer::cuda
