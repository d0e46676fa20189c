// Matrix products. Everything rests on one tile (cpu_gemm_tile.h). Large products copy ("pack") b, and mostly a, into
// panels in the order the tile reads them, in blocks that fit the caches; small ones read their operands where they
// are. Each element of c is summed in the same order on every path that its sizes can take, so neither the cut into
// blocks nor the number of threads shows in the result.
#include "tensor/cpu_gemm.h"

#include "tensor/cpu_gemm_tile.h"
#include "tensor/functors.h"
#include "tensor/parallel.h"

namespace flexformer::cpu {
namespace {

constexpr int MR = kTileRows;
constexpr Index NR = kTileColumns;
constexpr Index KC = 512;  // entries of a block: a tile's part of a stays in the first-level cache, b's in the second
constexpr Index MC = MR * 20;  // rows of a block of a: MC * KC floats stay in the second-level cache
constexpr Index NC = NR * 80;  // columns of a block of b

// What an epilogue and a residual read is not in cache: asked for before a tile is computed, it is there afterwards.
void prefetch_for_finish(const Gemm& g, Index corner, Index rows, Index columns) {
  for (Index i = 0; i < rows; ++i, corner += g.c_row)
    for (Index j = 0; j < columns; j += 16) {  // a cache line
      if (g.saved) __builtin_prefetch(g.saved + corner + j, 1);
      if (g.residual) __builtin_prefetch(g.residual + corner + j);
    }
}

// gelu or its derivative, and the residual, for a part of c that holds a b + bias (kernels.h, Epilogue). `corner` is
// where it begins in c.
void finish(const Gemm& g, float* c, Index corner, Index rows, Index columns) {
  for (Index i = 0; i < rows; ++i, corner += g.c_row)
    for (Index j = 0; j < columns; j += kLanes) {
      const Index n = columns - j, at = corner + j;
      Vec y = load_up_to(c + at, n);
      if (g.epilogue != Epilogue::none) {
        const bool forward = g.epilogue == Epilogue::gelu;
        const Vec x = forward ? y : load_up_to(g.saved + at, n), gate = functors::GeluTanh::gate(x);
        store_up_to(g.saved + at, forward ? x : x * gate, n);
        y = forward ? x * gate : select(y == 0.0f, Vec{}, y * functors::GeluTanh::slope(x, gate));
      }
      if (g.residual) y += load_up_to(g.residual + at, n);
      store_up_to(c + at, y, n);
    }
}

// One matrix product in blocks, by all threads.
template <class Numbers> struct Large {
  const Gemm& g;
  float* c;
  const float *a, *b;
  Index kc, nc, mc;                    // sizes of a block
  Index row_blocks, column_cuts, cut;  // the pieces of work: blocks of rows, and where these are few, cuts of columns
  bool packs_a;

  Large(const Gemm& gemm, float* to, const float* left, const float* right, Index block)
      : g(gemm),
        c(to),
        a(left),
        b(right),
        kc(std::min(block, g.K)),
        nc(std::min(NC, (g.N + NR - 1) / NR * NR)),
        mc(std::clamp((g.M + pieces() - 1) / pieces() / MR * MR, Index(MR) * 4, MC)),
        row_blocks((g.M + mc - 1) / mc),
        column_cuts(std::clamp<Index>(pieces() / row_blocks, 1, nc / NR)),
        cut((nc / NR + column_cuts - 1) / column_cuts * NR),
        // Packing a pays when its panels are read often, or when what a tile reads of it lies far apart, which costs
        // cache sets and translations of addresses. Pairs of k must be packed.
        packs_a(Numbers::kStep > 1 || g.N > 4 * NR || g.a_row % 1024 == 0 || (g.a_col != 1 && g.N > NR)) {}

  // How many pieces there should be at least. No element of c is cut, so that this may depend on the threads.
  static Index pieces() { return threads() == 1 ? 1 : 6 * threads(); }

  void run() const {
    const bool shares_a = packs_a && column_cuts > 1;
    Tensor space_a = Tensor::empty({!packs_a ? 0 : (shares_a ? row_blocks : Index(threads())) * mc * kc});
    Tensor space_b = Tensor::empty({kc * nc});
    float *panels_a = space_a.data(), *panels_b = space_b.data();
    for (Index j0 = 0; j0 < g.N; j0 += nc)
      for (Index k0 = 0; k0 < g.K; k0 += kc) {
        const Index n = std::min(nc, g.N - j0), k = std::min(kc, g.K - k0), entries = entries_of<Numbers>(k);
        const auto pack_a = [&](float* out, Index i, Index m) {
          pack_panels<Numbers, MR>(out, a + i * g.a_row + k0 * g.a_col, g.a_row, g.a_col, m, k);
        };
        parallel_for((n + NR - 1) / NR, std::max<Index>(1, 8192 / k), [&](Index begin, Index end) {
          pack_panels<Numbers, NR>(panels_b + begin * NR * entries, b + k0 * g.b_row + (j0 + begin * NR) * g.b_col,
                                   g.b_col, g.b_row, std::min(end * NR, n) - begin * NR, k);
        });
        if (shares_a) parallel_for(g.M, mc, [&](Index i, Index end) { pack_a(panels_a + i * entries, i, end - i); });
        parallel_for(row_blocks * column_cuts, 1, [&](Index piece, Index) {
          const Index i0 = piece / column_cuts * mc, m = std::min(mc, g.M - i0), first = piece % column_cuts * cut;
          if (first >= n) return;
          float* rows = !packs_a ? nullptr : shares_a ? panels_a + i0 * entries : panels_a + thread_index() * mc * kc;
          // A piece packs its own rows, which then are in its core's cache, unless other pieces need the same.
          if (packs_a && !shares_a) pack_a(rows, i0, m);
          block(i0, m, j0 + first, std::min(cut, n - first), k0, k, rows, panels_b + first * entries);
        });
      }
  }

  // Rows [i0, i0+m) by columns [j0, j0+n) of c over k values from k0 on; panels_a null: a is read where it is.
  void block(Index i0, Index m, Index j0, Index n, Index k0, Index k, const float* panels_a,
             const float* panels_b) const {
    const Index entries = entries_of<Numbers>(k);
    const bool last = k0 + k == g.K && (g.epilogue != Epilogue::none || g.residual);
    for (Index j = 0; j < n; j += NR) {
      const Index columns = std::min(NR, n - j), corner = i0 * g.c_row + j0 + j;
      for (Index i = 0; i < m; i += MR) {
        const Index height = std::min<Index>(MR, m - i), place = corner + i * g.c_row;
        const Target out{c + place, g.c_row, g.bias && k0 == 0 ? g.bias + j0 + j : nullptr, g.c.add || k0 > 0};
        const float* panel_b = panels_b + j * entries;
        if (last) prefetch_for_finish(g, place, height, columns);
        if (panels_a)
          any_tile<Numbers, true>(height, columns, out, PackedRows{panels_a + i * entries}, panel_b, NR, entries);
        else
          any_tile<Numbers, true>(height, columns, out,
                                  StridedRows{a + (i0 + i) * g.a_row + k0 * g.a_col, g.a_row, g.a_col}, panel_b, NR,
                                  entries);
        if (last) finish(g, c, place, height, columns);
      }
    }
  }
};

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
  if (g.epilogue != Epilogue::none || g.residual) finish(g, c, 0, g.M, g.N);
}

// The product of operands rounded to bfloat16, for sizes (or processors) without pairs: floats again, in `scratch`
// [M*K + K*N]. Neighbours in k are exchanged, so that the odd one of a pair is added first, as the instruction for
// pairs does; a product of two bfloat16 is exact in float, so that the sums are the same to the last bit.
Gemm rounded(const Gemm& g, const float* a, const float* b, float* scratch) {
  Gemm h = g;
  h.a = scratch, h.a_row = g.K, h.a_col = 1;
  h.b = scratch + g.M * g.K, h.b_row = g.N, h.b_col = 1;
  const auto round = [](float x) { return bits_to_float(bf16_bits(splat(x)))[0]; };
  for (Index k = 0; k < g.K; ++k) {
    const Index place = (k ^ 1) < g.K ? k ^ 1 : k;
    for (Index i = 0; i < g.M; ++i) scratch[i * g.K + place] = round(a[i * g.a_row + k * g.a_col]);
    for (Index j = 0; j < g.N; ++j) scratch[g.M * g.K + place * g.N + j] = round(b[k * g.b_row + j * g.b_col]);
  }
  return h;
}

void large_product(const Gemm& g, float* c, const float* a, const float* b) {
  if (!g.bf16) return Large<Floats>(g, c, a, b, KC).run();
#if defined(__AVX512BF16__)
  Large<Bf16Pairs>(g, c, a, b, 2 * KC).run();
#else
  Tensor scratch = Tensor::empty({(g.M + g.N) * g.K});
  const Gemm h = rounded(g, a, b, scratch.data());
  Large<Floats>(h, c, h.a, h.b, 2 * KC).run();
#endif
}

}  // namespace

