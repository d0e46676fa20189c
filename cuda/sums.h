// Sums over the middle axis of [outer, n, inner], of terms that are loaded or computed on the fly: SumFwd, gradients of
// broadcast operands and of norm parameters. n is cut in parts by its size alone and each part is summed in a fixed
// order, so the result is the same to the last bit however the blocks run.
//
// terms(o, k, j) is the term at (o, k, j), computed on the device.
#pragma once
#include "cuda/kernel.h"

namespace flexformer::cuda {

// Terms that are the elements of x themselves; T is float, bf16 or double.
template <class T> struct LoadTerms {
  const T* x;
  Index n, inner;
  using Term = std::conditional_t<std::is_same_v<T, double>, double, float>;
  __device__ Term operator()(Index o, Index k, Index j) const { return Term(x[(o * n + k) * inner + j]); }
};

// Device memory for `count` doubles until the end of the scope.
class Doubles {
 public:
  explicit Doubles(Index count) : memory_(Tensor::empty({2 * count}, DType::f32, Device::cuda)) {}
  double* data() { return reinterpret_cast<double*>(memory_.data()); }

 private:
  Tensor memory_;
};

// One block sums `part` terms of one outer index; the sum goes to partial, or to y where that is null.
template <class Terms>
__global__ void sum_row_parts(GradOut y, double* partial, Index outer, Index n, Index part, float scale, Terms terms) {
  const Index parts = n <= part ? 1 : (n + part - 1) / part;
  for (Index item = blockIdx.x; item < outer * parts; item += gridDim.x) {
    const Index o = item / parts, first = item % parts * part, last = first + part < n ? first + part : n;
    double sum = 0;
    for (Index k = first + threadIdx.x; k < last; k += blockDim.x) sum += double(terms(o, k, 0));
    sum = block_sum(sum);
    if (threadIdx.x != 0) continue;
    if (partial)
      partial[item] = sum;
    else
      put(y, o, float(double(scale) * sum));
  }
}

// y[o] = scale * sum_k terms(o, k, 0): the inner size is 1.
template <class Terms> void sum_rows(GradOut y, Index outer, Index n, float scale, const Terms& terms) {
  constexpr Index part = 16384;
  if (n <= part) {
    launch_kernel(for_rows(outer, n), sum_row_parts<Terms>, y, nullptr, outer, n, part, scale, terms);
    return;
  }
  const Index parts = (n + part - 1) / part;
  Doubles partial(outer * parts);
  launch_kernel(for_rows(outer * parts, part), sum_row_parts<Terms>, y, partial.data(), outer, n, part, scale, terms);
  launch_kernel(for_rows(outer, parts), sum_row_parts<LoadTerms<double>>, y, nullptr, outer, parts, parts, scale,
                LoadTerms<double>{partial.data(), parts, 1});
}

constexpr int kColumns = 32, kRows = 8;  // of the threads of a block that sums columns

// Threads side by side take neighbouring columns, threads above each other every kRows-th term of a part of kPart.
template <class Terms>
__global__ void sum_column_parts(GradOut y, Index outer, Index n, Index inner, Index part, float scale, Terms terms) {
  SHARED(float, sums, [kRows][kColumns]);
  const Index parts = n <= part ? 1 : (n + part - 1) / part, strips = (inner + kColumns - 1) / kColumns;
  const int column = threadIdx.x, row = threadIdx.y;
  for (Index item = blockIdx.x; item < outer * parts * strips; item += gridDim.x) {
    const Index j = item % strips * kColumns + column, op = item / strips;
    const Index o = op / parts, first = op % parts * part, last = first + part < n ? first + part : n;
    float sum = 0;
    if (j < inner)
      for (Index k = first + row; k < last; k += kRows) sum += terms(o, k, j);
    sums[row][column] = sum;
    __syncthreads();
    if (row == 0 && j < inner) {
      for (int other = 1; other < kRows; ++other) sum += sums[other][column];
      put(y, op * inner + j, scale * sum);
    }
    __syncthreads();  // before the next round writes sums
  }
}

// y[o,j] = scale * sum_k terms(o, k, j).
template <class Terms> void sum_columns(GradOut y, Index outer, Index n, Index inner, float scale, const Terms& terms) {
  constexpr Index part = 256;
  const Index parts = n <= part ? 1 : (n + part - 1) / part, strips = (inner + kColumns - 1) / kColumns;
  const LaunchShape shape{blocks_for(outer * parts * strips), dim3(kColumns, kRows)};
  if (parts == 1) {
    launch_kernel(shape, sum_column_parts<Terms>, y, outer, n, inner, part, scale, terms);
    return;
  }
  Tensor partial = Tensor::empty({outer, parts, inner}, DType::f32, Device::cuda);
  launch_kernel(shape, sum_column_parts<Terms>, GradOut{partial.data()}, outer, n, inner, part, 1.0f, terms);
  sum_columns(y, outer, parts, inner, scale, LoadTerms<float>{partial.data(), parts, inner});
}

template <class Terms> void sum_axis(GradOut y, Index outer, Index n, Index inner, float scale, const Terms& terms) {
  if (inner == 1)
    sum_rows(y, outer, n, scale, terms);
  else
    sum_columns(y, outer, n, inner, scale, terms);
}

}  // namespace flexformer::cuda
