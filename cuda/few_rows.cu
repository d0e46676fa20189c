// Products of few rows with weights of any format. They wait for memory, so each number of W is read once for up to
// eight rows of x: by a warp for each row of floats, by a thread for each row of a panel, whose columns lie side by
// side.
#include "cuda/kernel.h"

namespace flexformer::cuda {
namespace {

constexpr int kRows = 8;

__device__ void finish(const FewRows& k, Index r, Index o, float sum) {
  if (k.W.scale) sum *= k.W.scale[o];
  if (k.bias) sum += k.bias[o];
  if (k.residual.p) sum += read(k.residual, r * k.O + o);
  write(k.y, r * k.O + o, sum);
}

__global__ void few_rows_of_floats(FewRows k) {
  const auto* W = reinterpret_cast<const float*>(k.W.p);
  const int lane = threadIdx.x % kWarp;
  const Index warps = thread_count() / kWarp, groups = (k.R + kRows - 1) / kRows;
  for (Index item = thread_number() / kWarp; item < k.O * groups; item += warps) {
    const Index o = item / groups, first = item % groups * kRows, left = k.R - first,
                rows = left < kRows ? left : kRows;
    float sum[kRows] = {};
    for (Index i = lane; i < k.I; i += kWarp) {
      const float w = W[o * k.I + i];
      for (int r = 0; r < kRows; ++r)
        if (r < rows) sum[r] += w * read(k.x, (first + r) * k.I + i);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int distance = kWarp / 2; distance > 0; distance /= 2) sum[r] += opposite(sum[r], distance);
      if (lane == 0 && r < rows) finish(k, first + r, o, sum[r]);
    }
  }
}

__global__ void few_rows_of_panels(FewRows k) {
  WeightsIn numbers = k.W;
  numbers.scale = nullptr;  // finish() multiplies with it
  const Index groups = (k.R + kRows - 1) / kRows;
  for (Index item = thread_number(); item < k.O * groups; item += thread_count()) {
    const Index o = item % k.O, first = item / k.O * kRows, left = k.R - first, rows = left < kRows ? left : kRows;
    float sum[kRows] = {};
    for (Index i = 0; i < k.I; ++i) {
      const float w = numbers.number(o, i, k.I);
      for (int r = 0; r < kRows; ++r)
        if (r < rows) sum[r] += w * read(k.x, (first + r) * k.I + i);
    }
    for (int r = 0; r < rows; ++r) finish(k, first + r, o, sum[r]);
  }
}

}  // namespace

void run(const FewRows& k) {
  const Index groups = (k.R + kRows - 1) / kRows;
  if (k.R == 0 || k.O == 0) return;
  if (k.W.format == WeightFormat::f32)
    launch_kernel(for_elements(k.O * groups * kWarp), few_rows_of_floats, k);
  else
    launch_kernel(for_elements(k.O * groups), few_rows_of_panels, k);
}

}  // namespace flexformer::cuda