void small_product(float* c, Index c_row, Strided a, const float* b, Index b_row, Index M, Index N, Index K, bool add) {
  for (Index j = 0, columns; j < N; j += columns) {
    columns = tile_columns(N - j);
    for (Index i = 0; i < M; i += MR)
      any_tile<Floats, false>(std::min<Index>(MR, M - i), std::min(columns, N - j),
                              Target{c + i * c_row + j, c_row, nullptr, add},
                              StridedRows{a.p + i * a.row, a.row, a.col}, b + j, b_row, K);
  }
}

void transpose_tile(float* y, Index y_row, const float* x, Index x_row, Index rows, Index cols) {
  for (Index r = 0; r < rows; r += kLanes)
    for (Index c = 0; c < cols; c += kLanes) {
      Vec block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) block[i] = r + i < rows ? load_up_to(x + (r + i) * x_row + c, cols - c) : Vec{};
      transpose_lanes(block);
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j)
        if (c + j < cols) store_up_to(y + (c + j) * y_row + r, block[j], rows - r);
    }
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
  // One product is worth packing from some size on. Many of them keep all threads busy as small ones, which is better
  // for narrow c; but pairs of bfloat16 must be packed (and processors without pairs must cut K in the same places).
  const bool pays = batches == 1 || (work >= 256 * 256 * 256 && g.N > 4 * kLanes) || g.bf16;
  const bool large = g.K > 0 && work >= 64 * 64 * 64 && pays;
  if (large) {
    for (Index i = 0; i < batches; ++i)
      with_batch(i, [&](float* c, const float* a, const float* b) { large_product(g, c, a, b); });
    return;
  }
  const Index room = g.bf16 ? (g.M + g.N) * g.K : g.b_col != 1 ? g.K * g.N : 0;
  Tensor scratch = Tensor::empty({threads() * room});
  parallel_for(batches, grain_for(work, 1 << 18), [&](Index begin, Index end) {
    float* own = scratch.data() + thread_index() * room;
    for (Index i = begin; i < end; ++i)
      with_batch(i, [&](float* c, const float* a, const float* b) {
        if (!g.bf16) return serial_product(g, c, a, b, own);
        const Gemm h = rounded(g, a, b, own);
        serial_product(h, c, h.a, h.b, nullptr);
      });
  });
}

}  // namespace flexformer::cpu
