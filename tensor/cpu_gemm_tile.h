// The innermost part of matrix products: a tile of c held in registers while k runs over the inner size, and the panels
// that it reads. Everything is written once and compiled for two kinds of numbers: floats, and pairs of bfloat16 where
// the processor multiplies those.
#pragma once
#include <algorithm>

#include "tensor/kernels.h"
#include "tensor/simd.h"

namespace flexformer::cpu {

// Registers of a tile: kTileRows * kTileVectors sums, kTileVectors of b, one of a. AVX-512 has 32, the others 16.
constexpr int kTileRows = kLanes == 16 ? 8 : 4;
constexpr int kTileVectors = 3;
constexpr Index kTileColumns = kTileVectors * kLanes;

// Numbers: kStep values of k lie in one entry of a panel.
struct Floats {
  static constexpr Index kStep = 1;
  // kLanes entries of a panel: `even` at an even k, `odd` at the next.
  static Vec pack(Vec even, Vec) { return even; }
  // The first kLanes entries of a row that lies along k and has `left` values left.
  static Vec pack_row(const float* x, Index left) { return load_up_to(x, left); }
  static void add_product(Vec& sum, const float* a, Vec b) { sum += *a * b; }
};

#if defined(__AVX512BF16__)
// Two bfloat16 in one entry, the even one in its lower half. Numbers too small for a normal float count as zero.
struct Bf16Pairs {
  static constexpr Index kStep = 2;
  static Vec pack(Vec even, Vec odd) {
    return (Vec)_mm512_permutexvar_epi16((__m512i)alternate(std::make_integer_sequence<int, kLanes>()),
                                         (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
  }
  static Vec pack_row(const float* x, Index left) {
    const Vec first = load_up_to(x, left), second = left > kLanes ? load_up_to(x + kLanes, left - kLanes) : Vec{};
    return (Vec)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  }
  // sum + odd product, then + even product, each rounded once.
  static void add_product(Vec& sum, const float* a, Vec b) {
    std::int32_t pair;
    std::memcpy(&pair, a, sizeof pair);
    sum = (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b);
  }

 private:
  // 16-bit places 0, 16, 1, 17, ...
  template <int... i> static VecInt alternate(std::integer_sequence<int, i...>) {
    return VecInt{(i | (i + kLanes) << 16)...};
  }
};
#endif

// How a tile reads its rows of a: at(i) is the entry of row i for the current k.
struct PackedRows {  // [K][kTileRows]
  const float* p;
  const float* at(int i) const { return p + i; }
  void next() { p += kTileRows; }
};
struct StridedRows {
  const float* p;
  Index row, col;
  const float* at(int i) const { return p + i * row; }
  void next() { p += col; }
};

// What a tile does with its sums: c = sums + bias, or c += sums.
struct Target {
  float* c;
  Index row;
  const float* bias;  // null: none
  bool add;
};

// K counts entries. `last` is the number of columns in the last vector; b is read in full vectors unless `partial`.
template <class Numbers, int rows, int vectors, bool partial, class A>
void tile(Target out, A a, const float* b, Index b_row, Index K, Index last) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) __builtin_prefetch(out.c + i * out.row + v * kLanes, 1);
  Vec sum[rows][vectors] = {};
  for (Index k = 0; k < K; ++k, a.next(), b += b_row) {
    Vec bk[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      bk[v] = partial && v == vectors - 1 ? load_part(b + v * kLanes, last) : load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) Numbers::add_product(sum[i][v], a.at(i), bk[v]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* c = out.c + i * out.row + v * kLanes;
      const Index n = v == vectors - 1 ? last : kLanes;
      const float* base = out.add ? c : out.bias ? out.bias + v * kLanes : nullptr;
      store_up_to(c, base ? load_up_to(base, n) + sum[i][v] : sum[i][v], n);
    }
}

template <class Numbers, int vectors, bool partial, int rows = kTileRows, class A>
void tile_of(Index count, Target out, A a, const float* b, Index b_row, Index K, Index last) {
  if (count == rows) return tile<Numbers, rows, vectors, partial>(out, a, b, b_row, K, last);
  if constexpr (rows > 1) tile_of<Numbers, vectors, partial, rows - 1>(count, out, a, b, b_row, K, last);
}

// A tile of any size up to kTileRows x kTileColumns. A packed b is padded to whole vectors; an unpacked one must not be
// read past its end.
template <class Numbers, bool packed_b, class A>
void any_tile(Index rows, Index columns, Target out, A a, const float* b, Index b_row, Index K) {
  const Index vectors = (columns + kLanes - 1) / kLanes, last = columns - (vectors - 1) * kLanes;
  const auto with = [&]<int n>(std::integral_constant<int, n>) {
    if constexpr (packed_b)
      tile_of<Numbers, n, false>(rows, out, a, b, b_row, K, last);
    else if (last < kLanes)
      tile_of<Numbers, n, true>(rows, out, a, b, b_row, K, last);
    else
      tile_of<Numbers, n, false>(rows, out, a, b, b_row, K, last);
  };
  if (vectors == 1) return with(std::integral_constant<int, 1>());
  if (vectors == 2) return with(std::integral_constant<int, 2>());
  with(std::integral_constant<int, 3>());
}

// Columns of a tile for `left` columns yet to do: as many as fit, but even shares (4 vectors are 2 + 2, not 3 + 1).
inline Index tile_columns(Index left) {
  const Index vectors = (left + kLanes - 1) / kLanes, tiles = (vectors + kTileVectors - 1) / kTileVectors;
  return (vectors + tiles - 1) / std::max<Index>(1, tiles) * kLanes;
}

// ---- panels ---------------------------------------------------------------------------------------------------------

template <class Numbers> Index entries_of(Index K) { return (K + Numbers::kStep - 1) / Numbers::kStep; }

// out[k*out_row + i] = x[i*x_row + k] for i < n <= rows, 0 for the other i < rows: blocks are transposed in registers.
template <class Numbers, int rows>
void pack_across(float* out, Index out_row, const float* x, Index x_row, Index n, Index K) {
  const Index entries = entries_of<Numbers>(K);
  for (Index k = 0; k < entries; k += kLanes) {
    Vec block[rows];
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
      block[i] = i < n ? Numbers::pack_row(x + i * x_row + k * Numbers::kStep, K - k * Numbers::kStep) : Vec{};
    transpose_lanes(block);
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane)
      if (k + lane < entries)
        std::memcpy(out + (k + lane) * out_row,
                    reinterpret_cast<const float*>(&block[lane % rows]) + lane / rows * rows, rows * sizeof(float));
  }
}

// Panels [K][width], one behind the other, of n rows of a (or columns of b): element (i,k) is x[i*i_step + k*k_step].
// Rows that the last panel has to spare are 0 up to a whole vector. The tile then reads one panel of a and one of b
// from front to back. All panels grow side by side, some values of k at a time, so that a line of x is read while it is
// there.
template <class Numbers, int width>
void pack_panels(float* out, const float* x, Index i_step, Index k_step, Index n, Index K) {
  constexpr Index chunk = 2 * kLanes;
  constexpr int part = std::min(width, kLanes);  // what of a vector lies in one panel
  const Index entries = entries_of<Numbers>(K);
  const auto place = [&](Index i, Index k) {
    return out + i / width * width * entries + k / Numbers::kStep * width + i % width;
  };
  const auto column = [&](Index k, Index i) {
    const float* p = x + k * k_step + i * i_step;
    if (k >= K) return Vec{};
    if (i_step == 1) return load_up_to(p, n - i);
    Vec v{};
    for (Index j = 0; j < std::min<Index>(kLanes, n - i); ++j) v[j] = p[j * i_step];
    return v;
  };
  for (Index k0 = 0; k0 < K; k0 += chunk) {
    const Index k_end = std::min(K, k0 + chunk);
    if (k_step == 1) {
      for (Index i = 0; i < n; i += part)
        pack_across<Numbers, part>(place(i, k0), width, x + i * i_step + k0, i_step, n - i, k_end - k0);
      continue;
    }
    for (Index i = 0; i < n; i += kLanes)
      for (Index k = k0; k < k_end; k += Numbers::kStep) {
        const Vec v = Numbers::pack(column(k, i), column(k + Numbers::kStep - 1, i));
        for (int j = 0; j < kLanes && i + j < n; j += part)
          std::memcpy(place(i + j, k), reinterpret_cast<const float*>(&v) + j, part * sizeof(float));
      }
  }
}

}  // namespace flexformer::cpu
