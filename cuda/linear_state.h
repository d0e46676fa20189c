// What both passes of linear attention begin with: features and log-weights of all rows, and sums over the keys before
// each chunk. math.md "Linear attention".
//
// The sequence is cut in chunks of 64 tokens. For each chunk, all at the same time, one block sums its outer products
// (eq. 3.5) in units of the chunk's own largest weight; then one thread for each number of a state walks over the
// chunks and adds them up, which brings them to the unit of all keys so far; then each chunk's outputs come from the
// state before it and from its own pairs. Without causality the state after the last chunk is everybody's.
#pragma once
#include <vector>

#include "cuda/features.h"
#include "cuda/softmax.h"
#include "cuda/tile.h"

namespace flexformer::cuda {

constexpr int kChunk = kTile;  // tokens whose weights among each other are computed directly, as a square

// Memory until the end of the scope.
class Scratch {
 public:
  float* take(Index floats) { return blocks_.emplace_back(Tensor::empty({floats}, DType::f32, Device::cuda)).data(); }

 private:
  std::vector<Tensor> blocks_;
};

// exp(before - max): what is left of sums in the unit of exp(before) when the unit becomes exp(max). Without any
// visible key both are -infinity and nothing is.
__device__ inline float remaining(float before, float max) { return std::exp(before - shift_for(max)); }

// States of all heads: sums of w_r f_r y_r^T [M,width] over rows r, and after them the sum of one more number per row.
struct States {
  float* p;  // [heads,chunks+1,size()]
  Index heads, chunks, M, width;
  HD Index size() const { return M * width + 1; }
  __device__ float* at(Index head, Index slot) const { return p + (head * (chunks + 1) + slot) * size(); }
  // Row m and column c on, as a matrix.
  __device__ Matrix from(Index head, Index slot, Index m, Index c) const {
    return Matrix{at(head, slot), width, int(M), int(width)}.from(m, c);
  }
  __device__ float last(Index head, Index slot) const { return at(head, slot)[M * width]; }
};
// The rows that a state sums.
struct StateTerms {
  const float *f, *y;        // [heads,N,M] [heads,N,width]
  const float *w, *of_last;  // [heads,N] weights; what is summed for the state's last number, unweighed
  Index N;
};
// Puts the sums of chunk c into slot c + first_slot.
void sum_chunks(const States& states, const StateTerms& terms, Index first_slot);

struct LinearState {
  AttentionSize size;
  bool causal, weighs;
  FeatureRows queries, keys;
  float *fq, *pq, *fk, *pk;  // [B,H,N,M] features and [B,H,N,P] projections
  LogWeights lw;             // [B,H,Nk]
  float* most;               // [B,H] the largest log-weight
  float* sums;               // [B,H,dv+1] of w_j [v_j, 1], for mean(); null if causal
  float* v1;                 // [B,H,Nk,dv+1] the values less their mean, and a one
  float *unit, *w;           // [B,H,chunks] [B,H,Nk] a chunk's largest log-weight; exp(lw_j - unit)
  float* before;             // [B,H,chunks+1] the largest log-weight before each chunk
  States S;                  // before each chunk, of w_j phi(k_j) [v_j, 1] in units of exp(before), and of w_j

  // `memory` keeps what the pointers point to.
  LinearState(Scratch& memory, const HeadsIn& q, const HeadsIn& k, const HeadsIn& v, const std::int32_t* key_mask,
              const FeatureMap& map, const AttentionSize& size, bool causal);
  Index heads() const { return size.B * size.H; }

  // The slot of the state that queries from row i on see.
  __device__ Index slot(Index i) const { return causal ? i / kChunk : S.chunks; }
  __device__ float max_before(Index head, Index slot) const { return before[head * (S.chunks + 1) + slot]; }
  // exp(lw_j - max)
  __device__ float weight(Index head, Index j, float max) const {
    return std::exp((lw.high[head * size.Nk + j] - shift_for(max)) + lw.low[head * size.Nk + j]);
  }
  // The same within a chunk, 0 for keys after the query.
  __device__ float weight(Index head, Index i, Index j, float max) const {
    return j <= i && j < size.Nk ? weight(head, j, max) : 0.0f;
  }
  // What is taken off every value: in the full form their weighed mean. Outputs move with it, and the gradient of a
  // weight not at all, so that digits are kept where one heavy key decides and its value is nearly the output.
  __device__ float mean(Index head, Index c) const {
    if (!sums) return 0;
    const float* sum = sums + head * (size.dv + 1);
    return sum[size.dv] > 0 ? sum[c] / sum[size.dv] : 0.0f;
  }
};

}  // namespace flexformer::cuda
