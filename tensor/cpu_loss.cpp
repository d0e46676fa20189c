// Cross-entropy, one row of logits at a time. The loss is log(sum exp(x - max)) + (max - x_target), never a difference
// of two large numbers; the backward pass makes the softmax again from the logits and the saved log-sum-exp.
#include "tensor/cpu_softmax.h"

namespace flexformer::cpu {
namespace {

void loss_row(const CrossEntropyFwd& k, Index r) {
  const float* x = k.logits + r * k.V;
  const float shift = shift_for(row_max(x, k.V));
  const double log_sum = std::log(sum_exp(nullptr, x, k.V, shift));
  k.lse[r] = float(shift + log_sum);
  if (k.targets[r] == k.ignore) {
    k.loss[r] = 0;
    return;
  }
  double loss = log_sum + (double(shift) - x[k.targets[r]]);
  if (k.smoothing != 0) {
    double uniform = 0;  // sum of -log p
    for (Index v = 0; v < k.V; ++v) uniform += log_sum + (double(shift) - x[v]);
    loss = (1.0 - k.smoothing) * loss + k.smoothing / double(k.V) * uniform;
  }
  k.loss[r] = float(loss);
}

void loss_row_bwd(const CrossEntropyBwd& k, Index r) {
  const GradOut dx{k.dlogits.p + r * k.V, k.dlogits.add};
  const float scale = k.targets[r] == k.ignore ? 0.0f : k.dloss[r];
  if (scale == 0) {
    if (!dx.add) std::fill_n(dx.p.as<float>(), k.V, 0.0f);
    return;
  }
  const float* x = k.logits + r * k.V;
  const auto [shift, factor] = softmax_of(x, k.V, k.lse[r]);
  const float uniform = k.smoothing / float(k.V);
  for_lanes(k.V, [&, shift = shift, factor = factor](Index i, Index m) {
    put(dx, i, (exp(load_up_to(x + i, m) - shift) * factor - uniform) * scale, m);
  });
  dx.p[k.targets[r]] -= (1 - k.smoothing) * scale;
}

}  // namespace

void run(const CrossEntropyFwd& k) {
  parallel_for(k.R, grain_for(24 * k.V), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) loss_row(k, r);
  });
}

void run(const CrossEntropyBwd& k) {
  if (!k.dlogits) return;
  parallel_for(k.R, grain_for(24 * k.V), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) loss_row_bwd(k, r);
  });
}

}  // namespace flexformer::cpu
