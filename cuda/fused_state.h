// The state that a block of fused attention carries from chunk to chunk, and a chunk of keys that goes into it.
#pragma once
#include "cuda/fused_tile.h"

namespace flexformer::cuda {

// A number of each token of a chunk: lane l of every warp holds those of tokens l and 32 + l.
struct PerToken {
  float x[2];
  __device__ static PerToken from(const float* p) {
    const int lane = int(threadIdx.x) % kWarp;
    return {p[lane], p[kWarp + lane]};
  }
  __device__ float of(int i) const {  // all lanes ask for the same half
    return __shfl_sync(kAllLanes, i < kWarp ? x[0] : x[1], i % kWarp);
  }
  __device__ float sum() const {
    float sum = x[0] + x[1];
    for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += opposite(sum, distance);
    return sum;
  }
  // The largest up to each token, and of what was before.
  __device__ PerToken running_max(float before) const {
    PerToken most = *this;
    for (float& value : most.x) {
      for (int distance = 1; distance < kWarp; distance *= 2)
        value = Max::combine(value, __shfl_up_sync(kAllLanes, value, unsigned(distance)));
      value = Max::combine(value, before);
      before = __shfl_sync(kAllLanes, value, kWarp - 1);
    }
    return most;
  }
};

// lw_j of a key that is seen.
__device__ inline float log_weight(const FeatureMap& map, Index h, float squares) {
  const float lw = map.tau ? squares * std::exp(-map.tau[h]) : 0.0f;
  return lw < 3e38f ? lw : 3e38f;
}
// exp(lw - max), as exact as its rounding to bfloat16 needs.
__device__ inline float weight_of(float lw, float max) { return __expf(lw - shift_for(max)); }

// Weights of a chunk's keys.
struct ChunkWeights {
  PerToken running;   // m_i, of the queries beside them
  float after, left;  // the largest so far; what remains of earlier sums in that unit
  PerToken w;         // exp(lw_j - after)
  __device__ ChunkWeights(const float* lw, float before) {
    const PerToken own = PerToken::from(lw);
    running = own.running_max(before);
    after = running.of(kChunk - 1);
    left = remaining(before, after);
    for (int i = 0; i < 2; ++i) w.x[i] = weight_of(own.x[i], after);
  }
};

// A state sum_r w_r f_r [y_r, 1] [M,kD+1] over rows so far. It is read as `high`, a plane [M,kD+8] whose column kD
// belongs to the ones; what that rounded away stays with the threads that add to it.
template <int kD> struct State {
  static constexpr int kColumns = kD / 8 + 1;
  Plane high;
  int M;
  std::uint32_t low[kTilesOfWarp][kColumns][2];

  HD static Plane plane(Carver& carve, int M) { return carve.plane(M, kD); }

  // Calls f(row, column, low part) for the pairs that this thread adds to.
  template <class F> __device__ void for_own(F&& f) {
#pragma unroll
    for (int tile = 0; tile < kTilesOfWarp; ++tile) {
      const int m = 16 * (warp_number() + kWarps * tile);
      if (m >= M) break;
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int i = 0; i < 2; ++i) f(m + lane_row() + 8 * i, 8 * c + lane_column(), low[tile][c][i]);
    }
  }
  __device__ void clear() {
    for_own([&](int r, int c, std::uint32_t& rest) {
      high.put(r, c, 0);
      rest = 0;
    });
  }
  // From and to memory, [M,kD+1].
  __device__ void load(const float* from) {
    for_own([&](int r, int c, std::uint32_t& rest) {
      const float* x = from + r * (kD + 1) + c;
      const float first = c <= kD ? x[0] : 0.0f, second = c < kD ? x[1] : 0.0f;
      high.put(r, c, pack(first, second));
      rest = pack_rest(first, second);
    });
  }
  __device__ void store(float* to) {
    for_own([&](int r, int c, std::uint32_t& rest) {
      const float2 big = unpack(high.get(r, c)), small = unpack(rest);
      if (c <= kD) to[r * (kD + 1) + c] = big.x + small.x;
      if (c < kD) to[r * (kD + 1) + c + 1] = big.y + small.y;
    });
  }

