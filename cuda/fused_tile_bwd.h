// What the backward kernels of fused attention begin with: the gradients that a query's output hands on, chunks of
// queries in shared memory, a warp's keys, and the map's own gradient. math.md (3.6) has the names.
#pragma once
#include "cuda/fused_state.h"

namespace flexformer::cuda {

// The largest log-weight before token i, in whose unit states before it are.
template <class T> __device__ float max_before(const FusedBwd<T>& k, Index head, Index i) {
  if (!k.causal) return k.running_max[head * k.size.Nq];
  return i == 0 ? -INFINITY : k.running_max[head * k.size.Nq + i - 1];
}

// A warp's 16 queries: G_i = dout_i / D_i as operand a, and of rows lane_row() and lane_row() + 8 the rest. A query
// that saw no key has D = u = 0, and gives nothing; one that does not exist has a maximum that no weight survives.
template <int kD> struct QueryRows {
  OperandA G[kD / 16];
  float max[2], through_den[2], floored[2];  // m_i, u_i e_i, h_i = (1 - u_i) floor e_i

  template <class T> __device__ void load(const FusedBwd<T>& k, const SegmentPlace& at, Index first) {
    bool there[2];
    float D[2], u[2], inverse[2], through_out[2] = {0, 0};
    for (int i = 0; i < 2; ++i) {
      const Index row = first + lane_row() + 8 * i, r = at.head * k.size.Nq + row;
      there[i] = row < k.size.Nq;
      D[i] = there[i] ? k.denominator[r] : 0.0f;
      u[i] = there[i] ? k.unfloored[r] : 0.0f;
      max[i] = there[i] ? k.running_max[r] : 3e38f;
      there[i] = D[i] != 0 || u[i] != 0;
      inverse[i] = there[i] ? 1 / D[i] : 0.0f;
    }
    const T *dout = k.dout.of(at.b, at.h), *out = k.out.of(at.b, at.h);
#pragma unroll
    for (int block = 0; block < kD / 16; ++block)
      for_pairs([&](int i, int r, int c) {
        const int half = i % 2;
        float2 g{0, 0}, y{0, 0};
        if (there[half]) {
          g = load_two(dout + (first + r) * k.dout.row + 16 * block + c);
          y = load_two(out + (first + r) * k.out.row + 16 * block + c);
        }
        G[block].x[i] = pack(inverse[half] * g.x, inverse[half] * g.y);
        const float2 rounded = unpack(G[block].x[i]);
        through_out[half] += rounded.x * y.x + rounded.y * y.y;
      });
    for (int i = 0; i < 2; ++i) {
      const float e = -quad_sum(through_out[i]);
      through_den[i] = u[i] != 0 ? e : 0.0f;
      floored[i] = u[i] != 0 ? 0.0f : k.floor * e;
    }
  }
};

// A chunk of queries in shared memory.
template <int kD> struct QueryPlanes {
  Plane f, y;                          // [kChunk,M] features; [kChunk,kD+8] G and u e
  float *max, *through_den, *floored;  // [kChunk]

  HD QueryPlanes(Carver& carve, int M)
      : f(carve.plane(kChunk, M)),
        y(carve.plane(kChunk, kD)),
        max(carve.floats(kChunk)),
        through_den(carve.floats(kChunk)),
        floored(carve.floats(kChunk)) {}

  // By all threads, each warp 16 rows.
  template <class T>
  __device__ void load(const FusedBwd<T>& k, const SegmentPlace& at, Index first, const Frequencies& w) const {
    first += warp_first_row();
    const bool there[2] = {first + lane_row() < k.size.Nq, first + lane_row() + 8 < k.size.Nq};
    const Rows<T, kD> q(k.q.of(at.b, at.h), k.q.row, first, there);
    w.put_features(f, q);
    QueryRows<kD> rows;
    rows.load(k, at, first);
#pragma unroll
    for (int block = 0; block < kD / 16; ++block)
      for_pairs([&](int i, int r, int c) { y.put(warp_first_row() + r, 16 * block + c, rows.G[block].x[i]); });
    for (int i = 0; i < 2; ++i) {
      const int own = warp_first_row() + lane_row() + 8 * i;
      y.put(own, kD + lane_column(), lane_column() == 0 ? pack(rows.through_den[i], 0) : 0);
      if (lane_column() != 0) continue;
      max[own] = rows.max[i];
      through_den[own] = rows.through_den[i];
      floored[own] = rows.floored[i];
    }
  }
  // exp(before - m_i), what a query counts for in a state with that unit.
  __device__ PerToken kept(float before) const {
    const PerToken most = PerToken::from(max);
    return {{remaining(before, most.x[0]), remaining(before, most.x[1])}};
  }
  // sum_i kept_i h_i
  __device__ float sum_floored(const PerToken& kept) const {
    const PerToken h = PerToken::from(floored);
    return PerToken{{kept.x[0] * h.x[0], kept.x[1] * h.x[1]}}.sum();
  }
};

// A warp's 16 keys.
template <class T, int kD> struct KeyRows {
  ParkedRows<T, kD> x;
  float lw[2], b[2];  // log-weights, and exp(lw_j - unit) in the unit of R

  __device__ KeyRows(const KeyStates<T>& s, const SegmentPlace& at, const Rows<T, kD>& rows, const bool (&seen)[2],
                     float unit, const Plane& parked)
      : x(parked, rows) {
    for (int i = 0; i < 2; ++i) {
      lw[i] = seen[i] ? log_weight(s.map, at.h, rows.squares[i]) : -INFINITY;
      b[i] = weight_of(lw[i], unit);
    }
  }
  __device__ bool seen(int half) const { return lw[half] != -INFINITY; }
  // Of key lane_row() + 8 half and query i of the chunk.
  __device__ float weight(int half, int i, const float* max) const {
    return i >= warp_first_row() + lane_row() + 8 * half ? weight_of(lw[half], max[i]) : 0.0f;
  }
};

// z, the state's column of ones, for column c of a tile of features m ..
template <int kD> __device__ float of_ones(const Plane& state, int m, int c) {
  return __bfloat162float(state.p[(m + c) * state.row + kD]);
}
// dF = row[] o (y S^T + one[] z^T), for features m .. m + 16: what a state gives to the features of a warp's rows,
// whose other factor is y.
template <int kD>
__device__ void through_state(Sums (&df)[2], const OperandA (&y)[kD / 16], const float (&one)[2], const float (&row)[2],
                              const Plane& state, int m) {
  df[0] = df[1] = {};
#pragma unroll
  for (int c = 0; c < kD / 16; ++c) mma(df[0], df[1], y[c], b_across(state, m, 16 * c));
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float z = of_ones<kD>(state, m, e / 4 * 8 + lane_column() + e % 2);
    float& x = df[e / 4].x[e % 4];
    x = row[e % 4 / 2] * (x + one[e % 4 / 2] * z);
  }
}

