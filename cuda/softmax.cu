// Softmax, log-softmax and log-sum-exp over the middle axis of [outer, n, inner], each written twice: a block for each
// contiguous row (inner = 1), and a thread for each column. A NaN makes its whole row NaN: it reaches the sum of
// exponentials even where the maximum has overlooked it.
#include "cuda/softmax.h"

namespace flexformer::cuda {
namespace {

template <class T> __global__ void softmax_rows(SoftmaxFwd k) {
  for (Index o = blockIdx.x; o < k.outer; o += gridDim.x) {
    const T* x = k.x.as<T>() + o * k.n;
    const float shift = shift_for(row_max(x, k.n));
    const double sum = sum_exp(x, k.n, shift);
    const float log_sum = sum == 0 ? 0.0f : float(std::log(sum)), factor = sum == 0 ? 0.0f : float(1 / sum);
    for (Index i = threadIdx.x; i < k.n; i += blockDim.x)
      k.y[o * k.n + i] = k.log ? (float(x[i]) - shift) - log_sum : std::exp(float(x[i]) - shift) * factor;
  }
}

// The shift and the sum of exponentials of the column that starts at x.
struct ColumnSum {
  float shift;
  double sum;
};
template <class T> __device__ ColumnSum column_sum(const T* x, Index n, Index inner) {
  float top = -INFINITY;
  for (Index i = 0; i < n; ++i) top = Max::combine(float(x[i * inner]), top);
  const float shift = shift_for(top);
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += double(std::exp(float(x[i * inner]) - shift));
  return {shift, sum};
}

// Where column c of [outer, n, inner] starts.
__device__ Index column_start(Index c, Index n, Index inner) { return c / inner * n * inner + c % inner; }

template <class T> __global__ void softmax_columns(SoftmaxFwd k) {
  const T* x = k.x.as<T>();
  for (Index c = thread_number(); c < k.outer * k.inner; c += thread_count()) {
    const Index start = column_start(c, k.n, k.inner);
    const auto [shift, sum] = column_sum(x + start, k.n, k.inner);
    const float log_sum = sum == 0 ? 0.0f : float(std::log(sum)), factor = sum == 0 ? 0.0f : float(1 / sum);
    for (Index i = 0; i < k.n; ++i) {
      const Index at = start + i * k.inner;
      k.y[at] = k.log ? (float(x[at]) - shift) - log_sum : std::exp(float(x[at]) - shift) * factor;
    }
  }
}

// Softmax: dx = y (dy - sum dy y). Log-softmax: dx = dy - exp(y) sum dy, and 0 in a row that is -infinity throughout.
__device__ float term(const SoftmaxBwd& k, Index at) { return k.log ? k.dy[at] : k.dy[at] * k.y[at]; }
__device__ float gradient(const SoftmaxBwd& k, Index at, float sum, bool masked) {
  if (masked) return 0.0f;
  return k.log ? k.dy[at] - std::exp(k.y[at]) * sum : k.y[at] * (k.dy[at] - sum);
}

__global__ void softmax_rows_bwd(SoftmaxBwd k) {
  for (Index o = blockIdx.x; o < k.outer; o += gridDim.x) {
    float sum = 0;
    for (Index i = threadIdx.x; i < k.n; i += blockDim.x) sum += term(k, o * k.n + i);
    sum = block_sum(sum);
    const bool masked = k.log && sum_exp(k.y + o * k.n, k.n, 0.0f) == 0;
    for (Index i = threadIdx.x; i < k.n; i += blockDim.x) put(k.dx, o * k.n + i, gradient(k, o * k.n + i, sum, masked));
  }
}

__global__ void softmax_columns_bwd(SoftmaxBwd k) {
  for (Index c = thread_number(); c < k.outer * k.inner; c += thread_count()) {
    const Index start = column_start(c, k.n, k.inner);
    double total = 0;
    float mass = 0;
    for (Index i = 0; i < k.n; ++i) {
      total += double(term(k, start + i * k.inner));
      if (k.log) mass += std::exp(k.y[start + i * k.inner]);
    }
    for (Index i = 0; i < k.n; ++i) {
      const Index at = start + i * k.inner;
      put(k.dx, at, gradient(k, at, float(total), k.log && mass == 0));
    }
  }
}

template <class T> __global__ void log_sum_exp_rows(LogSumExpFwd k) {
  for (Index o = blockIdx.x; o < k.outer; o += gridDim.x) {
    const T* x = k.x.as<T>() + o * k.n;
    const float shift = shift_for(row_max(x, k.n));
    const double sum = sum_exp(x, k.n, shift);
    if (threadIdx.x == 0) k.y[o] = float(double(shift) + std::log(sum));
  }
}

template <class T> __global__ void log_sum_exp_columns(LogSumExpFwd k) {
  for (Index c = thread_number(); c < k.outer * k.inner; c += thread_count()) {
    const auto [shift, sum] = column_sum(k.x.as<T>() + column_start(c, k.n, k.inner), k.n, k.inner);
    k.y[c] = float(double(shift) + std::log(sum));
  }
}

// dx = dy exp(x - y), and 0 where the log-sum-exp y is -infinity.
template <class T> __global__ void log_sum_exp_rows_bwd(LogSumExpBwd k) {
  for (Index o = blockIdx.x; o < k.outer; o += gridDim.x) {
    const T* x = k.x.as<T>() + o * k.n;
    const auto [shift, factor] = softmax_of(x, k.n, k.y[o]);
    for (Index i = threadIdx.x; i < k.n; i += blockDim.x)
      put(k.dx, o * k.n + i, k.y[o] == -INFINITY ? 0.0f : k.dy[o] * (std::exp(float(x[i]) - shift) * factor));
  }
}

template <class T> __global__ void log_sum_exp_columns_bwd(LogSumExpBwd k) {
  const T* x = k.x.as<T>();
  for (Index c = thread_number(); c < k.outer * k.inner; c += thread_count()) {
    const Index start = column_start(c, k.n, k.inner);
    const auto [shift, sum] = column_sum(x + start, k.n, k.inner);
    const float slope = sum == 0 ? 0.0f : float(double(k.dy[c]) / sum);
    for (Index i = 0; i < k.n; ++i) {
      const Index at = start + i * k.inner;
      put(k.dx, at, slope * std::exp(float(x[at]) - shift));
    }
  }
}

}  // namespace

void run(const SoftmaxFwd& k) {
  with_type(k.x.dtype, [&](auto t) {
    if (k.inner == 1)
      launch_kernel(for_rows(k.outer, k.n), softmax_rows<decltype(t)>, k);
    else
      launch_kernel(for_elements(k.outer * k.inner), softmax_columns<decltype(t)>, k);
  });
}
void run(const SoftmaxBwd& k) {
  if (!k.dx) return;
  if (k.inner == 1)
    launch_kernel(for_rows(k.outer, k.n), softmax_rows_bwd, k);
  else
    launch_kernel(for_elements(k.outer * k.inner), softmax_columns_bwd, k);
}
void run(const LogSumExpFwd& k) {
  with_type(k.x.dtype, [&](auto t) {
    if (k.inner == 1)
      launch_kernel(for_rows(k.outer, k.n), log_sum_exp_rows<decltype(t)>, k);
    else
      launch_kernel(for_elements(k.outer * k.inner), log_sum_exp_columns<decltype(t)>, k);
  });
}
void run(const LogSumExpBwd& k) {
  if (!k.dx) return;
  with_type(k.x.dtype, [&](auto t) {
    if (k.inner == 1)
      launch_kernel(for_rows(k.outer, k.n), log_sum_exp_rows_bwd<decltype(t)>, k);
    else
      launch_kernel(for_elements(k.outer * k.inner), log_sum_exp_columns_bwd<decltype(t)>, k);
  });
}

}  // namespace flexformer::cuda
