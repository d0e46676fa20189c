// Softmax attention in tiles: no [Nq,Nk] matrix exists. math.md section 1. A block has 64 queries (or, for the
// gradients of keys and values, 64 keys) and 64 channels of what it makes, and walks over the tiles of the other side.
// The backward pass makes weights again from the log-sum-exp of each row, in one kernel for queries and one for keys,
// so that every sum has one owner and one order. Heads of more than 64 channels are several blocks' work, each of which
// makes the weights for itself.
#include "cuda/fused_softmax.h"
#include "cuda/softmax.h"
#include "cuda/tile.h"

namespace flexformer::cuda {
namespace {

// The piece of the work that a block does next: a tile of one head and the first of its channels.
struct Piece {
  Index head, b, h, first, channel;
  __device__ Piece(Index item, Index H, Index n, Index channels) {
    const Index groups = (channels + kTile - 1) / kTile, tiles = (n + kTile - 1) / kTile;
    channel = item % groups * kTile;
    first = item / groups % tiles * kTile;
    head = item / groups / tiles;
    b = head / H;
    h = head % H;
  }
};

__device__ bool is_visible(const std::int32_t* mask, bool causal, Index i, Index j, Index Nk) {
  return j < Nk && (!causal || j <= i) && (!mask || mask[j] != 0);
}

// Running maxima and sums of exponentials of a thread's rows. Maxima are the row's, sums the thread's own part of it.
struct OnlineSoftmax {
  float max[kTileRows], sum[kTileRows];

  // Turns scores into exp(score - maximum) and gives what was summed before, in `out` too, the new maximum.
  __device__ void take(Tile<kSquare>& scores, Tile<kSquare>& out) {
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      float top = scores.x[r][0];
#pragma unroll
      for (int c = 1; c < kSquare; ++c) top = Max::combine(scores.x[r][c], top);
      top = Max::combine(row_combine<Max>(top), max[r]);
      const float shift = shift_for(top), left = std::exp(max[r] - shift);
      max[r] = top;
      sum[r] *= left;
#pragma unroll
      for (int c = 0; c < kSquare; ++c) {
        scores.x[r][c] = std::exp(scores.x[r][c] - shift);
        sum[r] += scores.x[r][c];
        out.x[r][c] *= left;
      }
    }
  }
};

template <class T> __global__ void __launch_bounds__(kTileThreads) attention_fwd(SoftmaxAttentionFwd k, Index items) {
  SHARED(Stages, stages, [1]);
  SHARED(Square, weights, [1]);
  const AttentionSize& n = k.size;
  for (Index item = blockIdx.x; item < items; item += gridDim.x) {
    // Under causality later tiles cost more: they go first.
    const Piece at(items - 1 - item, n.H, n.Nq, n.dv);
    const std::int32_t* mask = k.key_mask ? k.key_mask + at.b * n.Nk : nullptr;
    const MatrixOf<T> queries = rows_of<T>(k.q, at.b, at.h, at.first, n.Nq, n.d);
    const Index end = k.causal ? smaller(n.Nk, at.first + kTile) : n.Nk;
    Tile<kSquare> out{};
    OnlineSoftmax softmax;
    for (int r = 0; r < kTileRows; ++r) {
      softmax.max[r] = -INFINITY;
      softmax.sum[r] = 0;
    }
    for (Index key = 0; key < end; key += kTile) {
      Tile<kSquare> scores{};
      multiply(scores, across(queries), across(rows_of<T>(k.k, at.b, at.h, key, n.Nk, n.d)), n.d, stages[0]);
      for_each(scores, [&](int row, int column, float& s) {
        s = is_visible(mask, k.causal, at.first + row, key + column, n.Nk) ? k.scale * s : -INFINITY;
      });
      softmax.take(scores, out);
      put_square(weights[0], scores);
      const MatrixOf<T> values = rows_of<T>(k.v, at.b, at.h, key, n.Nk, n.dv);
      multiply(out, weights[0], down(values.from(0, at.channel)), values.rows, stages[0]);
    }
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      const float sum = row_combine<Add>(softmax.sum[r]), factor = sum > 0 ? 1 / sum : 0.0f;
      for (int c = 0; c < kSquare; ++c) out.x[r][c] *= factor;
      if (at.channel == 0 && first_column() == 0 && first_row() + r < queries.rows)
        k.lse[at.head * n.Nq + at.first + first_row() + r] = softmax.max[r] + std::log(sum);
    }
    put_tile(k.out, at.b, at.h, at.first, n.Nq, at.channel, n.dv, out);
  }
}

// delta_i = dout_i . out_i, math.md eq. 1.2.
template <class T> __global__ void attention_delta(SoftmaxAttentionBwd k, float* delta) {
  const AttentionSize& n = k.size;
  for (Index r = blockIdx.x; r < n.B * n.H * n.Nq; r += gridDim.x) {
    const Index i = r % n.Nq, h = r / n.Nq % n.H, b = r / n.Nq / n.H;
    const MatrixOf<T> dout = rows_of<T>(k.dout, b, h, i, n.Nq, n.dv), out = rows_of<T>(k.out, b, h, i, n.Nq, n.dv);
    float sum = 0;
    for (Index c = threadIdx.x; c < n.dv; c += blockDim.x) sum += float(dout.p[c]) * float(out.p[c]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) delta[r] = sum;
  }
}

