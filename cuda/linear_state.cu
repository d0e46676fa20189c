// Linear attention: the states before each chunk.
#include "cuda/linear_state.h"

#include "cuda/sums.h"

namespace flexformer::cuda {
namespace {

// Rows of a matrix times their weights. A row of weight 0 may hold anything.
struct Weighed {
  Matrix m;
  const float* w;
  __device__ float operator()(int r, int c) const { return r < m.rows && w[r] != 0 ? w[r] * m(r, c) : 0.0f; }
};

__global__ void __launch_bounds__(kTileThreads) chunk_sums(States states, StateTerms terms, Index first_slot) {
  SHARED(Stages, stages, [1]);
  constexpr int wide = kSide * kWide;
  const Index M = states.M, width = states.width, m_tiles = (M + kTile - 1) / kTile, tiles = (width + wide - 1) / wide;
  for (Index item = blockIdx.x; item < states.heads * states.chunks * m_tiles * tiles; item += gridDim.x) {
    const Index column = item % tiles * wide, m = item / tiles % m_tiles * kTile;
    const Index chunk = item / tiles / m_tiles % states.chunks, head = item / tiles / m_tiles / states.chunks;
    const Index first = chunk * kChunk, row = head * terms.N + first;
    const Matrix f = rows_of(terms.f, head, first, terms.N, M), y = rows_of(terms.y, head, first, terms.N, width);
    float* state = states.at(head, chunk + first_slot);
    if (m == 0 && column == 0) {
      const float last = block_sum(int(threadIdx.x) < f.rows ? terms.of_last[row + threadIdx.x] : 0.0f);
      if (threadIdx.x == 0) state[M * width] = last;
    }
    Tile<kWide> sum{};
    multiply(sum, down(Weighed{f.from(0, m), terms.w + row}), down(y.from(0, column)), f.rows, stages[0]);
    store(state + m * width + column, width, M - m, width - column, sum);
  }
}

__global__ void largest_of_heads(LinearState s, Index heads) {
  for (Index head = blockIdx.x; head < heads; head += gridDim.x) {
    const float top = row_max(s.lw.high + head * s.size.Nk, s.size.Nk);
    if (threadIdx.x == 0) s.most[head] = top;
  }
}

// w_j [v_j, 1], for the weighed mean of the values.
struct MeanTerms {
  LinearState s;
  HeadsIn v;
  __device__ float operator()(Index head, Index j, Index c) const {
    const float w = s.weight(head, j, s.most[head]);
    const Index at = head / s.size.H * v.batch + j * v.row + head % s.size.H * v.head + c;
    return w == 0 ? 0.0f : c < s.size.dv ? w * read(v.p, at) : w;
  }
};

__global__ void values_and_one(LinearState s, HeadsIn v, Index n) {
  const Index dv = s.size.dv, H = s.size.H;
  for (Index at = thread_number(); at < n; at += thread_count()) {
    const Index c = at % (dv + 1), j = at / (dv + 1) % s.size.Nk, head = at / (dv + 1) / s.size.Nk;
    const Index from = head / H * v.batch + j * v.row + head % H * v.head + c;
    s.v1[at] = c == dv ? 1.0f : read(v.p, from) - s.mean(head, c);
  }
}

// Each chunk's largest log-weight, and its keys' weights in that unit. A thread for each key.
__global__ void chunk_weights(LinearState s, Index heads) {
  for (Index item = blockIdx.x; item < heads * s.S.chunks; item += gridDim.x) {
    const Index head = item / s.S.chunks, j = item % s.S.chunks * kChunk + threadIdx.x;
    const float unit = block_max(j < s.size.Nk ? s.lw.high[head * s.size.Nk + j] : -INFINITY);
    if (j < s.size.Nk) s.w[head * s.size.Nk + j] = s.weight(head, j, unit);
    if (threadIdx.x == 0) s.unit[item] = unit;
  }
}

// Adds the chunks up: slot c becomes the state before chunk c. The full form needs the last one alone.
__global__ void scan_chunks(LinearState s) {
  const Index size = s.S.size(), chunks = s.S.chunks;
  for (Index at = thread_number(); at < s.S.heads * size; at += thread_count()) {
    const Index head = at / size, place = at % size;
    float *state = s.S.at(head, 0) + place, *before = s.before + head * (chunks + 1);
    float max = -INFINITY, sum = 0;
    state[0] = 0;
    if (place == 0) before[0] = max;
    for (Index chunk = 0; chunk < chunks; ++chunk) {
      float& next = state[(chunk + 1) * size];
      const float unit = s.unit[head * chunks + chunk], new_max = Max::combine(unit, max);
      sum = remaining(max, new_max) * sum + remaining(unit, new_max) * next;
      max = new_max;
      if (s.causal || chunk + 1 == chunks) next = sum;
      if (place == 0) before[chunk + 1] = max;
    }
  }
}

}  // namespace

void sum_chunks(const States& states, const StateTerms& terms, Index first_slot) {
  const Index wide = kSide * kWide, tiles = tiles_of(states.M) * ((states.width + wide - 1) / wide);
  launch_kernel(for_tiles(states.heads * states.chunks * tiles), chunk_sums, states, terms, first_slot);
}

LinearState::LinearState(Scratch& memory, const HeadsIn& q, const HeadsIn& k, const HeadsIn& v,
                         const std::int32_t* key_mask, const FeatureMap& map, const AttentionSize& size, bool causal)
    : size(size),
      causal(causal),
      weighs(weighs_keys(map)),
      queries(q, map, size.B, size.H, size.Nq, size.d, false),
      keys(k, map, size.B, size.H, size.Nk, size.d, true),
      fq(memory.take(queries.count() * queries.M)),
      pq(memory.take(queries.count() * queries.P)),
      fk(memory.take(keys.count() * keys.M)),
      pk(memory.take(keys.count() * keys.P)),
      lw{memory.take(keys.count()), memory.take(keys.count()), key_mask},
      most(memory.take(heads())),
      sums(causal ? nullptr : memory.take(heads() * (size.dv + 1))),
      v1(memory.take(keys.count() * (size.dv + 1))),
      unit(memory.take(heads() * tiles_of(size.Nk))),
      w(memory.take(keys.count())),
      before(memory.take(heads() * (tiles_of(size.Nk) + 1))),
      S{nullptr, heads(), tiles_of(size.Nk), keys.M, size.dv + 1} {
  S.p = memory.take(heads() * (S.chunks + 1) * S.size());
  const Index values = keys.count() * (size.dv + 1);
  compute_features(fq, pq, queries, false);
  compute_features(fk, pk, keys, false, lw);
  launch_kernel(for_rows(heads(), size.Nk), largest_of_heads, *this, heads());
  if (sums) sum_columns(GradOut{sums}, heads(), size.Nk, size.dv + 1, 1, MeanTerms{*this, v});
  launch_kernel(for_elements(values), values_and_one, *this, v, values);
  launch_kernel({blocks_for(heads() * S.chunks), kChunk}, chunk_weights, *this, heads());
  sum_chunks(S, {fk, v1, w, w, size.Nk}, 1);
  launch_kernel(for_elements(heads() * S.size()), scan_chunks, *this);
}

}  // namespace flexformer::cuda
