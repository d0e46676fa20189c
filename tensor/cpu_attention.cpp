// Softmax attention in tiles. Scores are kept transposed, a row for each key and a column for each query: then a query
// tile is transposed once for all keys, and maxima, sums and masks run along vectors of queries without a look across
// lanes. The backward pass makes a tile's weights again from the log-sum-exp of each row.
#include <cmath>

#include "tensor/cpu_feature_rows.h"
#include "tensor/cpu_gemm.h"
#include "tensor/cpu_row_dots.h"

namespace flexformer::cpu {
namespace {

constexpr Index kQueries = 64, kKeys = 64;  // a tile of scores is 16 KiB: it stays in the first-level cache
constexpr Index kStrip = 16;  // a tile on the diagonal is computed in strips, to skip what causality hides

Index tiles(Index n, Index tile) { return (n + tile - 1) / tile; }

// One head's view of the problem: what is common to both passes.
struct Tile {
  Index first, rows;
  Tile(Index index, Index size, Index total) : first(index * size), rows(std::min(size, total - index * size)) {}
};

bool any_visible(const std::int32_t* mask, Tile keys) {
  return !mask || std::any_of(mask + keys.first, mask + keys.first + keys.rows, [](std::int32_t m) { return m != 0; });
}

// Scores of a tile: s [kKeys,kQueries] = keys * queries^T; hidden ones become -infinity.
// On the diagonal (causal, first query = first key) key j is needed from query j on only.
void tile_products(float* s, const float* x, Index x_row, const float* y_transposed, Index width, Tile queries,
                   Tile keys, bool diagonal) {
  const Index strip = diagonal ? kStrip : keys.rows;
  for (Index j = 0; j < keys.rows; j += strip) {
    const Index i = diagonal ? j : 0;
    if (i >= queries.rows) break;
    small_product(s + j * kQueries + i, kQueries, {x + j * x_row, x_row, 1}, y_transposed + i, kQueries,
                  std::min(strip, keys.rows - j), queries.rows - i, width, false);
  }
}

// y [queries,width] += s^T x, s [kKeys,kQueries], x [keys,width].
void add_over_keys(float* y, Index y_row, const float* s, const float* x, Index x_row, Index width, Tile queries,
                   Tile keys, bool diagonal) {
  const Index strip = diagonal ? kStrip : queries.rows;
  for (Index i = 0; i < queries.rows; i += strip)
    small_product(y + i * y_row, y_row, {s + i, 1, kQueries}, x, x_row, std::min(strip, queries.rows - i), width,
                  diagonal ? std::min(keys.rows, i + strip) : keys.rows, true);
}

// y [keys,width] += s x, x [queries,width].
void add_over_queries(float* y, const float* s, const float* x, Index x_row, Index width, Tile queries, Tile keys,
                      bool diagonal) {
  const Index strip = diagonal ? kStrip : keys.rows;
  for (Index j = 0; j < keys.rows; j += strip) {
    const Index i = diagonal ? j : 0;
    if (i >= queries.rows) break;
    small_product(y + j * width, width, {s + j * kQueries + i, kQueries, 1}, x + i * x_row, x_row,
                  std::min(strip, keys.rows - j), width, queries.rows - i, true);
  }
}

// -infinity where a key is hidden from a query, for the vector of queries that starts at column i.
Vec hide(Vec score, Index i, Index j, const std::int32_t* mask, bool diagonal) {
  const Vec hidden = splat(-HUGE_VALF);
  if (mask && mask[j] == 0) return hidden;
  if (!diagonal || j <= i) return score;
  VecInt lane;
  for (int l = 0; l < kLanes; ++l) lane[l] = l;
  return select(lane >= splat_int(std::int32_t(j - i)), score, hidden);
}

// Number of keys of a tile on the diagonal that some query of the vector at column i sees.
Index keys_seen(Index i, Tile keys, bool diagonal) { return diagonal ? std::min(keys.rows, i + kLanes) : keys.rows; }

void transpose_scaled(float* y, const float* x, Index x_row, Index rows, Index width, float scale) {
  transpose_tile(y, kQueries, x, x_row, rows, width);
  for (Index i = 0; scale != 1.0f && i < width * kQueries; i += kLanes) store(y + i, scale * load(y + i));
}

struct ForwardWork {
  ForwardWork(Scratch& s, const AttentionSize& size)
      : queries(s.take(size.d * kQueries)),
        scores(s.take(kKeys * kQueries)),
        out(s.take(kQueries * size.dv)),
        max(s.take(kQueries)),
        sum(s.take(kQueries)),
        shrink(s.take(kQueries)) {}
  float* queries;             // [d,kQueries], scaled
  float* scores;              // [kKeys,kQueries]
  float* out;                 // [kQueries,dv]
  float *max, *sum, *shrink;  // [kQueries] running maximum, sum of exponentials, factor for what was summed so far

