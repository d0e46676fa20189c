// Sums over the middle axis of [outer, n, inner], of terms that are loaded or computed on the fly: SumFwd, gradients of
// broadcast operands and of norm parameters. n is cut in blocks by its size alone and the partial sums are added in
// order, so that any number of threads gives the same bits and the error grows with the block, not with n.
//
// terms(o) gives the terms of one outer index as a function row(k, j, m): m neighbouring terms from (o, k, j) on, and
// zeros in the other lanes.
#pragma once
#include <numeric>
#include <vector>

#include "tensor/cpu_loops.h"

namespace flexformer::cpu {

// Terms that are the elements of x themselves.
struct LoadTerms {
  const float* x;
  Index n, inner;
  auto operator()(Index o) const {
    return
        [p = x + o * n * inner, inner = inner](Index k, Index j, Index m) { return load_up_to(p + k * inner + j, m); };
  }
};

// Terms [from, to) of a row of neighbours, in double precision.
template <class Row> inline double sum_row(const Row& row, Index from, Index to) {
  DoubleSum sum;
  for_lanes(to - from, [&](Index i, Index m) { sum.add(row(from + i, 0, m)); });
  return sum.total();
}

// y[o] = scale * sum_k terms(o)(k, 0, .): the inner size is 1.
template <class Terms> void sum_rows(GradOut y, Index outer, Index n, float scale, const Terms& terms) {
  constexpr Index block = 16384;
  const auto write = [=](Index o, double sum) { y.p[o] = float(scale * sum) + (y.add ? y.p[o] : 0.0f); };
  if (n <= block) {
    parallel_for(outer, grain_for(n + 8), [&](Index begin, Index end) {
      for (Index o = begin; o < end; ++o) write(o, sum_row(terms(o), 0, n));
    });
    return;
  }
  const Index blocks = (n + block - 1) / block;
  std::vector<double> partial(std::size_t(outer * blocks));
  parallel_for(outer * blocks, 1, [&](Index i, Index) {
    const Index from = i % blocks * block;
    partial[i] = sum_row(terms(i / blocks), from, std::min(n, from + block));
  });
  for (Index o = 0; o < outer; ++o) write(o, std::accumulate(&partial[o * blocks], &partial[o * blocks] + blocks, 0.0));
}

// y[o,j] = scale * sum_k terms(o)(k, j, .), vectorised over j.
template <class Terms> void sum_columns(GradOut y, Index outer, Index n, Index inner, float scale, const Terms& terms) {
  constexpr Index block = 256, strip = 512;
  const Index blocks = std::max<Index>(1, (n + block - 1) / block), strips = (inner + strip - 1) / strip;
  Tensor partial;  // [outer, blocks, inner]
  GradOut target = y;
  if (blocks > 1) {
    partial = Tensor::empty({outer, blocks, inner});
    target = {partial.data(), false};
  }
  const float factor = blocks > 1 ? 1.0f : scale;
  parallel_for(
      outer * blocks * strips, grain_for(std::min(n, block) * std::min(inner, strip)), [&](Index begin, Index end) {
        alignas(64) float sum[strip];
        for (Index i = begin; i < end; ++i) {
          const Index ob = i / strips, column = i % strips * strip, width = std::min(strip, inner - column);
          const Index first = ob % blocks * block, last = std::min(n, first + block);
          const auto row = terms(ob / blocks);
          std::memset(sum, 0, sizeof sum);
          for (Index k = first; k < last; ++k)
            for_lanes(width, [&](Index j, Index m) { store(sum + j, load(sum + j) + row(k, column + j, m)); });
          for_lanes(width, [&](Index j, Index m) { put(target, ob * inner + column + j, factor * load(sum + j), m); });
        }
      });
  if (blocks > 1) sum_columns(y, outer, blocks, inner, scale, LoadTerms{partial.data(), blocks, inner});
}

template <class Terms> void sum_axis(GradOut y, Index outer, Index n, Index inner, float scale, const Terms& terms) {
  if (inner == 1)
    sum_rows(y, outer, n, scale, terms);
  else
    sum_columns(y, outer, n, inner, scale, terms);
}

}  // namespace flexformer::cpu
