// Softmax attention on tensor cores, for bfloat16 heads of 32 or 64 channels; attention.cu serves every other case and
// is the reference. math.md section 1.
//
// A block of four warps has 64 queries (or, for the gradients of keys and values, 64 keys), each warp 16 of them as
// operands in registers, and walks over the tiles of 64 of the other side, which lie in shared memory. Of the weights a
// warp makes 16 columns at a time: two sums side by side, which are, rounded, the operand of the next product (mma.h),
// so that weights never leave registers. Scores, maxima, sums and outputs are float; rounded are q, k and v, as they
// come, and weights and their gradients as operands. Powers are of 2, for which the hardware has an instruction: scores
// are multiplied with log2(e) beforehand.
#include <numbers>

#include "cuda/fused_softmax.h"
#include "cuda/fused_tile.h"

namespace flexformer::cuda {
namespace {

constexpr float kLog2E = std::numbers::log2e_v<float>, kLn2 = std::numbers::ln2_v<float>;

// A tile of 64 rows of one head, and what is where in it for this thread's warp.
struct TilePlace {
  Index head, b, h, first;
  __device__ TilePlace(Index item, Index H, Index N) {
    const Index tiles = (N + kTile - 1) / kTile;
    head = item / tiles;
    b = head / H;
    h = head % H;
    first = item % tiles * kTile;
  }
  __device__ Index own() const { return first + warp_first_row() + lane_row(); }  // and 8 further
};

// 64 rows in shared memory, 16 bytes at a time; 0 where there are no more than N.
template <int kD>
__device__ void load_rows(const Plane& to, const HeadsIn& x, const TilePlace& at, Index first, Index N) {
  const Heads<const bf16> from = heads<bf16>(x);
  for (int e = int(threadIdx.x); e < kTile * kD / 8; e += kFusedThreads) {
    const int r = e / (kD / 8), c = e % (kD / 8) * 8;
    const bf16* eight = from.of(at.b, at.h) + (first + r) * from.row + c;
    *reinterpret_cast<int4*>(to.p + r * to.row + c) =
        first + r < N ? *reinterpret_cast<const int4*>(eight) : int4{0, 0, 0, 0};
  }
}
// One number of each of 64 rows.
__device__ inline void load_numbers(float* to, const float* from, Index first, Index N, float beyond) {
  if (threadIdx.x < kTile) to[threadIdx.x] = first + threadIdx.x < N ? from[first + threadIdx.x] : beyond;
}

// The warp's rows times 16 rows of a plane: sums over the channels.
template <int kD>
__device__ void multiply_across(Sums (&sums)[2], const OperandA (&rows)[kD / 16], const Plane& x, int first) {
  sums[0] = sums[1] = {};
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) mma(sums[0], sums[1], rows[k], b_across(x, first, 16 * k));
}
// sums += a times 16 rows of a plane: sums over these rows.
template <int kD> __device__ void add_down(Sums (&sums)[kD / 8], const OperandA& a, const Plane& x, int first) {
#pragma unroll
  for (int c = 0; c < kD / 8; c += 2) mma(sums[c], sums[c + 1], a, b_down(x, first, 8 * c));
}

template <int kD>
__device__ void load_operands(OperandA (&to)[kD / 16], const HeadsIn& x, const TilePlace& at, Index N) {
  const bool there[2] = {at.own() < N, at.own() + 8 < N};
  const bf16* rows = heads<bf16>(x).of(at.b, at.h) + (at.first + warp_first_row()) * x.row;
#pragma unroll
  for (int k = 0; k < kD / 16; ++k)
    for_pairs([&](int i, int r, int c) { to[k].x[i] = there[i % 2] ? load_pair(rows + r * x.row + 16 * k + c) : 0; });
}
template <int kD> __device__ void put_sums(const HeadsOut& y, const TilePlace& at, Index N, const Sums (&x)[kD / 8]) {
  const Heads<bf16> to = heads<bf16>(y);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Index row = at.own() + 8 * i;
    if (row >= N) continue;
    bf16* p = to.of(at.b, at.h) + row * to.row + lane_column();
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) put_two(p + 8 * c, to.add, make_float2(x[c].x[2 * i], x[c].x[2 * i + 1]));
  }
}

