// Matrix products. Everything rests on one tile: MR rows by NV vectors of c held in registers while k runs over the
// inner size, one multiply-add per element and k. Large products copy ("pack") b, and mostly a, into panels in the
// order the tile reads them, in blocks that fit the caches; small ones read their operands where they are. Each element
// of c is summed in the same order on every path that its sizes can take, so neither the cut into blocks nor the number
// of threads shows in the result.
#include "tensor/cpu_gemm.h"

#include <algorithm>

#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/simd.h"

namespace flexformer::cpu {
namespace {

// Registers: MR * NV sums, NV vectors of b, one of a. AVX-512 has 32 registers, the others 16.
constexpr int MR = kLanes == 16 ? 8 : 4;
constexpr int NV = 3;
constexpr Index NR = NV * kLanes;  // columns of a panel of b
constexpr Index KC = 512;          // inner size of a block: a tile's part of a and b stays in the first-level cache
constexpr Index MC = MR * 20;      // rows of a block of a: MC * KC floats stay in the second-level cache
constexpr Index NC = NR * 80;      // columns of a block of b

// How a tile reads its rows of a: at(i) is element (i, k) for the current k.
struct PackedRows {  // [K][MR]
  const float* p;
  float at(int i) const { return p[i]; }
  void next() { p += MR; }
};
struct StridedRows {
  const float* p;
  Index row, col;
  float at(int i) const { return p[i * row]; }
  void next() { p += col; }
};

// What a tile does with its sums: c = sums + bias, or c += sums.
struct Target {
  float* c;
  Index row;
  const float* bias;  // null: none
  bool add;
};

// `last` is the number of columns in the last vector; b is read in full vectors unless `partial`.
template <int rows, int vectors, bool partial, class A>
void tile(Target out, A a, const float* b, Index b_row, Index K, Index last) {
  Vec sum[rows][vectors] = {};
  for (Index k = 0; k < K; ++k, a.next(), b += b_row) {
    Vec bk[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      bk[v] = partial && v == vectors - 1 ? load_part(b + v * kLanes, last) : load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] += a.at(i) * bk[v];
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

template <int vectors, bool partial, class A>
void tile_of(Index rows, Target out, A a, const float* b, Index b_row, Index K, Index last) {
  switch (rows) {
    case 1:
      return tile<1, vectors, partial>(out, a, b, b_row, K, last);
    case 2:
      return tile<2, vectors, partial>(out, a, b, b_row, K, last);
    case 3:
      return tile<3, vectors, partial>(out, a, b, b_row, K, last);
    case 4:
      return tile<4, vectors, partial>(out, a, b, b_row, K, last);
  }
  if constexpr (MR == 8) switch (rows) {
      case 5:
        return tile<5, vectors, partial>(out, a, b, b_row, K, last);
      case 6:
        return tile<6, vectors, partial>(out, a, b, b_row, K, last);
      case 7:
        return tile<7, vectors, partial>(out, a, b, b_row, K, last);
      case 8:
        return tile<8, vectors, partial>(out, a, b, b_row, K, last);
    }
}

// A tile of any size up to MR x NR. A packed b is padded to whole vectors; an unpacked one must not be read past its
// end.
template <bool packed_b, class A>
void any_tile(Index rows, Index columns, Target out, A a, const float* b, Index b_row, Index K) {
  const Index vectors = (columns + kLanes - 1) / kLanes, last = columns - (vectors - 1) * kLanes;
  const bool partial = !packed_b && last < kLanes;
  switch (vectors * 2 + partial) {
    case 2:
      return tile_of<1, false>(rows, out, a, b, b_row, K, last);
    case 3:
      return tile_of<1, true>(rows, out, a, b, b_row, K, last);
    case 4:
      return tile_of<2, false>(rows, out, a, b, b_row, K, last);
    case 5:
      return tile_of<2, true>(rows, out, a, b, b_row, K, last);
    case 6:
      return tile_of<3, false>(rows, out, a, b, b_row, K, last);
    case 7:
      return tile_of<3, true>(rows, out, a, b, b_row, K, last);
  }
}

// Panel [K][NR] of columns j .. j+n of b, zeros behind them.
void pack_b(float* out, const float* b, Index b_row, Index b_col, Index n, Index K) {
  if (b_col == 1) {
    for (Index k = 0; k < K; ++k, out += NR, b += b_row)
      for (Index j = 0; j < NR; j += kLanes) store(out + j, j < n ? load_up_to(b + j, n - j) : Vec{});
    return;
  }
  if (b_row == 1) {
    transpose_tile(out, NR, b, b_col, n, K);
  } else {
    for (Index k = 0; k < K; ++k)
      for (Index j = 0; j < n; ++j) out[k * NR + j] = b[k * b_row + j * b_col];
  }
  for (Index k = 0; k < K; ++k)
    for (Index j = n; j < NR; ++j) out[k * NR + j] = 0;
}

// Panels [K][MR] of `rows` rows of a; the last panel's missing rows stay unwritten, since no tile reads them.
void pack_a(float* out, Strided a, Index rows, Index K) {
  for (Index i = 0; i < rows; i += MR, out += MR * K) {
    const float* p = a.p + i * a.row;
    const Index n = std::min<Index>(MR, rows - i);
    if (a.col == 1)
      transpose_tile(out, MR, p, a.row, n, K);
    else
      for (Index k = 0; k < K; ++k)
        for (Index r = 0; r < n; ++r) out[k * MR + r] = p[r * a.row + k * a.col];
  }
}

// One block: rows [i0, i0+m) by columns [j0, j0+n) of c, with b packed. `panels_a` is null where a is read in place.
void multiply_block(Target out, Strided a, const float* panels_a, const float* panels_b, Index m, Index n, Index K) {
  for (Index j = 0; j < n; j += NR)
    for (Index i = 0; i < m; i += MR) {
      const Index rows = std::min<Index>(MR, m - i), columns = std::min(NR, n - j);
      const Target t{out.c + i * out.row + j, out.row, out.bias ? out.bias + j : nullptr, out.add};
      if (panels_a)
        any_tile<true>(rows, columns, t, PackedRows{panels_a + i * K}, panels_b + j * K, NR, K);
      else
        any_tile<true>(rows, columns, t, StridedRows{a.p + i * a.row, a.row, a.col}, panels_b + j * K, NR, K);
    }
}

// One matrix product in blocks, by all threads.
void large_product(const Gemm& g, float* c, const float* a, const float* b) {
  const Index nc = std::min(NC, (g.N + NR - 1) / NR * NR), kc = std::min(KC, g.K);
  // Few rows: cut them finer, then cut the columns too, so that there is work for many threads.
  const Index mc = std::clamp((g.M + 15) / 16 / MR * MR, Index(MR) * 4, MC);
  const Index row_blocks = (g.M + mc - 1) / mc;
  // Packing a pays when its panels are read often, or when its rows lie so far apart that they fight for cache sets.
  const bool packs_a = g.N > 4 * NR || (g.a_col == 1 && g.a_row % 1024 == 0);
  Tensor panels_b = Tensor::empty({kc * nc}), panels_a = Tensor::empty({packs_a ? threads() * mc * kc : 0});
  float *pb = panels_b.data(), *pa = panels_a.data();
  for (Index j0 = 0; j0 < g.N; j0 += nc) {
    const Index n = std::min(nc, g.N - j0), panels = (n + NR - 1) / NR;
    const Index column_cuts = std::clamp<Index>(16 / row_blocks, 1, panels);
    const Index cut = (panels + column_cuts - 1) / column_cuts;
    for (Index k0 = 0; k0 < g.K; k0 += kc) {
      const Index k = std::min(kc, g.K - k0);
      const float* b0 = b + k0 * g.b_row + j0 * g.b_col;
      parallel_for(panels, std::max<Index>(1, 8192 / k), [&](Index begin, Index end) {
        for (Index p = begin; p < end; ++p)
          pack_b(pb + p * NR * k, b0 + p * NR * g.b_col, g.b_row, g.b_col, std::min(NR, n - p * NR), k);
      });
      parallel_for(row_blocks * column_cuts, 1, [&](Index piece, Index) {
        const Index i0 = piece / column_cuts * mc, m = std::min(mc, g.M - i0);
        const Index first = piece % column_cuts * cut * NR, columns = std::min(cut * NR, n - first);
        if (columns <= 0) return;
        const Strided rows{a + i0 * g.a_row + k0 * g.a_col, g.a_row, g.a_col};
        float* own = packs_a ? pa + thread_index() * mc * kc : nullptr;
        if (packs_a) pack_a(own, rows, m, k);
        const Target out{c + i0 * g.c_row + j0 + first, g.c_row, g.bias && k0 == 0 ? g.bias + j0 + first : nullptr,
                         g.c.add || k0 > 0};
        multiply_block(out, rows, own, pb + first * k, m, columns, k);
      });
    }
  }
}

// One matrix product on the calling thread; `scratch` holds a transposed b [K,N] where b's rows are not contiguous.
void serial_product(const Gemm& g, float* c, const float* a, const float* b, float* scratch) {
  Index b_row = g.b_row;
  if (g.b_col != 1) {
    if (b_row == 1) {
      transpose_tile(scratch, g.N, b, g.b_col, g.N, g.K);
    } else {
      for (Index k = 0; k < g.K; ++k)
        for (Index j = 0; j < g.N; ++j) scratch[k * g.N + j] = b[k * b_row + j * g.b_col];
    }
    b = scratch;
    b_row = g.N;
  }
  if (g.bias && !g.c.add)
    for (Index i = 0; i < g.M; ++i) std::copy_n(g.bias, g.N, c + i * g.c_row);
  small_product(c, g.c_row, {a, g.a_row, g.a_col}, b, b_row, g.M, g.N, g.K, g.c.add || g.bias);
}

}  // namespace

void small_product(float* c, Index c_row, Strided a, const float* b, Index b_row, Index M, Index N, Index K, bool add) {
  for (Index j = 0; j < N; j += NR)
    for (Index i = 0; i < M; i += MR)
      any_tile<false>(std::min<Index>(MR, M - i), std::min(NR, N - j), Target{c + i * c_row + j, c_row, nullptr, add},
                      StridedRows{a.p + i * a.row, a.row, a.col}, b + j, b_row, K);
}

// Blocks of one cache line each way, so that both sides are read and written in whole lines.
void transpose_tile(float* y, Index y_row, const float* x, Index x_row, Index rows, Index cols) {
  for (Index c = 0; c < cols; c += 16)
    for (Index r = 0; r < rows; r += 16)
      for (Index j = c; j < std::min(cols, c + 16); ++j)
        for (Index i = r; i < std::min(rows, r + 16); ++i) y[j * y_row + i] = x[i * x_row + j];
}

void run(const Gemm& g) {
  const Index batches = g.batch[0] * g.batch[1];
  if (!g.c || batches == 0 || g.M == 0 || g.N == 0) return;
  const auto with_batch = [&](Index i, auto&& product) {
    const Index outer = i / g.batch[1], inner = i % g.batch[1];
    product(g.c.p + outer * g.c_batch[0] + inner * g.c_batch[1], g.a + outer * g.a_batch[0] + inner * g.a_batch[1],
            g.b + outer * g.b_batch[0] + inner * g.b_batch[1]);
  };
  const Index work = g.M * g.N * std::max<Index>(1, g.K);
  if (g.K > 0 && work >= 64 * 64 * 64 && (batches == 1 || work >= 256 * 256 * 256)) {
    for (Index i = 0; i < batches; ++i)
      with_batch(i, [&](float* c, const float* a, const float* b) { large_product(g, c, a, b); });
    return;
  }
  const Index transposed = g.b_col != 1 ? g.K * g.N : 0;
  Tensor scratch = Tensor::empty({threads() * transposed});
  parallel_for(batches, grain_for(work, 1 << 18), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      with_batch(i, [&](float* c, const float* a, const float* b) {
        serial_product(g, c, a, b, scratch.data() + thread_index() * transposed);
      });
  });
}

}  // namespace flexformer::cpu
