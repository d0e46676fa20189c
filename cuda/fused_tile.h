// What the kernels of fused attention share: their place, rows of a chunk as operands, projections and features.
// fused_attention.h has the plan, mma.h the fragments.
#pragma once
#include "cuda/fused_attention.h"

namespace flexformer::cuda {

constexpr int kFusedThreads = 128, kWarps = kFusedThreads / kWarp;
constexpr int kRowsOfWarp = 16;
constexpr int kMostFeatures = 128;                         // M = 2n
constexpr int kTilesOfWarp = kMostFeatures / 16 / kWarps;  // of 16 rows of a state, or of both sets' dW
static_assert(kWarps * kRowsOfWarp == kChunk);

__device__ inline int warp_number() { return int(threadIdx.x) / kWarp; }
__device__ inline int warp_first_row() { return warp_number() * kRowsOfWarp; }

// A segment's place, and the head's.
struct SegmentPlace {
  Index head, b, h, segment, first, last;
  // Of item number `item`, where each head has `count` of them, from segment `skipped` on.
  __device__ SegmentPlace(Index item, const Segments& cut, Index count, Index H, Index skipped = 0)
      : head(item / count),
        b(head / H),
        h(head % H),
        segment(item % count + skipped),
        first(segment * cut.length),
        last(smaller(cut.N, first + cut.length)) {}
};

// f<kD>() for the size of a head.
template <class F> auto with_head_size(Index d, F&& f) {
  return d == 32 ? f.template operator()<32>() : f.template operator()<64>();
}
// Whether the GPU multiplies bfloat16 on tensor cores (sm_80).
bool has_bf16_products();
// Whether a problem is for the fused kernels: the precision asks for them, and sizes and the GPU are fit.
bool is_for_fused(const FeatureMap& map, const AttentionSize& size, DType dtype, std::size_t shared_bytes);

template <class T> HD Heads<T> heads(const HeadsOut& x) {
  return {x.grad.p.as<T>(), x.batch, x.row, x.head, x.grad.add};
}
template <class T> HD Heads<const T> heads(const HeadsIn& x) { return {x.p.as<T>(), x.batch, x.row, x.head}; }

// Shared memory handed out piece by piece; without memory it counts bytes.
struct Carver {
  unsigned char* p;
  std::size_t used = 0;
  HD Plane plane(int rows, int columns) {
    const Plane made{reinterpret_cast<bf16*>(p + used), columns + 8};
    used += std::size_t(rows) * std::size_t(columns + 8) * sizeof(bf16);
    return made;
  }
  HD float* floats(int count) {
    float* made = reinterpret_cast<float*>(p + used);
    used += std::size_t(count) * sizeof(float);
    return made;
  }
};

// Calls f(register, row, column) for the four pairs of a lane's part of an operand a.
template <class F> __device__ void for_pairs(F&& f) {
#pragma unroll
  for (int i = 0; i < 4; ++i) f(i, lane_row() + i % 2 * 8, lane_column() + i / 2 * 8);
}
// What the four lanes that share rows hold, added.
__device__ inline float quad_sum(float x) {
  x += opposite(x, 1);
  return x + opposite(x, 2);
}

__device__ inline float2 load_two(const float* p) { return *reinterpret_cast<const float2*>(p); }
__device__ inline float2 load_two(const bf16* p) { return unpack(load_pair(p)); }
// Writes two neighbours of a gradient, or adds them.
__device__ inline void put_two(float* p, bool add, float2 x) {
  float2& to = *reinterpret_cast<float2*>(p);
  to = add ? make_float2(to.x + x.x, to.y + x.y) : x;
}
__device__ inline void put_two(bf16* p, bool add, float2 x) {
  if (add) {
    const float2 old = load_two(p);
    x = make_float2(old.x + x.x, old.y + x.y);
  }
  store_pair(p, pack(x.x, x.y));
}

// Writes or adds a warp's sums to its 16 rows of one head, first .., as far as there are N; not where nobody wants
// them.
template <class T, int kTiles>
__device__ void put_rows(const Heads<T>& to, const SegmentPlace& at, Index first, Index N, const Sums (&x)[kTiles]) {
  if (!to.p) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Index row = first + lane_row() + 8 * i;
    if (row >= N) continue;
    T* p = to.of(at.b, at.h) + row * to.row + lane_column();
#pragma unroll
    for (int c = 0; c < kTiles; ++c) put_two(p + 8 * c, to.add, make_float2(x[c].x[2 * i], x[c].x[2 * i + 1]));
  }
}

