// What kernels share. Elements are walked by a grid-stride loop: any number of blocks covers any number of elements,
//
//   for (Index i = thread_number(); i < n; i += thread_count()) ...
//
// and rows by one block each in the same manner. Activations are of type T, float or bf16 (with_type); whatever is
// computed from them is float. Sums within a block have a fixed order, so that a result depends on the sizes alone,
// never on the order in which blocks and warps run; no kernel adds floats atomically.
#pragma once
#include <algorithm>

#include "cuda/device.h"
#include "tensor/device_memory.h"
#include "tensor/kernels.h"

namespace flexformer::cuda {

constexpr int kThreads = 256;  // of a block that works on elements
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

inline unsigned blocks_for(Index items) { return unsigned(std::clamp<Index>(items, 1, device::block_limit)); }
// Enough blocks of kThreads for n elements.
inline LaunchShape for_elements(Index n, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {blocks_for((n + kThreads - 1) / kThreads), kThreads, 0, stream(), file, line};
}
// One block a row, as wide as the row is long: a warp at least, so that block_sum works.
inline LaunchShape for_rows(Index rows, Index length, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  unsigned threads = kWarp;
  while (threads < kThreads && threads * 4 < length) threads *= 2;
  return {blocks_for(rows), threads, 0, stream(), file, line};
}

__device__ inline Index thread_number() { return Index(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline Index thread_count() { return Index(gridDim.x) * blockDim.x; }

// Calls f with a value of the type that activations have.
template <class F> void with_type(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(bf16());
  f(float());
}

// One element of either format, where that is not worth a kernel of its own; all threads take the same branch.
__device__ inline float read(ValuesIn x, Index i) {
  return x.dtype == DType::bf16 ? float(x.as<bf16>()[i]) : x.as<float>()[i];
}
__device__ inline void write(ValuesOut y, Index i, float value) {
  if (y.dtype == DType::bf16)
    y.as<bf16>()[i] = bf16(value);
  else
    y.as<float>()[i] = value;
}
// Writes one element of a gradient: overwrites or adds, as the flag says.
__device__ inline void put(GradOut y, Index i, float value) { write(y.p, i, y.add ? read(y.p, i) + value : value); }

// dy times a derivative; exactly 0 where dy is, even if the derivative is infinite.
__device__ inline float chain(float dy, float slope) { return dy == 0.0f ? 0.0f : dy * slope; }

struct Add {
  template <class T> __device__ static T combine(T a, T b) { return a + b; }
};
struct Max {  // a NaN may or may not win
  template <class T> __device__ static T combine(T a, T b) { return a > b ? a : b; }
};

// The value that the lane at the other side of `distance` holds.
template <class T> __device__ T opposite(T value, int distance) { return __shfl_xor_sync(kAllLanes, value, distance); }

// What all threads of the block hold, combined; every thread gets the result. Lanes fold in halves, then the first
// warp folds the warps' results. All threads of the block must call it; `idle` changes nothing when combined.
template <class Op, class T> __device__ T block_combine(T value, T idle) {
  SHARED(T, of_warp, [kWarp]);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  for (int distance = kWarp / 2; distance > 0; distance /= 2) value = Op::combine(value, opposite(value, distance));
  if (warps == 1) return value;
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = lane < warps ? of_warp[lane] : idle;
  for (int distance = kWarp / 2; distance > 0; distance /= 2) value = Op::combine(value, opposite(value, distance));
  __syncthreads();  // before the next call writes of_warp
  return value;
}
template <class T> __device__ T block_sum(T value) { return block_combine<Add>(value, T(0)); }
__device__ inline float block_max(float value) { return block_combine<Max>(value, -INFINITY); }

}  // namespace flexformer::cuda
