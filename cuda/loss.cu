// Cross-entropy, a block for each row of logits. The loss is log(sum exp(x - max)) + (max - x_target), never a
// difference of two large numbers; the backward pass makes the softmax again from the logits and the saved log-sum-exp.
#include "cuda/softmax.h"

namespace flexformer::cuda {
namespace {

template <class T> __global__ void loss_fwd(CrossEntropyFwd k) {
  for (Index r = blockIdx.x; r < k.R; r += gridDim.x) {
    const T* x = k.logits.as<T>() + r * k.V;
    const std::int32_t target = k.targets[r];
    const float shift = shift_for(row_max(x, k.V));
    const double log_sum = std::log(sum_exp(x, k.V, shift));
    double uniform = 0;  // sum of -log p
    if (k.smoothing != 0) {
      for (Index v = threadIdx.x; v < k.V; v += blockDim.x) uniform += log_sum + (double(shift) - double(float(x[v])));
      uniform = block_sum(uniform);
    }
    if (threadIdx.x != 0) continue;
    k.lse[r] = float(double(shift) + log_sum);
    if (target == k.ignore) {
      k.loss[r] = 0;
      continue;
    }
    const double loss = log_sum + (double(shift) - double(float(x[target]))), s = double(k.smoothing);
    k.loss[r] = float(k.smoothing == 0 ? loss : (1.0 - s) * loss + s / double(k.V) * uniform);
  }
}

template <class T> __global__ void loss_bwd(CrossEntropyBwd k) {
  for (Index r = blockIdx.x; r < k.R; r += gridDim.x) {
    const GradOut dx = k.dlogits.from(r * k.V);
    const std::int32_t target = k.targets[r];
    const float scale = target == k.ignore ? 0.0f : k.dloss[r];
    if (scale == 0) {
      if (!dx.add)
        for (Index v = threadIdx.x; v < k.V; v += blockDim.x) write(dx.p, v, 0);
      continue;
    }
    const T* x = k.logits.as<T>() + r * k.V;  // may be what dx overwrites: each element is read by who writes it
    const auto [shift, factor] = softmax_of(x, k.V, k.lse[r]);
    const float uniform = k.smoothing / float(k.V), peak = 1 - k.smoothing;
    for (Index v = threadIdx.x; v < k.V; v += blockDim.x) {
      const float p = std::exp(float(x[v]) - shift) * factor;
      put(dx, v, (v == target ? p - uniform - peak : p - uniform) * scale);
    }
  }
}

}  // namespace

void run(const CrossEntropyFwd& k) {
  with_type(k.logits.dtype, [&](auto t) { launch_kernel(for_rows(k.R, k.V), loss_fwd<decltype(t)>, k); });
}
void run(const CrossEntropyBwd& k) {
  if (!k.dlogits) return;
  with_type(k.logits.dtype, [&](auto t) { launch_kernel(for_rows(k.R, k.V), loss_bwd<decltype(t)>, k); });
}

}  // namespace flexformer::cuda
