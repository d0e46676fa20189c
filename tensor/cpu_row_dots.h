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
constexpr int kDotRows = kLanes == 16 ? 8 : 4;

// y[r] = x_r W^T for `outputs` <= kLanes rows of W (the other lanes are arbitrary), x_r and rows of W of length I. Each
// sum runs over i in one order, whatever `rows` is.
template <int rows>
void row_dots(Vec (&y)[rows], const float* x, Index x_row, const float* W, Index w_row, Index outputs, Index I) {
  // Rows of W side by side: enough sums for the additions to overlap, as few as the registers hold.
  constexpr int together = std::min(kLanes, rows == 1 || kLanes * rows == 32 ? 8 : kLanes == 16 && rows > 4 ? 2 : 4);
  Vec sums[rows][kLanes];
  for (int first = 0; first < kLanes && first < outputs; first += together) {
    const float* w[together];
#pragma GCC unroll 16
    for (int j = 0; j < together; ++j) w[j] = W + std::min<Index>(first + j, outputs - 1) * w_row;
    Vec sum[rows][together] = {};
    const auto add = [&](Index i, auto&& read) {
      Vec part[together];
#pragma GCC unroll 16
      for (int j = 0; j < together; ++j) part[j] = read(w[j] + i);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const Vec factor = read(x + r * x_row + i);
#pragma GCC unroll 16
        for (int j = 0; j < together; ++j) sum[r][j] += factor * part[j];
      }
    };
    Index i = 0;
    for (; i + kLanes <= I; i += kLanes) {
      // One vector is waited for by the hardware's own prefetching; several leave it too little time.
#pragma GCC unroll 16
      for (int j = 0; rows > 1 && j < together; ++j) __builtin_prefetch(w[j] + i + together * w_row);
      add(i, load);
    }
    if (i < I) add(i, [n = I - i](const float* p) { return load_part(p, n); });
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (int j = 0; j < together; ++j) sums[r][first + j] = sum[r][j];
  }
#pragma GCC unroll 8
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
