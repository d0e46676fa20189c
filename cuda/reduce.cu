// Sum, maximum and running sum over the middle axis of [outer, n, inner].
#include "cuda/sums.h"

namespace flexformer::cuda {
namespace {

// y = scale * x, or zeros where x is null.
__global__ void scaled_copy(GradOut y, ValuesIn x, Index n, float scale) {
  for (Index i = thread_number(); i < n; i += thread_count()) put(y, i, x.p ? scale * read(x, i) : 0.0f);
}

__global__ void sum_bwd(SumBwd k) {
  for (Index i = thread_number(); i < k.outer * k.n * k.inner; i += thread_count())
    put(k.dx, i, k.scale * read(k.dy, i / (k.n * k.inner) * k.inner + i % k.inner));
}

// The largest element so far and where it was.
struct Best {
  float value;
  std::int32_t where;
};
__device__ Best opposite(Best b, int distance) {
  return {cuda::opposite(b.value, distance), cuda::opposite(b.where, distance)};
}
// A NaN beats every number; between equals (and between NaN) the first wins.
struct TakeBest {
  __device__ static Best combine(Best a, Best b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return a.value > b.value ? a : b;
    return a.where < b.where ? a : b;
  }
};

// A column by one thread.
__global__ void max_columns(MaxFwd k) {
  for (Index i = thread_number(); i < k.outer * k.inner; i += thread_count()) {
    const ValuesIn x = k.x.from(i / k.inner * k.n * k.inner + i % k.inner);
    Best best{read(x, 0), 0};
    for (Index at = 1; at < k.n; ++at) best = TakeBest::combine(best, Best{read(x, at * k.inner), std::int32_t(at)});
    write(k.y, i, best.value);
    k.argmax[i] = best.where;
  }
}

// A row (inner = 1) by one block.
__global__ void max_rows(MaxFwd k) {
  const Best idle{-INFINITY, 0x7FFFFFFF};
  for (Index o = blockIdx.x; o < k.outer; o += gridDim.x) {
    Best best = idle;
    for (Index at = threadIdx.x; at < k.n; at += blockDim.x)
      best = TakeBest::combine(best, Best{read(k.x, o * k.n + at), std::int32_t(at)});
    best = block_combine<TakeBest>(best, idle);
    if (threadIdx.x != 0) continue;
    write(k.y, o, best.value);
    k.argmax[o] = best.where;
  }
}

__global__ void max_bwd(MaxBwd k) {
  for (Index i = thread_number(); i < k.outer * k.n * k.inner; i += thread_count()) {
    const Index column = i / (k.n * k.inner) * k.inner + i % k.inner;
    put(k.dx, i, k.argmax[column] == i / k.inner % k.n ? read(k.dy, column) : 0.0f);
  }
}

__global__ void cumsum_columns(Cumsum k) {
  for (Index i = thread_number(); i < k.outer * k.inner; i += thread_count()) {
    double sum = 0;
    for (Index at = 0; at < k.n; ++at) {
      const Index row = k.reverse ? k.n - 1 - at : at, place = (i / k.inner * k.n + row) * k.inner + i % k.inner;
      sum += double(read(k.x, place));
      put(k.y, place, float(sum));
    }
  }
}

}  // namespace

void run(const SumFwd& k) {
  if (!k.y) return;
  const Index outputs = k.outer * k.inner;
  if (k.n <= 1)  // one term, or none
    launch_kernel(for_elements(outputs), scaled_copy, k.y, k.n == 0 ? ValuesIn() : k.x, outputs, k.scale);
  else
    with_type(k.x.dtype, [&](auto t) {
      sum_axis(k.y, k.outer, k.n, k.inner, k.scale, LoadTerms<decltype(t)>{k.x.as<decltype(t)>(), k.n, k.inner});
    });
}
void run(const SumBwd& k) {
  if (k.dx) launch_kernel(for_elements(k.outer * k.n * k.inner), sum_bwd, k);
}
void run(const MaxFwd& k) {
  if (k.inner == 1)
    launch_kernel(for_rows(k.outer, k.n), max_rows, k);
  else
    launch_kernel(for_elements(k.outer * k.inner), max_columns, k);
}
void run(const MaxBwd& k) {
  if (k.dx) launch_kernel(for_elements(k.outer * k.n * k.inner), max_bwd, k);
}
void run(const Cumsum& k) {
  if (k.y) launch_kernel(for_elements(k.outer * k.inner), cumsum_columns, k);
}

}  // namespace flexformer::cuda
