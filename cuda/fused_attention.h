// Linear attention of trig_s and trig_n on tensor cores, in kernels that keep features and states to themselves. Taken
// where products are to read bfloat16; cuda/linear_attention*.cu serve every other case, and are the reference.
//
// A block of four warps walks over chunks of 64 tokens of one head, each warp with 16 rows, and carries the state
// S1 = [S, z] of math.md (3.3) to (3.5) from chunk to chunk in shared memory and registers. Projections, maps and
// weights exist for one chunk at a time. So that all multiprocessors have work, a head's sequence is cut in segments:
//
//   1. segment_states    each segment's keys summed by themselves, in the unit of their largest weight   (not the last)
//   2. scan_segments     one thread for each number of a state adds the segments up                    (math.md 3.13)
//   3. fused_outputs     each segment walked from the state before it
//
// and in the backward pass in the same way 1 and 2 for S1 and for R, the state of later queries, then query_gradients,
// which walks forward with S1, and key_gradients, which walks backward with R. The full form has one state for all.
// How a sequence is cut depends on the sizes alone, and so do the results.
//
// What is rounded. Operands of products are bfloat16, sums float. Rounding costs a feature, weight or value 2^-9 of
// itself. A projection must not be rounded so: it is an angle of any size, and 2^-9 of 50 radians is a tenth of one. So
// W is split in two bfloat16 that are W but for 2^-17, x likewise where it is float, and the product of two small parts
// is left out: one more product for bfloat16 inputs, two for float ones, and an error of 2^-16 of |W||x|. Angles are
// reduced to [-pi, pi] in float with 2 pi in two parts before the hardware's sine, whose error there, 2^-20, is far
// below the rounding of a feature. States are kept in two bfloat16 as well, for they are read and added to all along.
#pragma once
#include "cuda/linear_state.h"
#include "cuda/mma.h"

namespace flexformer::cuda {

// One of q, k, v, out and their gradients, T float or bf16, through strides as HeadsIn.
template <class T> struct Heads {
  T* p;
  Index batch, row, head;
  bool add = false;  // of a gradient
  __device__ T* of(Index b, Index h) const { return p + b * batch + h * head; }
};

template <class T> struct FusedFwd {
  Heads<T> out;                                  // [B,Nq,H,d]
  float *running_max, *denominator, *unfloored;  // [B,H,Nq]
  Heads<const T> q, k, v;                        // [B,Nq,H,d] [B,Nk,H,d] [B,Nk,H,d]
  const std::int32_t* key_mask;                  // [B,Nk] or null
  FeatureMap map;
  AttentionSize size;
  float floor;
  bool causal;
};
template <class T> struct FusedBwd {
  Heads<T> dq, dk, dv;  // null where nobody wants them
  FeatureMapGrad dmap;
  Heads<const T> dout, out, q, k, v;
  const float *running_max, *denominator, *unfloored;  // [B,H,Nq]
  const std::int32_t* key_mask;                        // [B,Nk] or null
  FeatureMap map;
  AttentionSize size;
  float floor;
  bool causal;
};

// How a sequence is cut.
struct Segments {
  Index N, count, length;  // tokens, segments, tokens of a segment (a multiple of kChunk)
  Segments(Index N, Index heads);
};

// The first two steps for keys, and what all kernels need of them.
template <class T> struct KeyStates {
  Heads<const T> k, v;
  const std::int32_t* key_mask;
  FeatureMap map;
  AttentionSize size;
  bool causal;
  Segments cut;
  States S;              // slot s: of the keys before segment s, in units of exp(before), and the sum of their weights
  float *unit, *before;  // [B,H,segments] [B,H,segments+1] the largest log-weight of a segment, and before it

  template <class Problem>
  KeyStates(Scratch& memory, const Problem& p)
      : k(p.k),
        v(p.v),
        key_mask(p.key_mask),
        map(p.map),
        size(p.size),
        causal(p.causal),
        cut(size.Nk, size.B * size.H),
        S{nullptr, size.B * size.H, cut.count, 2 * map.n, size.dv + 1},
        unit(memory.take(S.heads * cut.count)),
        before(memory.take(S.heads * (cut.count + 1))) {
    S.p = memory.take(S.heads * (cut.count + 1) * S.size());
    run();
  }
  // Causal queries never see the last segment from outside.
  HD Index summed() const { return causal ? cut.count - 1 : cut.count; }
  // The slot of the state that queries of a segment see.
  __device__ Index slot(Index segment) const { return causal ? segment : cut.count; }
  __device__ float max_before(Index head, Index slot) const { return before[head * (cut.count + 1) + slot]; }
  __device__ bool seen(Index b, Index j) const { return j < size.Nk && (!key_mask || key_mask[b * size.Nk + j] != 0); }

 private:
  void run();
};

// Whether the fused kernels take a problem: trig_s or trig_n, d = dv of 32 or 64, n a multiple of 16 up to 64, both
// sequences not empty.
bool fused_fits(const FeatureMap& map, const AttentionSize& size);
// Whether rows begin where two numbers can be read or written at once.
template <class T> bool in_pairs(const Heads<T>& x) {
  return reinterpret_cast<std::uintptr_t>(x.p) % (2 * sizeof(T)) == 0 && (x.batch | x.row | x.head) % 2 == 0;
}

// For problems that fit, and T float or bf16.
template <class T> void run_fused(const FusedFwd<T>& k);
template <class T> void run_fused(const FusedBwd<T>& k);

// Run the problem fused if it fits, products read bfloat16 and the GPU has bf16 products (sm_80) and the shared memory;
// false if they did not.
bool run_fused_if_it_fits(const LinearAttentionFwd& k);
bool run_fused_if_it_fits(const LinearAttentionBwd& k);

}  // namespace flexformer::cuda
