// Optimiser steps, elementwise over a parameter, and the norm that clipping needs.
#include <cmath>
#include <numeric>
#include <vector>

#include "tensor/cpu_loops.h"

namespace flexformer::cpu {

void run(const AdamStep& k) {
  if (std::isnan(*k.scale)) return;
  parallel_lanes(k.n, 8, [k, scale = *k.scale, now = *k.numbers](Index i, Index m) {
    const Vec p = load_up_to(k.p + i, m), g = scale * load_up_to(k.g + i, m) + k.l2 * p;
    const Vec first = k.beta1 * load_up_to(k.m + i, m) + (1 - k.beta1) * g;
    const Vec second = k.beta2 * load_up_to(k.v + i, m) + (1 - k.beta2) * g * g;
    const Vec step = first / (sqrt(second) / std::sqrt(now.correction2) + k.eps);
    store_up_to(k.m + i, first, m);
    store_up_to(k.v + i, second, m);
    store_up_to(k.p + i, p * (1 - now.lr * k.decay) - now.lr / now.correction1 * step, m);
  });
}

void run(const SgdStep& k) {
  if (std::isnan(*k.scale)) return;
  parallel_lanes(k.n, 4, [k, scale = *k.scale, lr = k.numbers->lr](Index i, Index m) {
    const Vec p = load_up_to(k.p + i, m), g = scale * load_up_to(k.g + i, m) + k.l2 * p;
    Vec velocity = g;
    if (k.m) {
      velocity += k.momentum * load_up_to(k.m + i, m);
      store_up_to(k.m + i, velocity, m);
    }
    store_up_to(k.p + i, p - lr * (k.nesterov ? g + k.momentum * velocity : velocity), m);
  });
}

void run(const SquaredNorms& k) {
  constexpr Index block = 16384;
  std::vector<double> partial;
  for (Index a = 0; a < k.count; ++a) {
    const auto [x, n] = k.arrays[a];
    partial.resize(std::size_t((n + block - 1) / block));
    parallel_for(n, block, [&, x = x](Index begin, Index end) {
      DoubleSum sum;
      for_lanes(end - begin, [&](Index i, Index m) { sum.add_square(load_up_to(x + begin + i, m)); });
      partial[std::size_t(begin / block)] = sum.total();
    });
    k.sums[a] = 0;
    for (double part : partial) k.sums[a] += part;
  }
}

void run(const ClipScale& k) { *k.scale = k.of(std::accumulate(k.squares, k.squares + k.count, 0.0)); }

}  // namespace flexformer::cpu