  // Replaces scores by exp(score - max), with max and sum brought up to date.
  void exponentials(Tile queries, Tile keys, const std::int32_t* mask, bool diagonal) {
    for (Index i = 0; i < queries.rows; i += kLanes) {
      const Index seen = keys_seen(i, keys, diagonal);
      const Vec before = load(max + i);
      Vec most = before;
      for (Index j = 0; j < seen; ++j) {
        const Vec score = hide(load(scores + j * kQueries + i), i, j, mask, diagonal);
        store(scores + j * kQueries + i, score);
        most = score > most ? score : most;
      }
      const Vec base = select(most == -HUGE_VALF, Vec{}, most);  // where no key is visible yet: exp(-inf - 0) = 0
      const Vec factor = exp(before - base);
      Vec total{};
      for (Index j = 0; j < seen; ++j) {
        const Vec weight = exp(load(scores + j * kQueries + i) - base);
        store(scores + j * kQueries + i, weight);
        total += weight;
      }
      for (Index j = seen; diagonal && j < std::min(keys.rows, (i / kStrip + 1) * kStrip); ++j)
        store(scores + j * kQueries + i, Vec{});
      store(max + i, most);
      store(shrink + i, factor);
      store(sum + i, load(sum + i) * factor + total);
    }
  }
};

void forward_tile(ForwardWork& work, const SoftmaxAttentionFwd& k, Index b, Index h, Tile queries) {
  const auto [B, H, Nq, Nk, d, dv] = k.size;
  const std::int32_t* mask = k.key_mask ? k.key_mask + b * Nk : nullptr;
  transpose_scaled(work.queries, row_of(k.q, b, h, queries.first), k.q.row, queries.rows, d, k.scale);
  std::fill_n(work.out, kQueries * dv, 0.0f);
  std::fill_n(work.max, kQueries, -HUGE_VALF);
  std::fill_n(work.sum, kQueries, 0.0f);
  for (Index t = 0; t < tiles(Nk, kKeys); ++t) {
    const Tile keys(t, kKeys, Nk);
    if (k.causal && keys.first > queries.first) break;
    if (!any_visible(mask, keys)) continue;
    const bool diagonal = k.causal && keys.first == queries.first;
    tile_products(work.scores, row_of(k.k, b, h, keys.first), k.k.row, work.queries, d, queries, keys, diagonal);
    work.exponentials(queries, keys, mask ? mask + keys.first : nullptr, diagonal);
    for (Index i = 0; i < queries.rows; ++i)
      if (work.shrink[i] != 1.0f) scale_row(work.out + i * dv, work.out + i * dv, work.shrink[i], dv);
    add_over_keys(work.out, dv, work.scores, row_of(k.v, b, h, keys.first), k.v.row, dv, queries, keys, diagonal);
  }
  float* lse = k.lse + (b * H + h) * Nq + queries.first;
  for (Index i = 0; i < queries.rows; ++i) {
    scale_row(work.out + i * dv, work.out + i * dv, work.sum[i] > 0 ? 1.0f / work.sum[i] : 0.0f, dv);
    lse[i] = work.max[i] + std::log(work.sum[i]);
  }
  store_rows(k.out, b, h, queries.first, work.out, queries.rows, dv);
}

}  // namespace

void run(const SoftmaxAttentionFwd& k) {
  const Index query_tiles = tiles(k.size.Nq, kQueries), pieces = k.size.B * k.size.H * query_tiles;
  PerThread<ForwardWork> works(pieces, k.size);
  parallel_for(pieces, 1, [&](Index piece, Index) {
    const Index head = piece / query_tiles;
    // Under causality later tiles cost more: they go first, so that no thread is left alone with one.
    const Tile queries(query_tiles - 1 - piece % query_tiles, kQueries, k.size.Nq);
    forward_tile(works.mine(), k, head / k.size.H, head % k.size.H, queries);
  });
}

namespace {

// The queries of one tile as the backward pass reads them.
struct QuerySlot {
  QuerySlot(Scratch& s, const AttentionSize& size)
      : q(s.take(size.d * kQueries)),
        dout(s.take(size.dv * kQueries)),
        lse(s.take(kQueries)),
        delta(s.take(kQueries)) {}
  float *q, *dout;     // [d,kQueries] scaled, [dv,kQueries]
  float *lse, *delta;  // [kQueries] delta_i = dout_i . out_i

