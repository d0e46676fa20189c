// Linear attention, forward and one token at a time: math.md "Linear attention". linear_state.h says how the work is
// cut.
#include "cuda/fused_attention.h"
#include "cuda/linear_state.h"

namespace flexformer::cuda {
namespace {

// m_i, the largest log-weight that a query has seen; 0 where all keys weigh 1.
__global__ void running_maxima(LinearState s, float* running_max) {
  const Index N = s.size.Nq;
  for (Index r = thread_number(); r < s.S.heads * N; r += thread_count()) {
    const Index head = r / N, i = r % N, slot = s.slot(i);
    float max = s.max_before(head, slot);
    for (Index j = slot * kChunk; s.causal && j <= i; ++j) max = Max::combine(s.lw.high[head * N + j], max);
    running_max[r] = s.weighs ? max : 0.0f;
  }
}

// [num, den] and sw of a chunk of queries (eq. 3.4), a block for each.
__global__ void __launch_bounds__(kTileThreads)
    linear_outputs(LinearState s, const float* running_max, float* numerators, float* weight_sums) {
  SHARED(Stages, stages, [1]);
  SHARED(Square, square, [1]);
  const Index N = s.size.Nq, chunks = (N + kChunk - 1) / kChunk, width = s.size.dv + 1;
  for (Index item = blockIdx.x; item < s.S.heads * chunks; item += gridDim.x) {
    const Index head = item / chunks, first = item % chunks * kChunk, slot = s.slot(first);
    const Matrix fq = rows_of(s.fq, head, first, N, s.S.M);
    Tile<kSquare> pairs{};
    if (s.causal) multiply(pairs, across(fq), across(rows_of(s.fk, head, first, N, s.S.M)), s.S.M, stages[0]);
    float kept[kTileRows];
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      const Index i = first + first_row() + r;
      const float max = i < N ? running_max[head * N + i] : -INFINITY;
      kept[r] = remaining(s.max_before(head, slot), max);
      float own = 0;
#pragma unroll
      for (int c = 0; s.causal && c < kSquare; ++c) {
        const float weight = s.weight(head, i, first + first_column() + kSide * c, max);
        pairs.x[r][c] = weight == 0 ? 0.0f : weight * pairs.x[r][c];
        own += weight;
      }
      own = row_combine<Add>(own);
      if (first_column() == 0 && i < N) weight_sums[head * N + i] = kept[r] * s.S.last(head, slot) + own;
    }
    if (s.causal) put_square(square[0], pairs);
    for (Index column = 0; column < width; column += kSide * kWide) {
      Tile<kWide> num{};
      multiply(num, across(fq), down(s.S.from(head, slot, 0, column)), s.S.M, stages[0]);
#pragma unroll
      for (int r = 0; r < kTileRows; ++r)
        for (int c = 0; c < kWide; ++c) num.x[r][c] *= kept[r];
      if (s.causal) {
        const Matrix v1 = rows_of(s.v1, head, first, N, width);
        multiply(num, square[0], down(v1.from(0, column)), v1.rows, stages[0]);
      }
      store(numerators + (head * N + first) * width + column, width, fq.rows, width - column, num);
    }
  }
}

// out = num / D (eq. 3.1 and 3.2), a block for each query.
__global__ void divide(LinearAttentionFwd k, LinearState s, const float* numerators, const float* weight_sums) {
  const Index N = k.size.Nq, H = k.size.H, dv = k.size.dv;
  for (Index r = blockIdx.x; r < s.S.heads * N; r += gridDim.x) {
    const Index i = r % N, head = r / N;
    const float *num = numerators + r * (dv + 1), den = num[dv], sw = weight_sums[r], least = k.floor * sw;
    const bool above = sw > 0 && (k.floor == 0 || den > least);
    const float D = above ? den : least;
    if (threadIdx.x == 0) {
      k.denominator[r] = D;
      k.unfloored[r] = above ? 1.0f : 0.0f;
    }
    const Index at = head / H * k.out.batch + i * k.out.row + head % H * k.out.head;
    for (Index c = threadIdx.x; c < dv; c += blockDim.x)
      put(k.out.grad, at + c, sw > 0 ? num[c] / D + den / D * s.mean(head, c) : 0.0f);
  }
}

// The state after the last chunk, as decoding keeps it.
__global__ void last_state(LinearAttentionState k, LinearState s) {
  const Index size = s.S.M * s.S.width, last = s.S.chunks;
  for (Index at = thread_number(); at < s.S.heads * size; at += thread_count()) {
    const Index head = at / size;
    k.state[at] = s.S.at(head, last)[at % size];
    if (at % size > 0) continue;
    k.weight_sum[head] = s.S.last(head, last);
    k.max[head] = s.max_before(head, last);
  }
}

// One token (eq. 3.12), a block for each head: the state takes the key in and answers the query. polaformer's second
// part of the values, from `split` on, is for queries whose features have changed halves.
__global__ void linear_step(LinearAttentionStep k, const float* fq_of_heads, const float* fk_of_heads, LogWeights lw,
                            Index M, Index split) {
  SHARED(float, den, [2]);
  const Index dv = k.dv;
  for (Index head = blockIdx.x; head < k.B * k.H; head += gridDim.x) {
    const float before = k.max[head], now = Max::combine(lw.high[head], before), kept = remaining(before, now);
    const float w = std::exp((lw.high[head] - shift_for(now)) + lw.low[head]);
    const float *fq = fq_of_heads + head * M, *fk = fk_of_heads + head * M;
    const float sw = kept * k.weight_sum[head] + w, least = k.floor * sw;
    for (Index c = threadIdx.x; c <= dv; c += blockDim.x) {
      const float value = c < dv ? read(k.v, head * dv + c) : 1.0f;
      float sum = 0, opposite_sum = 0;
      for (Index m = 0; m < M; ++m) {
        float& state = k.state[(head * M + m) * (dv + 1) + c];
        state = kept * state + w * fk[m] * value;
        sum += fq[m] * state;
        if (split < dv) opposite_sum += fq[m < M / 2 ? m + M / 2 : m - M / 2] * state;
      }
      if (c < dv) write(k.out, head * dv + c, c < split ? sum : opposite_sum);
      if (c < dv) continue;
      den[0] = sum;
      den[1] = opposite_sum;
    }
    __syncthreads();
    for (Index c = threadIdx.x; c < dv; c += blockDim.x) {
      const float own = den[c < split ? 0 : 1];
      write(k.out, head * dv + c, read(k.out, head * dv + c) / (k.floor == 0 || own > least ? own : least));
    }
    if (threadIdx.x == 0) {
      k.weight_sum[head] = sw;
      k.max[head] = now;
    }
    __syncthreads();  // before the next round writes den
  }
}

}  // namespace

