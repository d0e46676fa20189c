// Linear attention, backward: math.md "Linear attention". With e_i = -(dout_i . out_i) / D_i and
// G_i = [dout_i / D_i, u_i e_i] the gradients of features are products with two states: S = sum_j w_j phi(k_j) [v_j, 1]
// over the keys before a query, which the forward pass has too, and R = sum_i e^(Mx - m_i) phi(q_i) G_i over the
// queries after a key, which is made in the same way, chunk by chunk, but added up from the end.
#include "cuda/fused_attention.h"
#include "cuda/linear_state.h"
#include "cuda/sums.h"

namespace flexformer::cuda {
namespace {

// What belongs to queries.
struct QueryGradients {
  float* G;               // [B,H,Nq,dv+1], for centred values
  float *kept, *floored;  // [B,H,Nq] exp(Mx - m_i) with Mx before the chunk; h_i = (1 - u_i) floor e_i
  float* kept_floored;    // [B,H,Nq] their product
  States R;               // slot c: of the queries from chunk c on, in units of exp(Mx before chunk c); then of h_i

  QueryGradients(Scratch& memory, const LinearState& s)
      : G(memory.take(s.queries.count() * (s.size.dv + 1))),
        kept(memory.take(s.queries.count())),
        floored(memory.take(s.queries.count())),
        kept_floored(memory.take(s.queries.count())),
        R{nullptr, s.heads(), tiles_of(s.size.Nq), s.queries.M, s.size.dv + 1} {
    R.p = memory.take(s.heads() * (R.chunks + 1) * R.size());
  }
};

// A block for each query. A query that saw no key has D = u = 0, and gives nothing.
__global__ void query_gradients(LinearAttentionBwd k, LinearState s, QueryGradients g) {
  const Index N = k.size.Nq, H = k.size.H, dv = k.size.dv;
  for (Index r = blockIdx.x; r < s.S.heads * N; r += gridDim.x) {
    const Index i = r % N, head = r / N, b = head / H, h = head % H;
    const ValuesIn dout = k.dout.p.from(b * k.dout.batch + i * k.dout.row + h * k.dout.head);
    const ValuesIn out = k.out.p.from(b * k.out.batch + i * k.out.row + h * k.out.head);
    const float D = k.denominator[r], u = k.unfloored[r];
    const bool seen = D != 0 || u != 0;
    float through_out = 0, through_mean = 0;
    for (Index c = threadIdx.x; c < dv; c += blockDim.x) {
      const float mean = s.mean(head, c), dy = read(dout, c);
      through_out += dy * (read(out, c) - mean);
      through_mean += dy * mean;
      g.G[r * (dv + 1) + c] = seen ? dy / D : 0.0f;
    }
    through_out = block_sum(through_out);
    through_mean = block_sum(through_mean);
    if (threadIdx.x != 0) continue;
    const float e = seen ? -through_out / D : 0.0f, shift = seen ? through_mean / D : 0.0f;
    g.G[r * (dv + 1) + dv] = u != 0 ? e : shift;
    g.floored[r] = u != 0 ? 0.0f : k.floor * (e - shift);
    g.kept[r] = remaining(s.max_before(head, s.slot(i)), k.running_max[r]);
    g.kept_floored[r] = g.kept[r] * g.floored[r];
  }
}

// Adds the chunks of queries up from the end. In the full form all have one unit, and the first slot is wanted alone.
__global__ void scan_queries(LinearState s, States R) {
  const Index size = R.size();
  for (Index at = thread_number(); at < R.heads * size; at += thread_count()) {
    const Index head = at / size;
    float* state = R.at(head, 0) + at % size;
    float sum = 0;
    state[R.chunks * size] = 0;
    for (Index chunk = R.chunks - 1; chunk >= 0; --chunk) {
      const float left = s.causal ? remaining(s.max_before(head, chunk), s.max_before(head, chunk + 1)) : 1.0f;
      sum = left * sum + state[chunk * size];
      if (s.causal || chunk == 0) state[chunk * size] = sum;
    }
  }
}

// dFq = a o (G S^T) + T Fk with T = (G V1^T) o W (eq. 3.7), a block for each chunk of queries.
__global__ void __launch_bounds__(kTileThreads)
    query_features_bwd(LinearState s, QueryGradients g, const float* running_max, float* df) {
  SHARED(Stages, stages, [1]);
  SHARED(Square, square, [1]);
  const Index N = s.size.Nq, M = s.S.M, chunks = (N + kChunk - 1) / kChunk, width = s.S.width;
  for (Index item = blockIdx.x; item < s.S.heads * chunks; item += gridDim.x) {
    const Index head = item / chunks, first = item % chunks * kChunk;
    const Matrix G = rows_of(g.G, head, first, N, width);
    if (s.causal) {
      Tile<kSquare> T{};
      multiply(T, across(G), across(rows_of(s.v1, head, first, N, width)), width, stages[0]);
      for_each(T, [&](int row, int column, float& t) {
        const Index i = first + row;
        const float weight = i < N ? s.weight(head, i, first + column, running_max[head * N + i]) : 0.0f;
        t = weight == 0 ? 0.0f : weight * t;
      });
      put_square(square[0], T);
    }
    for (Index m = 0; m < M; m += kTile) {
      Tile<kSquare> sum{};
      multiply(sum, across(G), across(s.S.from(head, s.slot(first), m, 0)), width, stages[0]);
      for_each(sum, [&](int row, int, float& x) { x *= row < G.rows ? g.kept[head * N + first + row] : 0.0f; });
      if (s.causal) multiply(sum, square[0], down(rows_of(s.fk, head, first, N, M).from(0, m)), G.rows, stages[0]);
      store(df + (head * N + first) * M + m, M, G.rows, M - m, sum);
    }
  }
}

// A chunk of keys: its place, and what b_j = exp(lw_j - Mx) is to be. Mx and R belong to the queries after the chunk;
// in the full form to all of them.
struct KeyChunk {
  Index head, first, slot;
  float unit;
  __device__ KeyChunk(const LinearState& s, Index item)
      : head(item / s.S.chunks), first(item % s.S.chunks * kChunk), slot(s.causal ? item % s.S.chunks + 1 : 0) {
    unit = s.max_before(head, s.causal ? slot : s.S.chunks);
  }
};

// Weighs pairs whose rows are keys and whose columns are queries.
__device__ void weigh(Tile<kSquare>& pairs, const LinearState& s, const KeyChunk& at, const float* running_max) {
  const Index N = s.size.Nq;
  for_each(pairs, [&](int row, int column, float& x) {
    const Index i = at.first + column, j = at.first + row;
    const float weight = i < N ? s.weight(at.head, i, j, running_max[at.head * N + i]) : 0.0f;
    x = weight == 0 ? 0.0f : weight * x;
  });
}

// rest_j = b_j rho + sum_i W_ij h_i (eq. 3.9): what the floor of later queries gives to a log-weight. Threads that
// share rows share the chunk's queries.
__device__ void floors_bwd(const LinearState& s, const QueryGradients& g, const KeyChunk& at, const float* running_max,
                           float* rest) {
  const Index N = s.size.Nk, start = at.head * N;
  for (int r = 0; r < kTileRows; ++r) {
    const Index j = at.first + first_row() + r;
    float sum = 0;
    for (int c = 0; s.causal && c < kSquare; ++c) {
      const Index i = at.first + first_column() + kSide * c;
      if (i < N) sum += s.weight(at.head, i, j, running_max[start + i]) * g.floored[start + i];
    }
    sum = row_combine<Add>(sum);
    if (first_column() == 0 && j < N)
      rest[start + j] = s.weight(at.head, j, at.unit) * g.R.last(at.head, at.slot) + sum;
  }
}

// sum = b o (x R^T or x R) of rows of keys, for the sum's first product.
__device__ void weigh_rows(Tile<kSquare>& sum, const LinearState& s, const KeyChunk& at) {
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    const Index j = at.first + first_row() + r;
    const float b = j < s.size.Nk ? s.weight(at.head, j, at.unit) : 0.0f;
    for (int c = 0; c < kSquare; ++c) sum.x[r][c] *= b;
  }
}

// dFk = b o (V1 R^T) + T^T Fq (eq. 3.8) and `rest`, a block for each chunk of keys.
__global__ void __launch_bounds__(kTileThreads)
    key_features_bwd(LinearState s, QueryGradients g, const float* running_max, float* df, float* rest) {
  SHARED(Stages, stages, [1]);
  SHARED(Square, square, [1]);
  const Index N = s.size.Nk, M = s.S.M, width = s.S.width;
  for (Index item = blockIdx.x; item < s.S.heads * s.S.chunks; item += gridDim.x) {
    const KeyChunk at(s, item);
    const Matrix v1 = rows_of(s.v1, at.head, at.first, N, width);
    if (s.weighs) floors_bwd(s, g, at, running_max, rest);
    if (s.causal) {
      Tile<kSquare> T{};
      multiply(T, across(v1), across(rows_of(g.G, at.head, at.first, N, width)), width, stages[0]);
      weigh(T, s, at, running_max);
      put_square(square[0], T);
    }
    for (Index m = 0; m < M; m += kTile) {
      Tile<kSquare> sum{};
      multiply(sum, across(v1), across(g.R.from(at.head, at.slot, m, 0)), width, stages[0]);
      weigh_rows(sum, s, at);
      if (s.causal)
        multiply(sum, square[0], down(rows_of(s.fq, at.head, at.first, N, M).from(0, m)), v1.rows, stages[0]);
      store(df + (at.head * N + at.first) * M + m, M, v1.rows, M - m, sum);
    }
  }
}

// dv = b o (Fk R) + P^T G without their last columns (eq. 3.8), a block for each chunk of keys.
__global__ void __launch_bounds__(kTileThreads, 3)  // to make room for four, registers would be spilled
    values_bwd(LinearState s, QueryGradients g, const float* running_max, HeadsOut dv) {
  SHARED(Stages, stages, [1]);
  SHARED(Square, square, [1]);
  const Index N = s.size.Nk, M = s.S.M;
  for (Index item = blockIdx.x; item < s.S.heads * s.S.chunks; item += gridDim.x) {
    const KeyChunk at(s, item);
    const Matrix fk = rows_of(s.fk, at.head, at.first, N, M);
    if (s.causal) {
      Tile<kSquare> P{};
      multiply(P, across(fk), across(rows_of(s.fq, at.head, at.first, N, M)), M, stages[0]);
      weigh(P, s, at, running_max);
      put_square(square[0], P);
    }
    for (Index channel = 0; channel < s.size.dv; channel += kTile) {
      Tile<kSquare> sum{};
      multiply(sum, across(fk), down(g.R.from(at.head, at.slot, 0, channel)), M, stages[0]);
      weigh_rows(sum, s, at);
      if (s.causal) {
        const Matrix G = rows_of(g.G, at.head, at.first, N, s.S.width);
        multiply(sum, square[0], down(G.from(0, channel)), fk.rows, stages[0]);
      }
      put_tile(dv, at.head / s.size.H, at.head % s.size.H, at.first, N, channel, s.size.dv, sum);
    }
  }
}

// Parts in the gradient of tau, one for each key.
struct TauTerms {
  const float* dtau;  // [B,H,N]
  Index H, N;
  __device__ float operator()(Index h, Index row, Index) const { return dtau[(row / N * H + h) * N + row % N]; }
};

// From the features of queries, and of keys, back to the inputs and the map. hedgehog has a matrix for each of them; in
// other maps keys add to what queries have given.
void queries_backward(const LinearAttentionBwd& k, const LinearState& s, const QueryGradients& g, Scratch& memory) {
  float* df = memory.take(s.queries.count() * s.queries.M);
  launch_kernel(for_tiles(s.heads() * tiles_of(k.size.Nq)), query_features_bwd, s, g, k.running_max, df);
  GradOut dw2 = k.dmap.dw2;
  if (k.map.kind == FeatureKind::hedgehog) dw2.p = nullptr;
  features_backward({.dx = k.dq, .dw1 = k.dmap.dw1, .dw2 = dw2, .df = df, .f = s.fq, .p = s.pq, .weighed = false},
                    s.queries);
}

void keys_backward(const LinearAttentionBwd& k, const LinearState& s, const QueryGradients& g, Scratch& memory) {
  float *df = memory.take(s.keys.count() * s.keys.M), *rest = s.weighs ? memory.take(s.keys.count()) : nullptr;
  float* dtau = k.dmap.dtau ? memory.take(s.keys.count()) : nullptr;
  launch_kernel(for_tiles(s.heads() * s.S.chunks), key_features_bwd, s, g, k.running_max, df, rest);
  GradOut dw1 = k.dmap.dw1, dw2 = k.dmap.dw2;
  dw1.add = true;
  if (k.map.kind == FeatureKind::hedgehog)
    dw1.p = nullptr;
  else
    dw2.add = true;
  features_backward({.dx = k.dk,
                     .dw1 = dw1,
                     .dw2 = dw2,
                     .df = df,
                     .f = s.fk,
                     .p = s.pk,
                     .weighed = s.weighs,
                     .rest = rest,
                     .lw = s.lw,
                     .most = s.most,
                     .dtau = dtau},
                    s.keys);
  if (dtau) sum_rows(k.dmap.dtau, k.size.H, k.size.B * k.size.Nk, 1, TauTerms{dtau, k.size.H, k.size.Nk});
}

}  // namespace

void run(const LinearAttentionBwd& given) {
  if (run_fused_if_it_fits(given)) return;
  LinearAttentionBwd k = given;
  if (k.size.Nk == 0) k.v.p = k.dv.grad.p = nullptr;  // polaformer's second part would begin behind an empty tensor
  Scratch memory;
  const LinearState s(memory, k.q, k.k, k.v, k.key_mask, k.map, k.size, k.causal);
  const QueryGradients g(memory, s);
  if (k.size.Nq > 0) launch_kernel(for_rows(s.queries.count(), k.size.dv), query_gradients, k, s, g);
  sum_chunks(g.R, {s.fq, g.G, g.kept, g.kept_floored, k.size.Nq}, 0);
  launch_kernel(for_elements(s.heads() * g.R.size()), scan_queries, s, g.R);
  const bool wants_map = k.dmap.dw1 || k.dmap.dw2;
  if (k.dq.grad || wants_map) queries_backward(k, s, g, memory);
  if (k.dk.grad || wants_map || k.dmap.dtau) keys_backward(k, s, g, memory);
  if (k.dv.grad) launch_kernel(for_tiles(s.heads() * s.S.chunks), values_bwd, s, g, k.running_max, k.dv);
}

}  // namespace flexformer::cuda