  void load_from(const SoftmaxAttentionBwd& k, Index b, Index h, Tile queries) {
    transpose_scaled(q, row_of(k.q, b, h, queries.first), k.q.row, queries.rows, k.size.d, k.scale);
    transpose_scaled(dout, row_of(k.dout, b, h, queries.first), k.dout.row, queries.rows, k.size.dv, 1.0f);
    for (Index i = 0; i < kQueries; ++i) {
      const bool inside = i < queries.rows;
      const float lse_i = inside ? k.lse[(b * k.size.H + h) * k.size.Nq + queries.first + i] : 0.0f;
      lse[i] = lse_i == -HUGE_VALF ? HUGE_VALF : lse_i;  // no visible key: every weight is exp(-inf) = 0
      delta[i] = inside
                     ? dot(row_of(k.dout, b, h, queries.first + i), row_of(k.out, b, h, queries.first + i), k.size.dv)
                     : 0.0f;
    }
  }
};

struct BackwardWork {
  BackwardWork(Scratch& s, const AttentionSize& size, Index slot_count)
      : weights(s.take(kKeys * kQueries)),
        dscores(s.take(kKeys * kQueries)),
        dk(s.take(kKeys * size.d)),
        dv(s.take(kKeys * size.dv)),
        dq(s.take(slot_count * kQueries * size.d)) {
    for (Index i = 0; i < slot_count; ++i) slots.emplace_back(s, size);
  }
  float *weights, *dscores;      // [kKeys,kQueries]
  float *dk, *dv;                // [kKeys,d] [kKeys,dv]
  float* dq;                     // [slots,kQueries,d]
  std::vector<QuerySlot> slots;  // one for each query tile, or one for all

  // The weights of a pair of tiles and the gradient of their scores. False if no weight can be other than zero.
  bool pair(const SoftmaxAttentionBwd& k, Index b, Index h, const QuerySlot& slot, Tile queries, Tile keys,
            bool diagonal) {
    const std::int32_t* mask = k.key_mask ? k.key_mask + b * k.size.Nk : nullptr;
    if (!any_visible(mask, keys)) return false;
    tile_products(weights, row_of(k.k, b, h, keys.first), k.k.row, slot.q, k.size.d, queries, keys, diagonal);
    tile_products(dscores, row_of(k.v, b, h, keys.first), k.v.row, slot.dout, k.size.dv, queries, keys, diagonal);
    if (mask) mask += keys.first;
    for (Index i = 0; i < queries.rows; i += kLanes) {
      const Vec lse = load(slot.lse + i), delta = load(slot.delta + i);
      const Index seen = keys_seen(i, keys, diagonal);
      for (Index j = 0; j < seen; ++j) {
        float *weight = weights + j * kQueries + i, *dscore = dscores + j * kQueries + i;
        const Vec w = exp(hide(load(weight), i, j, mask, diagonal) - lse);
        store(weight, w);
        store(dscore, select(w == 0.0f, Vec{}, w * (load(dscore) - delta)));
      }
      for (Index j = seen; diagonal && j < std::min(keys.rows, (i / kStrip + 1) * kStrip); ++j) {
        store(weights + j * kQueries + i, Vec{});
        store(dscores + j * kQueries + i, Vec{});
      }
    }
    return true;
  }