// A tile of keys and values, and which of them queries see.
template <int kD> struct KeyTile {
  Plane keys, values;
  float* there;  // [64] 0 hides a key
  bool causal;
  Index first = 0;

  HD KeyTile(Carver& carve, bool causal)
      : keys(carve.plane(kTile, kD)), values(carve.plane(kTile, kD)), there(carve.floats(kTile)), causal(causal) {}
  template <class Problem> __device__ void load(const Problem& k, const TilePlace& at, Index from) {
    first = from;
    const Index Nk = k.size.Nk, own = first + threadIdx.x;
    load_rows<kD>(keys, k.k, at, first, Nk);
    load_rows<kD>(values, k.v, at, first, Nk);
    if (threadIdx.x < kTile)
      there[threadIdx.x] = own < Nk && (!k.key_mask || k.key_mask[at.b * Nk + own]) ? 1.0f : 0.0f;
  }
  __device__ bool sees(Index i, int column) const { return there[column] != 0 && (!causal || first + column <= i); }
};
// Where keys end for a tile of queries.
template <class Problem> __device__ Index last_key(const Problem& k, const TilePlace& at) {
  return k.causal ? smaller(k.size.Nk, at.first + kTile) : k.size.Nk;
}

template <int kD>
__global__ void __launch_bounds__(kFusedThreads, 3) fused_softmax_fwd(SoftmaxAttentionFwd k, Index items) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  KeyTile<kD> tile(carve, k.causal);
  const AttentionSize& n = k.size;
  const float to_base_2 = k.scale * kLog2E;
  for (Index item = blockIdx.x; item < items; item += gridDim.x) {
    const TilePlace at(items - 1 - item, n.H, n.Nq);  // under causality later tiles cost more: they go first
    OperandA q[kD / 16];
    load_operands<kD>(q, k.q, at, n.Nq);
    Sums out[kD / 8]{};
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // of the lane's two rows; sums are its own part
    const Index end = last_key(k, at);
    for (Index first = 0; first < end; first += kTile) {
      tile.load(k, at, first);
      __syncthreads();  // keys and values are there
      Sums scores[kTile / 16][2];
      float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int key = 0; key < kTile; key += 16) {
        Sums(&pair)[2] = scores[key / 16];
        multiply_across<kD>(pair, q, tile.keys, key);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const int row = e % 4 / 2, column = key + e / 4 * 8 + lane_column() + e % 2;
          float& s = pair[e / 4].x[e % 4];
          s = tile.sees(at.own() + 8 * row, column) ? to_base_2 * s : -INFINITY;
          top[row] = Max::combine(s, top[row]);
        }
      }
      float shift[2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        top[row] = Max::combine(top[row], opposite(top[row], 1));
        top[row] = Max::combine(Max::combine(top[row], opposite(top[row], 2)), max[row]);
        shift[row] = shift_for(top[row]);
        const float left = std::exp2(max[row] - shift[row]);
        max[row] = top[row];
        sum[row] *= left;
#pragma unroll
        for (Sums& o : out) {
          o.x[2 * row] *= left;
          o.x[2 * row + 1] *= left;
        }
      }
#pragma unroll
      for (int key = 0; key < kTile; key += 16) {
        Sums(&pair)[2] = scores[key / 16];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          float& s = pair[e / 4].x[e % 4];
          s = std::exp2(s - shift[e % 4 / 2]);
          sum[e % 4 / 2] += s;
        }
        add_down<kD>(out, operand_of(pair), tile.values, key);
      }
      __syncthreads();  // before the next keys come
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float total = quad_sum(sum[row]), factor = total > 0 ? 1 / total : 0.0f;
      for (Sums& o : out) {
        o.x[2 * row] *= factor;
        o.x[2 * row + 1] *= factor;
      }
      const Index i = at.own() + 8 * row;
      if (lane_column() == 0 && i < n.Nq) k.lse[at.head * n.Nq + i] = kLn2 * (max[row] + std::log2(total));
    }
    put_sums<kD>(k.out, at, n.Nq, out);
  }
}