// dW = sum over a block's rows of dp^T x, both sets above each other; warps share its tiles of 16 rows.
template <int kD> struct MapGradient {
  Plane dp, x;  // [kChunk,sets*n] in room for all features; [kChunk,kD]
  int rows;     // sets * n
  Sums sum[kTilesOfWarp][kD / 8];

  HD MapGradient(Carver& carve, const Frequencies& w)
      : dp(carve.plane(kChunk, w.features())), x(carve.plane(kChunk, kD)), rows(w.sets * w.n) {}
  __device__ void clear() {
    for (auto& tile : sum)
      for (Sums& sums : tile) sums = {};
  }
  __device__ void add_chunk() {
#pragma unroll
    for (int tile = 0; tile < kTilesOfWarp; ++tile) {
      const int m = 16 * (warp_number() + kWarps * tile);
      if (m >= rows) break;
#pragma unroll
      for (int k = 0; k < kChunk; k += 16) {
        const OperandA a = a_down(dp, k, m);
#pragma unroll
        for (int c = 0; c < kD / 8; c += 2) mma(sum[tile][c], sum[tile][c + 1], a, b_down(x, k, 8 * c));
      }
    }
  }
  // Row r of a set goes to partial + set * of_set + r * kD.
  __device__ void store(float* partial, Index of_set, int n) const {
#pragma unroll
    for (int tile = 0; tile < kTilesOfWarp; ++tile)
#pragma unroll
      for (int e = 0; e < kD / 2; ++e) {
        const int m = 16 * (warp_number() + kWarps * tile) + lane_row() + e % 4 / 2 * 8;
        if (m < rows)
          partial[m / n * of_set + m % n * kD + e / 4 * 8 + lane_column() + e % 2] = sum[tile][e / 4].x[e % 4];
      }
  }
};

}  // namespace flexformer::cuda