  void add_to_keys(const SoftmaxAttentionBwd& k, Index b, Index h, Tile queries, Tile keys, bool diagonal) {
    const float *q = row_of(k.q, b, h, queries.first), *dout = row_of(k.dout, b, h, queries.first);
    if (k.dk.grad) add_over_queries(dk, dscores, q, k.q.row, k.size.d, queries, keys, diagonal);
    if (k.dv.grad) add_over_queries(dv, weights, dout, k.dout.row, k.size.dv, queries, keys, diagonal);
  }
  void add_to_queries(const SoftmaxAttentionBwd& k, Index b, Index h, float* dq_tile, Tile queries, Tile keys,
                      bool diagonal) {
    add_over_keys(dq_tile, k.size.d, dscores, row_of(k.k, b, h, keys.first), k.k.row, k.size.d, queries, keys,
                  diagonal);
  }

  void clear_keys(const AttentionSize& size) {
    std::fill_n(dk, kKeys * size.d, 0.0f);
    std::fill_n(dv, kKeys * size.dv, 0.0f);
  }
  void store_keys(const SoftmaxAttentionBwd& k, Index b, Index h, Tile keys) {
    scale_row(dk, dk, k.scale, keys.rows * k.size.d);
    if (k.dk.grad) store_rows(k.dk, b, h, keys.first, dk, keys.rows, k.size.d);
    if (k.dv.grad) store_rows(k.dv, b, h, keys.first, dv, keys.rows, k.size.dv);
  }
  void store_queries(const SoftmaxAttentionBwd& k, Index b, Index h, float* dq_tile, Tile queries) {
    scale_row(dq_tile, dq_tile, k.scale, queries.rows * k.size.d);
    store_rows(k.dq, b, h, queries.first, dq_tile, queries.rows, k.size.d);
  }
};

// Everything of one head: each pair of tiles is made once.
void backward_head(BackwardWork& work, const SoftmaxAttentionBwd& k, Index b, Index h) {
  const Index query_tiles = tiles(k.size.Nq, kQueries), dq_size = kQueries * k.size.d;
  for (Index t = 0; t < query_tiles; ++t) work.slots[std::size_t(t)].load_from(k, b, h, Tile(t, kQueries, k.size.Nq));
  if (k.dq.grad) std::fill_n(work.dq, query_tiles * dq_size, 0.0f);
  for (Index s = 0; s < tiles(k.size.Nk, kKeys); ++s) {
    const Tile keys(s, kKeys, k.size.Nk);
    work.clear_keys(k.size);
    for (Index t = k.causal ? s : 0; t < query_tiles; ++t) {
      const Tile queries(t, kQueries, k.size.Nq);
      const bool diagonal = k.causal && s == t;
      if (!work.pair(k, b, h, work.slots[std::size_t(t)], queries, keys, diagonal)) continue;
      work.add_to_keys(k, b, h, queries, keys, diagonal);
      if (k.dq.grad) work.add_to_queries(k, b, h, work.dq + t * dq_size, queries, keys, diagonal);
    }
    work.store_keys(k, b, h, keys);
  }
  for (Index t = 0; k.dq.grad && t < query_tiles; ++t)
    work.store_queries(k, b, h, work.dq + t * dq_size, Tile(t, kQueries, k.size.Nq));
}

// The gradients of one tile of keys, and of one tile of queries: for few long heads, where tiles are spread over the
// threads and each pair is made twice. Every sum runs in the same order as in backward_head.
void backward_keys(BackwardWork& work, const SoftmaxAttentionBwd& k, Index b, Index h, Index s) {
  const Tile keys(s, kKeys, k.size.Nk);
  work.clear_keys(k.size);
  for (Index t = k.causal ? s : 0; t < tiles(k.size.Nq, kQueries); ++t) {
    const Tile queries(t, kQueries, k.size.Nq);
    const bool diagonal = k.causal && s == t;
    work.slots[0].load_from(k, b, h, queries);
    if (work.pair(k, b, h, work.slots[0], queries, keys, diagonal)) work.add_to_keys(k, b, h, queries, keys, diagonal);
  }
  work.store_keys(k, b, h, keys);
}
void backward_queries(BackwardWork& work, const SoftmaxAttentionBwd& k, Index b, Index h, Index t) {
  const Tile queries(t, kQueries, k.size.Nq);
  work.slots[0].load_from(k, b, h, queries);
  std::fill_n(work.dq, kQueries * k.size.d, 0.0f);
  for (Index s = 0; s < (k.causal ? t + 1 : tiles(k.size.Nk, kKeys)); ++s) {
    const Tile keys(s, kKeys, k.size.Nk);
    const bool diagonal = k.causal && s == t;
    if (work.pair(k, b, h, work.slots[0], queries, keys, diagonal))
      work.add_to_queries(k, b, h, work.dq, queries, keys, diagonal);
  }
  work.store_queries(k, b, h, work.dq, queries);
}

}  // namespace

void run(const SoftmaxAttentionBwd& k) {
  const Index heads = k.size.B * k.size.H, H = k.size.H;
  const Index query_tiles = tiles(k.size.Nq, kQueries), key_tiles = tiles(k.size.Nk, kKeys);
  if (2 * heads > threads() || query_tiles * key_tiles < 4) {
    PerThread<BackwardWork> works(heads, k.size, query_tiles);
    parallel_for(heads, 1, [&](Index head, Index) { backward_head(works.mine(), k, head / H, head % H); });
    return;
  }
  PerThread<BackwardWork> works(heads * std::max(query_tiles, key_tiles), k.size, Index(1));
  if (k.dk.grad || k.dv.grad)
    parallel_for(heads * key_tiles, 1, [&](Index piece, Index) {
      const Index head = piece / key_tiles;
      backward_keys(works.mine(), k, head / H, head % H, piece % key_tiles);
    });
  if (k.dq.grad)
    parallel_for(heads * query_tiles, 1, [&](Index piece, Index) {
      const Index head = piece / query_tiles;
      backward_queries(works.mine(), k, head / H, head % H, query_tiles - 1 - piece % query_tiles);
    });
}

namespace {

// out [dv] = sum_j w_j values_j, sums of even and odd keys apart: two chains of additions wait less than one.
void weighted_sum(float* out, const float* w, const float* values, Index length, Index dv) {
  constexpr int vectors = 4;
  for (Index c = 0; c < dv; c += vectors * kLanes) {
    Vec sum[2][vectors] = {};
    const auto add = [&](int chain, Index j) {
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i)
        if (const Index at = c + i * kLanes; at < dv) sum[chain][i] += w[j] * load_up_to(values + j * dv + at, dv - at);
    };
    Index j = 0;
    for (; j + 2 <= length; j += 2) add(0, j), add(1, j + 1);
    if (j < length) add(0, j);
    for (int i = 0; i < vectors; ++i)
      if (const Index at = c + i * kLanes; at < dv) store_up_to(out + at, sum[0][i] + sum[1][i], dv - at);
  }
}

}  // namespace

void run(const SoftmaxAttentionStep& k) {
  const Index heads = k.B * k.H, share = k.H / std::max<Index>(1, k.kv_heads), room = (k.length + 15) / 16 * 16;
  Tensor weights = Tensor::empty({threads() * room});
  parallel_for(heads, grain_for(k.length * (k.d + k.dv), Index(1) << 17), [&](Index begin, Index end) {
    float* w = weights.data() + thread_index() * room;
    for (Index head = begin; head < end; ++head) {
      const Index cache = head / share * k.capacity;
      row_dots(w, k.keys + cache * k.d, k.d, k.length, k.q + head * k.d, k.d);
      scale_row(w, w, k.scale, k.length);
      const float sum = k.length ? exp_row(w, w, 1, largest(w, 1, k.length), 1, k.length) : 1.0f;
      float* out = k.out + head * k.dv;
      weighted_sum(out, w, k.values + cache * k.dv, k.length, k.dv);
      scale_row(out, out, 1.0f / sum, k.dv);
    }
  });
}

}  // namespace flexformer::cpu