// The weight of a pair, and the gradient of its score, from the score, dout_i . v_j, and the numbers of the query
// (1.2).
struct Pair {
  float weight, dscore;
  __device__ Pair(bool seen, float score, float dweight, float lse, float delta) {
    weight = seen && lse != -INFINITY ? std::exp2(score - kLog2E * lse) : 0.0f;
    dscore = weight == 0.0f ? 0.0f : weight * (dweight - delta);
  }
};

template <int kD>
__global__ void __launch_bounds__(kFusedThreads, 3)
    fused_query_bwd(SoftmaxAttentionBwd k, const float* deltas, Index items) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  KeyTile<kD> tile(carve, k.causal);
  const AttentionSize& n = k.size;
  for (Index item = blockIdx.x; item < items; item += gridDim.x) {
    const TilePlace at(items - 1 - item, n.H, n.Nq);
    OperandA q[kD / 16], dout[kD / 16];
    load_operands<kD>(q, k.q, at, n.Nq);
    load_operands<kD>(dout, k.dout, at, n.Nq);
    float lse[2], delta[2];
    for (int row = 0; row < 2; ++row) {
      const Index i = at.own() + 8 * row;
      lse[row] = i < n.Nq ? k.lse[at.head * n.Nq + i] : -INFINITY;
      delta[row] = i < n.Nq ? deltas[at.head * n.Nq + i] : 0.0f;
    }
    Sums dq[kD / 8]{};
    const Index end = last_key(k, at);
    for (Index first = 0; first < end; first += kTile) {
      tile.load(k, at, first);
      __syncthreads();  // keys and values are there

      // One turn at a time, for registers: three blocks shall find room.
#pragma unroll 1
      for (int key = 0; key < kTile; key += 16) {
        Sums scores[2], dweights[2];
        multiply_across<kD>(scores, q, tile.keys, key);
        multiply_across<kD>(dweights, dout, tile.values, key);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const int row = e % 4 / 2, column = key + e / 4 * 8 + lane_column() + e % 2;
          float& s = scores[e / 4].x[e % 4];
          s = Pair(tile.sees(at.own() + 8 * row, column), k.scale * kLog2E * s, dweights[e / 4].x[e % 4], lse[row],
                   delta[row])
                  .dscore;
        }
        add_down<kD>(dq, operand_of(scores), tile.keys, key);
      }
      __syncthreads();  // before the next keys come
    }
    for (Sums& sums : dq)
      for (float& x : sums.x) x *= k.scale;
    put_sums<kD>(k.dq, at, n.Nq, dq);
  }
}