// The weights of a tile of queries and a tile of keys, and the gradients of their scores (eq. 1.2). Rows of the tiles
// are queries; with kRowsAreKeys they are keys and columns queries.
template <class T, bool kRowsAreKeys> struct Pairs {
  Tile<kSquare> weights{}, dscores{};

  __device__ Pairs(const SoftmaxAttentionBwd& k, const float* delta, const Piece& at, Index query, Index key,
                   Stages& stages) {
    const AttentionSize& n = k.size;
    const MatrixOf<T> q = rows_of<T>(k.q, at.b, at.h, query, n.Nq, n.d),
                      dout = rows_of<T>(k.dout, at.b, at.h, query, n.Nq, n.dv);
    const MatrixOf<T> keys = rows_of<T>(k.k, at.b, at.h, key, n.Nk, n.d),
                      v = rows_of<T>(k.v, at.b, at.h, key, n.Nk, n.dv);
    multiply(weights, across(kRowsAreKeys ? keys : q), across(kRowsAreKeys ? q : keys), n.d, stages);
    multiply(dscores, across(kRowsAreKeys ? v : dout), across(kRowsAreKeys ? dout : v), n.dv, stages);
    const std::int32_t* mask = k.key_mask ? k.key_mask + at.b * n.Nk : nullptr;
    const float *lse = k.lse + at.head * n.Nq, *deltas = delta + at.head * n.Nq;
#pragma unroll
    for (int r = 0; r < kTileRows; ++r)
#pragma unroll
      for (int c = 0; c < kSquare; ++c) {
        const int row = first_row() + r, column = first_column() + kSide * c;
        const Index i = query + (kRowsAreKeys ? column : row), j = key + (kRowsAreKeys ? row : column);
        float &weight = weights.x[r][c], &dscore = dscores.x[r][c];
        const bool visible = i < n.Nq && is_visible(mask, k.causal, i, j, n.Nk) && lse[i] != -INFINITY;
        weight = visible ? std::exp(k.scale * weight - lse[i]) : 0.0f;
        dscore = weight == 0.0f ? 0.0f : weight * (dscore - deltas[i]);
      }
  }
};

template <class T>
__global__ void __launch_bounds__(kTileThreads)
    attention_query_bwd(SoftmaxAttentionBwd k, const float* delta, Index items) {
  SHARED(Stages, stages, [1]);
  SHARED(Square, square, [1]);
  const AttentionSize& n = k.size;
  for (Index item = blockIdx.x; item < items; item += gridDim.x) {
    const Piece at(items - 1 - item, n.H, n.Nq, n.d);
    const Index end = k.causal ? smaller(n.Nk, at.first + kTile) : n.Nk;
    Tile<kSquare> dq{};
    for (Index key = 0; key < end; key += kTile) {
      const Pairs<T, false> pairs(k, delta, at, at.first, key, stages[0]);
      put_square(square[0], pairs.dscores);
      const MatrixOf<T> keys = rows_of<T>(k.k, at.b, at.h, key, n.Nk, n.d);
      multiply(dq, square[0], down(keys.from(0, at.channel)), keys.rows, stages[0]);
    }
    for_each(dq, [&](int, int, float& x) { x *= k.scale; });
    put_tile(k.dq, at.b, at.h, at.first, n.Nq, at.channel, n.d, dq);
  }
}

template <class T>
__global__ void __launch_bounds__(kTileThreads)
    attention_key_bwd(SoftmaxAttentionBwd k, const float* delta, Index items) {
  SHARED(Stages, stages, [1]);
  SHARED(Square, square, [1]);
  const AttentionSize& n = k.size;
  for (Index item = blockIdx.x; item < items; item += gridDim.x) {
    const Piece at(item, n.H, n.Nk, n.d > n.dv ? n.d : n.dv);
    const bool wants_dk = k.dk.grad && at.channel < n.d, wants_dv = k.dv.grad && at.channel < n.dv;
    Tile<kSquare> dk{}, dv{};
    for (Index query = k.causal ? at.first : 0; query < n.Nq; query += kTile) {
      const Pairs<T, true> pairs(k, delta, at, query, at.first, stages[0]);
      if (wants_dv) {
        put_square(square[0], pairs.weights);
        const MatrixOf<T> dout = rows_of<T>(k.dout, at.b, at.h, query, n.Nq, n.dv);
        multiply(dv, square[0], down(dout.from(0, at.channel)), dout.rows, stages[0]);
      }
      if (wants_dk) {
        put_square(square[0], pairs.dscores);
        const MatrixOf<T> q = rows_of<T>(k.q, at.b, at.h, query, n.Nq, n.d);
        multiply(dk, square[0], down(q.from(0, at.channel)), q.rows, stages[0]);
      }
    }
    for_each(dk, [&](int, int, float& x) { x *= k.scale; });
    if (wants_dk) put_tile(k.dk, at.b, at.h, at.first, n.Nk, at.channel, n.d, dk);
    if (wants_dv) put_tile(k.dv, at.b, at.h, at.first, n.Nk, at.channel, n.dv, dv);
  }
}

