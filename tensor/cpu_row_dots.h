// Products of a few vectors with the rows of a matrix of floats, which is read once, where it lies: decoding's
// products, the scores of one query, the projections of one row.
#pragma once
#include <algorithm>

#include "tensor/simd.h"

namespace flexformer::cpu {

// Lane i is the sum of the lanes of x[i], paired in one order. x is used up.
template <int width = kLanes / 2> Vec sum_each(Vec (&x)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < width; ++i) {
    exchange<width>(x[i], x[i + width], std::make_integer_sequence<int, kLanes>());
    x[i] += x[i + width];
  }
  if constexpr (width > 1)
    return sum_each<width / 2>(x);
  else
    return x[0];
}

// How many vectors are multiplied at a time with what is read of the matrix: their sums stay in registers.
constexpr int kDotRows = kLanes == 16 ? 4 : 2;

// y[r] = x_r W^T for `outputs` <= kLanes rows of W (the other lanes are arbitrary), x_r and rows of W of length I. Rows
// are read one after the other, which the hardware foresees. Each sum has four parts, so that additions need not wait
// for each other, and runs over i in one order, whatever `rows` is.
template <int rows>
void row_dots(Vec (&y)[rows], const float* x, Index x_row, const float* W, Index w_row, Index outputs, Index I) {
  constexpr int parts = 4;
  Vec sums[rows][kLanes];
  for (int o = 0; o < kLanes && o < outputs; ++o, W += w_row) {
    if (I <= kLanes) {  // small heads
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sums[r][o] = load_up_to(x + r * x_row, I) * load_up_to(W, I);
      continue;
    }
    Vec sum[rows][parts] = {};
    const auto add = [&](int part, Index i, auto&& read) {
      const Vec w = read(W + i);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sum[r][part] += read(x + r * x_row + i) * w;
    };
    Index i = 0;
    for (; i + parts * kLanes <= I; i += parts * kLanes)
#pragma GCC unroll 4
      for (int part = 0; part < parts; ++part) add(part, i + part * kLanes, load);
    for (; i + kLanes <= I; i += kLanes) add(0, i, load);
    if (i < I) add(1, i, [n = I - i](const float* p) { return load_part(p, n); });
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sums[r][o] = (sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) y[r] = sum_each(sums[r]);
}

// y [n] = W x for one x [I], rows of W w_row apart.
inline void row_dots(float* y, const float* W, Index w_row, Index n, const float* x, Index I) {
  for (Index o = 0; o < n; o += kLanes) {
    Vec sums[1];
    row_dots<1>(sums, x, 0, W + o * w_row, w_row, std::min<Index>(kLanes, n - o), I);
    store_up_to(y + o, sums[0], n - o);
  }
}

}  // namespace flexformer::cpu