// Rows are keys here, columns queries.
template <int kD>
__global__ void __launch_bounds__(kFusedThreads, 2)
    fused_key_bwd(SoftmaxAttentionBwd k, const float* deltas, Index items) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  const Plane queries = carve.plane(kTile, kD), douts = carve.plane(kTile, kD);
  float *lse = carve.floats(kTile), *delta = carve.floats(kTile);
  const AttentionSize& n = k.size;
  for (Index item = blockIdx.x; item < items; item += gridDim.x) {
    const TilePlace at(item, n.H, n.Nk);
    OperandA keys[kD / 16], values[kD / 16];
    load_operands<kD>(keys, k.k, at, n.Nk);
    load_operands<kD>(values, k.v, at, n.Nk);
    bool there[2];
    for (int row = 0; row < 2; ++row) {
      const Index j = at.own() + 8 * row;
      there[row] = j < n.Nk && (!k.key_mask || k.key_mask[at.b * n.Nk + j] != 0);
    }
    Sums dk[kD / 8]{}, dv[kD / 8]{};
    for (Index first = k.causal ? at.first : 0; first < n.Nq; first += kTile) {
      load_rows<kD>(queries, k.q, at, first, n.Nq);
      load_rows<kD>(douts, k.dout, at, first, n.Nq);
      load_numbers(lse, k.lse + at.head * n.Nq, first, n.Nq, -INFINITY);
      load_numbers(delta, deltas + at.head * n.Nq, first, n.Nq, 0);
      __syncthreads();  // queries are there
#pragma unroll 1
      for (int query = 0; query < kTile; query += 16) {
        Sums scores[2], dweights[2];
        multiply_across<kD>(scores, keys, queries, query);
        multiply_across<kD>(dweights, values, douts, query);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const int row = e % 4 / 2, column = query + e / 4 * 8 + lane_column() + e % 2;
          float &s = scores[e / 4].x[e % 4], &dw = dweights[e / 4].x[e % 4];
          const bool seen = there[row] && (!k.causal || at.own() + 8 * row <= first + column);
          const Pair pair(seen, k.scale * kLog2E * s, dw, lse[column], delta[column]);
          s = pair.weight;
          dw = pair.dscore;
        }
        add_down<kD>(dv, operand_of(scores), douts, query);
        add_down<kD>(dk, operand_of(dweights), queries, query);
      }
      __syncthreads();  // before the next queries come
    }
    for (Sums& sums : dk)
      for (float& x : sums.x) x *= k.scale;
    if (k.dk.grad) put_sums<kD>(k.dk, at, n.Nk, dk);
    if (k.dv.grad) put_sums<kD>(k.dv, at, n.Nk, dv);
  }
}

// Two planes and two numbers a row.
std::size_t shared_bytes(Index d) {
  Carver carve{nullptr};
  carve.plane(kTile, int(d));
  carve.plane(kTile, int(d));
  carve.floats(2 * kTile);
  return carve.used;
}

// bfloat16 in heads of 32 or 64 channels.
bool fits(DType dtype, const AttentionSize& size) {
  return dtype == DType::bf16 && has_bf16_products() && size.d == size.dv && (size.d == 32 || size.d == 64);
}
// Whether all rows begin where 16 bytes can be read at once.
template <class... X> bool in_eights(const X&... x) {
  const auto begins = [](const auto& of) { return reinterpret_cast<std::uintptr_t>(of.p) % 16 == 0; };
  return ((begins(heads<bf16>(x)) && (x.batch | x.row | x.head) % 8 == 0) && ...);
}

}  // namespace

bool run_fused_if_it_fits(const SoftmaxAttentionFwd& k) {
  if (!fits(k.q.p.dtype, k.size) || !in_eights(k.out, k.q, k.k, k.v)) return false;
  const Index items = k.size.B * k.size.H * tiles_of(k.size.Nq);
  with_head_size(k.size.d, [&]<int kD>() {
    launch_kernel({blocks_for(items), kFusedThreads, shared_bytes(kD)}, fused_softmax_fwd<kD>, k, items);
  });
  return true;
}

bool run_fused_if_it_fits(const SoftmaxAttentionBwd& k, const float* delta) {
  if (!fits(k.q.p.dtype, k.size) || !in_eights(k.dq, k.dk, k.dv, k.dout, k.q, k.k, k.v)) return false;
  const Index heads = k.size.B * k.size.H, of_keys = heads * tiles_of(k.size.Nk),
              of_queries = heads * tiles_of(k.size.Nq);
  with_head_size(k.size.d, [&]<int kD>() {
    if (k.dk.grad || k.dv.grad)
      launch_kernel({blocks_for(of_keys), kFusedThreads, shared_bytes(kD)}, fused_key_bwd<kD>, k, delta, of_keys);
    if (k.dq.grad)
      launch_kernel({blocks_for(of_queries), kFusedThreads, shared_bytes(kD)}, fused_query_bwd<kD>, k, delta,
                    of_queries);
  });
  return true;
}

}  // namespace flexformer::cuda