// 16 rows of a warp as operand a, with what rounding took from floats. Rows that are not `seen` are 0, whatever they
// hold.
template <class T, int kD> struct Rows {
  static constexpr bool kSplit = sizeof(T) == sizeof(float);
  OperandA high[kD / 16], low[kSplit ? kD / 16 : 1];
  float squares[2];  // of rows lane_row() and lane_row() + 8

  __device__ Rows(const T* p, Index row, Index first, const bool (&seen)[2]) : squares{0, 0} {
#pragma unroll
    for (int k = 0; k < kD / 16; ++k)
      for_pairs([&](int i, int r, int c) {
        const float2 x = seen[i % 2] ? load_two(p + (first + r) * row + 16 * k + c) : float2{0, 0};
        high[k].x[i] = pack(x.x, x.y);
        if constexpr (kSplit) low[k].x[i] = pack_rest(x.x, x.y);
        squares[i % 2] += x.x * x.x + x.y * x.y;
      });
    for (float& square : squares) square = quad_sum(square);
  }
  __device__ void put(const Plane& to) const {
#pragma unroll
    for (int k = 0; k < kD / 16; ++k)
      for_pairs([&](int i, int r, int c) { to.put(warp_first_row() + r, 16 * k + c, high[k].x[i]); });
  }
  __device__ OperandA operand(int k) const { return high[k]; }
};
// The same with the larger parts in a plane that put() has filled, for kernels that need the registers.
template <class T, int kD> struct ParkedRows {
  static constexpr bool kSplit = Rows<T, kD>::kSplit;
  Plane high;
  OperandA low[kSplit ? kD / 16 : 1];

  __device__ ParkedRows(const Plane& plane, const Rows<T, kD>& x) : high(plane) {
    x.put(plane);
    if constexpr (kSplit)
      for (int k = 0; k < kD / 16; ++k) low[k] = x.low[k];
  }
  __device__ OperandA operand(int k) const { return a_across(high, warp_first_row(), 16 * k); }
  // Columns 8 c + lane_column() and the next of row lane_row() + 8 half.
  __device__ float2 two(int c, int half) const {
    float2 x = unpack(high.get(warp_first_row() + lane_row() + 8 * half, 8 * c + lane_column()));
    if constexpr (kSplit) {
      const float2 rest = unpack(low[c / 2].x[half + c % 2 * 2]);
      x = make_float2(x.x + rest.x, x.y + rest.y);
    }
    return x;
  }
};

// Cosine and sine of an angle of any size. 1.5 * 2^23 leaves no bit for a fraction: adding it rounds.
struct Turn {
  float cosine, sine;
  __device__ explicit Turn(float p) {
    constexpr float whole = 12582912.0f;
    const float turns = std::fma(p, 0.15915494f, whole) - whole;
    const float angle = std::fma(-turns, 0.0019353072f, std::fma(-turns, 6.28125f, p));
    cosine = __cosf(angle);
    sine = __sinf(angle);
  }
};

// The map's matrices in shared memory: w1 above w2, in two parts.
struct Frequencies {
  Plane high, low;
  int n, sets;
  float root;  // what features are multiplied with

