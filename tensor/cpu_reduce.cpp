// Sum, maximum and running sum over the middle axis of [outer, n, inner].
#include "tensor/cpu_sums.h"

namespace flexformer::cpu {
namespace {

// best and where it was, over column positions j .. j + m - 1; a later element must be strictly larger to win, and a
// NaN stays.
void max_columns(const MaxFwd& k, Index o, Index j, Index m) {
  const float* x = k.x + o * k.n * k.inner + j;
  Vec best = load_up_to(x, m);
  VecInt where{};
  for (Index i = 1; i < k.n; ++i) {
    const Vec v = load_up_to(x + i * k.inner, m);
    const VecInt wins = (v > best) | ((v != v) & (best == best));
    best = select(wins, v, best);
    where = select(wins, splat_int(std::int32_t(i)), where);
  }
  store_up_to(k.y + o * k.inner + j, best, m);
  std::memcpy(k.argmax + o * k.inner + j, &where, std::size_t(m) * sizeof(std::int32_t));
}

void max_row(const MaxFwd& k, Index o) {
  const float* x = k.x + o * k.n;
  Index where = 0;
  for (Index i = 1; i < k.n; ++i)
    if (x[i] > x[where] || (std::isnan(x[i]) && !std::isnan(x[where]))) where = i;
  k.y[o] = x[where];
  k.argmax[o] = std::int32_t(where);
}

}  // namespace

void run(const SumFwd& k) {
  if (!k.y) return;
  // One term (or none): outer and inner are one long row.
  const Index outer = k.n <= 1 ? 1 : k.outer, inner = k.n <= 1 ? k.outer * k.inner : k.inner;
  sum_axis(k.y, outer, k.n, inner, k.scale, LoadTerms{k.x, k.n, inner});
}

void run(const SumBwd& k) {
  if (!k.dx) return;
  const Broadcast box{{1, k.outer, k.n, k.inner}, {0, k.inner, 0, 1}, {0, 0, 0, 0}};
  if (numel(box) == 0) return;
  const Broadcast s = merge_axes(box);
  with_step(s.a[3], [&](auto moves) {
    parallel_rows(s, 1, [k](Index at, Index a, Index, Index n) {
      for_lanes(n, [&](Index i, Index m) {
        put(k.dx, at + i, k.scale * load_operand<decltype(moves)::value>(k.dy + a, i, m), m);
      });
    });
  });
}

void run(const MaxFwd& k) {
  parallel_for(k.outer, grain_for(k.n * k.inner), [&](Index begin, Index end) {
    for (Index o = begin; o < end; ++o) {
      if (k.inner == 1)
        max_row(k, o);
      else
        for_lanes(k.inner, [&](Index j, Index m) { max_columns(k, o, j, m); });
    }
  });
}

void run(const MaxBwd& k) {
  if (!k.dx) return;
  parallel_for(k.outer, grain_for(k.n * k.inner), [&](Index begin, Index end) {
    if (!k.dx.add) std::fill(k.dx.p + begin * k.n * k.inner, k.dx.p + end * k.n * k.inner, 0.0f);
    for (Index o = begin; o < end; ++o)
      for (Index j = 0; j < k.inner; ++j)
        k.dx.p[(o * k.n + k.argmax[o * k.inner + j]) * k.inner + j] += k.dy[o * k.inner + j];
  });
}

void run(const Cumsum& k) {
  if (!k.y) return;
  const Index strips = (k.inner + kLanes - 1) / kLanes;
  parallel_for(k.outer * strips, grain_for(k.n * std::min<Index>(k.inner, kLanes)), [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index j = item % strips * kLanes, m = std::min<Index>(kLanes, k.inner - j);
      DoubleSum sum;
      for (Index i = 0; i < k.n; ++i) {
        const Index at = (item / strips * k.n + (k.reverse ? k.n - 1 - i : i)) * k.inner + j;
        sum.add(load_up_to(k.x + at, m));
        put(k.y, at, sum.lanes(), m);
      }
    }
  });
}

}  // namespace flexformer::cpu