void run(const LinearAttentionFwd& given) {
  LinearAttentionFwd k = given;
  const Index rows = k.size.B * k.size.H * k.size.Nq;
  if (rows == 0 || run_fused_if_it_fits(k)) return;
  if (k.size.Nk == 0) k.v.p = nullptr;  // polaformer's second part would begin behind an empty tensor
  Scratch memory;
  const LinearState s(memory, k.q, k.k, k.v, k.key_mask, k.map, k.size, k.causal);
  float *numerators = memory.take(rows * (k.size.dv + 1)), *weight_sums = memory.take(rows);
  launch_kernel(for_elements(rows), running_maxima, s, k.running_max);
  launch_kernel(for_tiles(s.heads() * tiles_of(k.size.Nq)), linear_outputs, s, k.running_max, numerators, weight_sums);
  launch_kernel(for_rows(rows, k.size.dv), divide, k, s, numerators, weight_sums);
}

void run(const LinearAttentionState& k) {
  Scratch memory;
  const LinearState s(memory, k.k, k.k, k.v, nullptr, k.map, {k.B, k.H, k.N, k.N, k.d, k.dv}, true);
  launch_kernel(for_elements(s.S.heads * s.S.M * s.S.width), last_state, k, s);
}

void run(const LinearAttentionStep& k) {
  Scratch memory;
  const Index heads = k.B * k.H;
  const auto rows_of_one = [&](ValuesIn x, bool keys) {
    return FeatureRows({x, k.H * k.d, k.d, k.d}, k.map, k.B, k.H, 1, k.d, keys, k.position);
  };
  const FeatureRows queries = rows_of_one(k.q, false), keys = rows_of_one(k.k, true);
  float *fq = memory.take(heads * queries.M), *fk = memory.take(heads * keys.M), *p = memory.take(heads * keys.P);
  const LogWeights lw{memory.take(heads), memory.take(heads), nullptr};
  compute_features(fq, p, queries, false);
  compute_features(fk, p, keys, false, lw);
  const Index split = k.map.kind == FeatureKind::polaformer ? (k.dv + 1) / 2 : k.dv;
  launch_kernel({blocks_for(heads), kTileThreads}, linear_step, k, fq, fk, lw, queries.M, split);
}

}  // namespace flexformer::cuda