constexpr int kPart = 128;  // keys that one block weighs in a decoding step, and its threads

// What a part of the cache gives: partial [B*H,parts,dv+2], the weighed values, the sum of the weights, and the maximum
// in whose unit they are.
__global__ void __launch_bounds__(kPart) step_parts(SoftmaxAttentionStep k, float* partial, Index parts) {
  SHARED(float, weights, [kPart]);
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  for (Index item = blockIdx.x; item < k.B * k.H * parts; item += gridDim.x) {
    const Index head = item / parts, first = item % parts * kPart;
    const int rows = int(smaller(kPart, k.length - first)), own = int(threadIdx.x);
    const Index cache = head / (k.H / k.kv_heads) * k.capacity + first;  // heads of one sequence share in order
    const ValuesIn q = k.q.from(head * k.d), keys = k.keys.from(cache * k.d);
    for (int j = warp; j < rows; j += kPart / kWarp) {
      float sum = 0;
      for (Index c = lane; c < k.d; c += kWarp) sum += read(q, c) * read(keys, j * k.d + c);
      for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += opposite(sum, distance);
      if (lane == 0) weights[j] = k.scale * sum;
    }
    __syncthreads();
    const float score = own < rows ? weights[own] : -INFINITY, top = block_max(score);
    const float weight = std::exp(score - shift_for(top)), sum = block_sum(weight);
    weights[own] = weight;
    __syncthreads();
    const ValuesIn values = k.values.from(cache * k.dv);
    float* to = partial + item * (k.dv + 2);
    for (Index c = own; c < k.dv; c += kPart) {
      float total = 0;
      for (int j = 0; j < rows; ++j) total += weights[j] * read(values, j * k.dv + c);
      to[c] = total;
    }
    if (own == 0) {
      to[k.dv] = sum;
      to[k.dv + 1] = top;
    }
    __syncthreads();  // before the next round writes weights
  }
}

// Brings the parts of each head to one unit and adds them up.
__global__ void step_combine(SoftmaxAttentionStep k, const float* partial, Index parts) {
  const Index width = k.dv + 2;
  for (Index at = thread_number(); at < k.B * k.H * k.dv; at += thread_count()) {
    const float* part = partial + at / k.dv * parts * width;
    float top = -INFINITY, total = 0, sum = 0;
    for (Index p = 0; p < parts; ++p) top = Max::combine(part[p * width + k.dv + 1], top);
    for (Index p = 0; p < parts; ++p) {
      const float unit = std::exp(part[p * width + k.dv + 1] - shift_for(top));
      total += unit * part[p * width + at % k.dv];
      sum += unit * part[p * width + k.dv];
    }
    write(k.out, at, parts ? total / sum : 0.0f);
  }
}

}  // namespace

void run(const SoftmaxAttentionFwd& k) {
  if (run_fused_if_it_fits(k)) return;
  const Index items = k.size.B * k.size.H * tiles_of(k.size.Nq) * tiles_of(k.size.dv);
  with_type(k.q.p.dtype, [&](auto t) { launch_kernel(for_tiles(items), attention_fwd<decltype(t)>, k, items); });
}

void run(const SoftmaxAttentionBwd& k) {
  const auto& n = k.size;
  const Index heads = n.B * n.H;
  Tensor delta = Tensor::empty({heads * n.Nq}, DType::f32, Device::cuda);
  with_type(k.q.p.dtype, [&](auto t) {
    using T = decltype(t);
    launch_kernel(for_rows(heads * n.Nq, n.dv), attention_delta<T>, k, delta.data());
    if (run_fused_if_it_fits(k, delta.data())) return;
    if (k.dk.grad || k.dv.grad) {
      const Index items = heads * tiles_of(n.Nk) * tiles_of(std::max(n.d, n.dv));
      launch_kernel(for_tiles(items), attention_key_bwd<T>, k, delta.data(), items);
    }
    if (k.dq.grad) {
      const Index items = heads * tiles_of(n.Nq) * tiles_of(n.d);
      launch_kernel(for_tiles(items), attention_query_bwd<T>, k, delta.data(), items);
    }
  });
}

void run(const SoftmaxAttentionStep& k) {
  const Index heads = k.B * k.H, parts = (k.length + kPart - 1) / kPart;
  Tensor partial = Tensor::empty({heads * parts * (k.dv + 2)}, DType::f32, Device::cuda);
  launch_kernel({blocks_for(heads * parts), kPart}, step_parts, k, partial.data(), parts);
  launch_kernel(for_elements(heads * k.dv), step_combine, k, partial.data(), parts);
}

}  // namespace flexformer::cuda
