// Layer norm and RMS norm over the last axis, a block for each row. Moments are summed in double precision and the
// variance in a second pass over the row, so that a constant row has variance exactly 0 and large values neither cancel
// nor overflow. Rows are centred by two floats (RowMoments). Parameter gradients are sums over rows, in a kernel of
// their own (sums.h).
#include "cuda/sums.h"

namespace flexformer::cuda {
namespace {

// Sum of (x - center)^2 over a row, by all threads.
template <class T> __device__ double squares(const T* x, Index C, float center) {
  double sum = 0;
  for (Index c = threadIdx.x; c < C; c += blockDim.x) {
    const double distance = double(float(x[c]) - center);
    sum += distance * distance;
  }
  return block_sum(sum);
}

template <class T> __global__ void layer_norm_fwd(LayerNormFwd k) {
  for (Index r = blockIdx.x; r < k.R; r += gridDim.x) {
    const T* x = k.x.as<T>() + r * k.C;
    double sum = 0;
    for (Index c = threadIdx.x; c < k.C; c += blockDim.x) sum += double(float(x[c]));
    const double exact = block_sum(sum) / double(k.C);
    const auto [mean, low, rstd] = RowMoments::of(exact, squares(x, k.C, float(exact)) / double(k.C), double(k.eps));
    if (threadIdx.x == 0) {
      k.mean[r] = mean;
      k.mean_low[r] = low;
      k.rstd[r] = rstd;
    }
    for (Index c = threadIdx.x; c < k.C; c += blockDim.x)
      k.y.as<T>()[r * k.C + c] = T((float(x[c]) - mean - low) * rstd * k.gamma[c] + k.beta[c]);
  }
}

// With g = dy gamma and h = (x - mean - low) rstd: dx = rstd (g - mean(g) - h mean(g h)).
template <class T> __global__ void layer_norm_bwd(LayerNormBwd k) {
  for (Index r = blockIdx.x; r < k.R; r += gridDim.x) {
    const T *x = k.x.as<T>() + r * k.C, *dy = k.dy.as<T>() + r * k.C;
    const float mean = k.mean[r], low = k.mean_low[r], rstd = k.rstd[r];
    float sum_g = 0, sum_gh = 0;
    for (Index c = threadIdx.x; c < k.C; c += blockDim.x) {
      const float g = float(dy[c]) * k.gamma[c];
      sum_g += g;
      sum_gh += g * ((float(x[c]) - mean - low) * rstd);
    }
    const float mean_g = block_sum(sum_g) / float(k.C), mean_gh = block_sum(sum_gh) / float(k.C);
    for (Index c = threadIdx.x; c < k.C; c += blockDim.x) {
      const float g = float(dy[c]) * k.gamma[c], h = (float(x[c]) - mean - low) * rstd;
      put(k.dx, r * k.C + c, rstd * (g - mean_g - h * mean_gh));
    }
  }
}

template <class T> __global__ void rms_norm_fwd(RmsNormFwd k) {
  for (Index r = blockIdx.x; r < k.R; r += gridDim.x) {
    const T* x = k.x.as<T>() + r * k.C;
    const float rstd = inverse_root(squares(x, k.C, 0.0f) / double(k.C) + double(k.eps));
    if (threadIdx.x == 0) k.rstd[r] = rstd;
    for (Index c = threadIdx.x; c < k.C; c += blockDim.x)
      k.y.as<T>()[r * k.C + c] = T(float(x[c]) * rstd * (k.gamma ? k.gamma[c] : 1.0f));
  }
}

// With g = dy gamma and h = x rstd: dx = rstd (g - h mean(g h)).
template <class T> __global__ void rms_norm_bwd(RmsNormBwd k) {
  for (Index r = blockIdx.x; r < k.R; r += gridDim.x) {
    const T *x = k.x.as<T>() + r * k.C, *dy = k.dy.as<T>() + r * k.C;
    const float rstd = k.rstd[r];
    float sum_gh = 0;
    for (Index c = threadIdx.x; c < k.C; c += blockDim.x)
      sum_gh += float(dy[c]) * (k.gamma ? k.gamma[c] : 1.0f) * (float(x[c]) * rstd);
    const float mean_gh = block_sum(sum_gh) / float(k.C);
    for (Index c = threadIdx.x; c < k.C; c += blockDim.x) {
      const float g = float(dy[c]) * (k.gamma ? k.gamma[c] : 1.0f), h = float(x[c]) * rstd;
      put(k.dx, r * k.C + c, rstd * (g - h * mean_gh));
    }
  }
}

// The terms of dgamma = sum_r dy (x - mean - low) rstd; mean and low are null for RMS norm.
template <class T> struct GammaTerms {
  const T *dy, *x;
  const float *mean, *low, *rstd;
  Index C;
  __device__ float operator()(Index, Index r, Index c) const {
    const float center = mean ? mean[r] : 0.0f, rest = mean ? low[r] : 0.0f;
    return float(dy[r * C + c]) * ((float(x[r * C + c]) - center - rest) * rstd[r]);
  }
};

}  // namespace

void run(const LayerNormFwd& k) {
  with_type(k.x.dtype, [&](auto t) { launch_kernel(for_rows(k.R, k.C), layer_norm_fwd<decltype(t)>, k); });
}
void run(const LayerNormBwd& k) {
  with_type(k.x.dtype, [&](auto t) {
    using T = decltype(t);
    const T *dy = k.dy.as<T>(), *x = k.x.as<T>();
    if (k.dx) launch_kernel(for_rows(k.R, k.C), layer_norm_bwd<T>, k);
    if (k.dgamma) sum_columns(k.dgamma, 1, k.R, k.C, 1.0f, GammaTerms<T>{dy, x, k.mean, k.mean_low, k.rstd, k.C});
    if (k.dbeta) sum_columns(k.dbeta, 1, k.R, k.C, 1.0f, LoadTerms<T>{dy, k.R, k.C});
  });
}
void run(const RmsNormFwd& k) {
  with_type(k.x.dtype, [&](auto t) { launch_kernel(for_rows(k.R, k.C), rms_norm_fwd<decltype(t)>, k); });
}
void run(const RmsNormBwd& k) {
  with_type(k.x.dtype, [&](auto t) {
    using T = decltype(t);
    if (k.dx) launch_kernel(for_rows(k.R, k.C), rms_norm_bwd<T>, k);
    if (k.dgamma)
      sum_columns(k.dgamma, 1, k.R, k.C, 1.0f, GammaTerms<T>{k.dy.as<T>(), k.x.as<T>(), nullptr, nullptr, k.rstd, k.C});
  });
}

}  // namespace flexformer::cuda