  HD Frequencies(Carver& carve, const FeatureMap& map, int d)
      : n(int(map.n)), sets(map.kind == FeatureKind::trig_n ? 2 : 1) {
    high = carve.plane(sets * n, d);
    low = carve.plane(sets * n, d);
    root = 1 / (std::sqrt(float(n)) * float(sets));
  }
  HD int features() const { return 2 * n; }
  // By all threads.
  template <int kD> __device__ void load(const FeatureMap& map, Index h) const {
    for (int e = int(threadIdx.x); e < sets * n * kD / 2; e += kFusedThreads) {
      const int r = e / (kD / 2), c = e % (kD / 2) * 2;
      const float* w = (r < n ? map.w1 : map.w2) + (h * n + r % n) * kD + c;
      high.put(r, c, pack(w[0], w[1]));
      low.put(r, c, pack_rest(w[0], w[1]));
    }
  }

  // Projections of 16 rows to frequencies 16 block .. of a set.
  template <template <class, int> class X, class T, int kD>
  __device__ void project(Sums (&p)[2], const X<T, kD>& x, int set, int block) const {
    p[0] = p[1] = {};
    const int row = set * n + 16 * block;
#pragma unroll
    for (int k = 0; k < kD / 16; ++k) {
      const OperandA a = x.operand(k);
      const OperandsB w = b_across(high, row, 16 * k);
      mma(p[0], p[1], a, w);
      if constexpr (X<T, kD>::kSplit) mma(p[0], p[1], x.low[k], w);
      mma(p[0], p[1], a, b_across(low, row, 16 * k));
    }
  }
  // Features 16 block .. and n + 16 block .. : the mean over the sets.
  template <class X> __device__ void features(Sums (&cosine)[2], Sums (&sine)[2], const X& x, int block) const {
    cosine[0] = cosine[1] = sine[0] = sine[1] = {};
    for (int set = 0; set < sets; ++set) {
      Sums p[2];
      project(p, x, set, block);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const Turn turn(p[e / 4].x[e % 4]);
        cosine[e / 4].x[e % 4] += root * turn.cosine;
        sine[e / 4].x[e % 4] += root * turn.sine;
      }
    }
  }
  // The way back from the gradients of a block's features: dp = root (cos p ds - sin p dc) goes to a plane
  // [kChunk,sets*n], and along[] += f . df of the lane's rows.
  template <class X>
  __device__ void back(const Plane& dp, float (&along)[2], const Sums (&dcosine)[2], const Sums (&dsine)[2], const X& x,
                       int block) const {
    for (int set = 0; set < sets; ++set) {
      Sums p[2];
      project(p, x, set, block);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const Turn turn(p[e / 4].x[e % 4]);
        const float dc = root * dcosine[e / 4].x[e % 4], ds = root * dsine[e / 4].x[e % 4];
        p[e / 4].x[e % 4] = turn.cosine * ds - turn.sine * dc;
        along[e % 4 / 2] += turn.cosine * dc + turn.sine * ds;
      }
      const OperandA a = operand_of(p);
      for_pairs([&](int i, int r, int c) { dp.put(warp_first_row() + r, set * n + 16 * block + c, a.x[i]); });
    }
  }
  // dx = dp W of the warp's rows, once all blocks have gone back.
  template <int kTiles> __device__ void inputs_back(Sums (&dx)[kTiles], const Plane& dp) const {
    __syncwarp();  // the warp's lanes have written dp
    for (int row = 0; row < sets * n; row += 16) {
      const OperandA a = a_across(dp, warp_first_row(), row);
#pragma unroll
      for (int c = 0; c < kTiles; c += 2) mma(dx[c], dx[c + 1], a, b_down(high, row, 8 * c));
    }
  }
  // All features of the warp's rows, into shared memory.
  template <class X> __device__ void put_features(const Plane& to, const X& x) const {
    for (int block = 0; block < n / 16; ++block) {
      Sums cosine[2], sine[2];
      features(cosine, sine, x, block);
      const OperandA of_cosine = operand_of(cosine), of_sine = operand_of(sine);
      for_pairs([&](int i, int r, int c) {
        to.put(warp_first_row() + r, 16 * block + c, of_cosine.x[i]);
        to.put(warp_first_row() + r, n + 16 * block + c, of_sine.x[i]);
      });
    }
  }
};

}  // namespace flexformer::cuda