  // S = left S + (w o F)^T Y over a chunk; w is 1 where `weighs` is false. Before: all are done with S, and F and Y are
  // there. After: nobody may read S, nor write F and Y, before a barrier.
  __device__ void take_in(const Plane& f, const Plane& y, const PerToken& w, bool weighs, float left) {
#pragma unroll
    for (int tile = 0; tile < kTilesOfWarp; ++tile) {
      const int m = 16 * (warp_number() + kWarps * tile);
      if (m >= M) break;
      Sums sum[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float2 big = unpack(high.get(m + lane_row() + 8 * i, 8 * c + lane_column()));
          const float2 small = unpack(low[tile][c][i]);
          sum[c].x[2 * i] = left * (big.x + small.x);
          sum[c].x[2 * i + 1] = left * (big.y + small.y);
        }
#pragma unroll
      for (int k = 0; k < kChunk; k += 16) {
        OperandA a = a_down(f, k, m);
        if (weighs) weigh(a, w, k);
#pragma unroll
        for (int c = 0; c + 1 < kColumns; c += 2) mma(sum[c], sum[c + 1], a, b_down(y, k, 8 * c));
        mma(sum[kColumns - 1], a, b_down_8(y, k, kD));
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float first = sum[c].x[2 * i], second = sum[c].x[2 * i + 1];
          high.put(m + lane_row() + 8 * i, 8 * c + lane_column(), pack(first, second));
          low[tile][c][i] = pack_rest(first, second);
        }
    }
  }

 private:
  // Columns of a, which are tokens k .., times their weights.
  __device__ static void weigh(OperandA& a, const PerToken& w, int k) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int token = k + lane_column() + i * 4;
      const float first = w.of(token), second = w.of(token + 1);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float2 x = unpack(a.x[i + row]);
        a.x[i + row] = pack(first * x.x, second * x.y);
      }
    }
  }
};

// A chunk of keys in shared memory.
template <int kD> struct KeyPlanes {
  Plane f, y;  // [kChunk,M] features; [kChunk,kD+8] values and a one. 0 where a key is hidden or there is none
  float* lw;   // [kChunk] log-weights, -infinity there

  HD KeyPlanes(Carver& carve, int M)
      : f(carve.plane(kChunk, M)), y(carve.plane(kChunk, kD)), lw(carve.floats(kChunk)) {}

  // By all threads, each warp 16 rows.
  template <class T>
  __device__ void load(const KeyStates<T>& s, const SegmentPlace& at, Index first, const Frequencies& w) const {
    first += warp_first_row();
    const bool seen[2] = {s.seen(at.b, first + lane_row()), s.seen(at.b, first + lane_row() + 8)};
    const Rows<T, kD> x(s.k.of(at.b, at.h), s.k.row, first, seen);
    w.put_features(f, x);
    for (int i = 0; i < 2 && lane_column() == 0; ++i)
      lw[warp_first_row() + lane_row() + 8 * i] = seen[i] ? log_weight(s.map, at.h, x.squares[i]) : -INFINITY;
    const T* v = s.v.of(at.b, at.h);
    for (int e = int(threadIdx.x) % kWarp; e < kRowsOfWarp * (kD / 2 + 4); e += kWarp) {
      const int r = e / (kD / 2 + 4), c = e % (kD / 2 + 4) * 2;
      const bool there = s.seen(at.b, first + r);
      float2 two{c == kD && there ? 1.0f : 0.0f, 0};
      if (c < kD && there) two = load_two(v + (first + r) * s.v.row + c);
      y.put(warp_first_row() + r, c, pack(two.x, two.y));
    }
  }
};

}  // namespace flexformer::cuda
