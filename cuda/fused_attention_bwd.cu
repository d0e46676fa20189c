// Fused linear attention, backward: fused_attention.h has the plan, math.md (3.6) to (3.11) the formulas. Both kernels
// make the features of queries and of keys again. The one of queries walks forward with S1 and the chunk's keys beside
// it, that of keys backward with R and the chunk's queries.
#include "cuda/fused_tile_bwd.h"
#include "cuda/sums.h"

namespace flexformer::cuda {
namespace {

// R, slot s: of the queries from segment s on, in units of exp(largest log-weight before them), and of h_i.
struct QueryStates {
  Segments cut;
  States R;
  QueryStates(Scratch& memory, const FeatureMap& map, const AttentionSize& size)
      : cut(size.Nq, size.B * size.H), R{nullptr, size.B * size.H, cut.count, 2 * map.n, size.dv + 1} {
    R.p = memory.take(R.heads * (cut.count + 1) * R.size());
  }
};
// Parts of gradients, one from each block's segment.
struct Partials {
  float* dW;      // [sets,parts,H,n,d], null where nobody wants it; first the queries' parts, then the keys'
  float* dtau;    // [H,B,segments] or null
  Index of_set;   // parts * H * n * d
  Index queries;  // parts of queries
};

// Causal keys never see the first segment of queries from outside.
__device__ __host__ inline Index first_summed(bool causal) { return causal ? 1 : 0; }

template <class T, int kD>
__global__ void __launch_bounds__(kFusedThreads, 2) segment_gradients(FusedBwd<T> k, QueryStates s) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  const Frequencies w(carve, k.map, kD);
  const QueryPlanes<kD> queries(carve, w.features());
  State<kD> R{State<kD>::plane(carve, w.features()), w.features(), {}};
  const Index skipped = first_summed(k.causal), summed = s.cut.count - skipped;
  for (Index item = blockIdx.x; item < s.R.heads * summed; item += gridDim.x) {
    const SegmentPlace at(item, s.cut, summed, k.size.H, skipped);
    const float before = max_before(k, at.head, at.first);
    w.load<kD>(k.map, at.h);
    R.clear();
    float rho = 0;
    __syncthreads();  // the frequencies are there
    for (Index first = at.first; first < at.last; first += kChunk) {
      queries.load(k, at, first, w);
      __syncthreads();  // the queries are there
      const PerToken kept = queries.kept(before);
      R.take_in(queries.f, queries.y, kept, k.map.tau, 1.0f);
      rho += queries.sum_floored(kept);
      __syncthreads();  // before the next queries, or frequencies, come
    }
    float* to = s.R.at(at.head, at.segment);
    R.store(to);
    if (threadIdx.x == 0) to[s.R.size() - 1] = rho;
  }
}

// Adds the segments up from the end, a thread for each number of a state.
template <class T> __global__ void scan_gradients(FusedBwd<T> k, QueryStates s) {
  const Index size = s.R.size();
  for (Index at = thread_number(); at < s.R.heads * size; at += thread_count()) {
    const Index head = at / size;
    float *state = s.R.at(head, 0) + at % size, sum = 0;
    state[s.cut.count * size] = 0;
    for (Index segment = s.cut.count - 1; segment >= first_summed(k.causal); --segment) {
      const Index first = segment * s.cut.length, next = smaller(first + s.cut.length, s.cut.N);
      sum = remaining(max_before(k, head, first), max_before(k, head, next)) * sum + state[segment * size];
      state[segment * size] = sum;
    }
  }
}

// T = (G V1^T) o W of a warp's queries and the chunk's keys, in operands for 16 keys each.
template <int kD>
__device__ void pairs_of(OperandA (&pairs)[kChunk / 16], const QueryRows<kD>& queries, const KeyPlanes<kD>& keys) {
#pragma unroll
  for (int key = 0; key < kChunk; key += 16) {
    if (key > warp_first_row()) break;
    Sums two[2]{};
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) mma(two[0], two[1], queries.G[c], b_across(keys.y, key, 16 * c));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int half = e % 4 / 2, j = key + e / 4 * 8 + lane_column() + e % 2;
      const bool past = j <= warp_first_row() + lane_row() + 8 * half;
      float& x = two[e / 4].x[e % 4];
      x = past ? weight_of(keys.lw[j], queries.max[half]) * (x + queries.through_den[half]) : 0.0f;
    }
    pairs[key / 16] = operand_of(two);
  }
}

// dFq = a o (G S1^T) + T Fk (3.7), and from there dp and dq.
template <class T, int kD>
__device__ void queries_of(Sums (&dq)[kD / 8], const ParkedRows<T, kD>& q, const QueryRows<kD>& queries, float before,
                           const KeyPlanes<kD>& keys, const Plane& state, const Frequencies& w, const Plane& dp,
                           bool causal) {
  OperandA pairs[kChunk / 16];
  if (causal) pairs_of(pairs, queries, keys);
  const float kept[2] = {remaining(before, queries.max[0]), remaining(before, queries.max[1])};
  float along[2] = {0, 0};  // is nothing to queries
  for (int block = 0; block < w.n / 16; ++block) {
    Sums df[2][2];  // of cosines, of sines
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = half * w.n + 16 * block;
      through_state<kD>(df[half], queries.G, queries.through_den, kept, state, m);
#pragma unroll
      for (int key = 0; key < kChunk; key += 16)
        if (causal && key <= warp_first_row()) mma(df[half][0], df[half][1], pairs[key / 16], b_down(keys.f, key, m));
    }
    w.back(dp, along, df[0], df[1], q, block);
  }
  w.inputs_back(dq, dp);
}

// dq, and the queries' part in dW.
template <class T, int kD>
__global__ void __launch_bounds__(kFusedThreads, 2)
    query_gradients(FusedBwd<T> k, KeyStates<T> s, Segments cut, Partials partials) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  const Frequencies w(carve, k.map, kD);
  const KeyPlanes<kD> keys(carve, w.features());
  State<kD> state{State<kD>::plane(carve, w.features()), w.features(), {}};
  MapGradient<kD> dW(carve, w);
  for (Index item = blockIdx.x; item < s.S.heads * cut.count; item += gridDim.x) {
    const SegmentPlace at(item, cut, cut.count, k.size.H);
    w.load<kD>(k.map, at.h);
    state.load(s.S.at(at.head, s.slot(at.segment)));
    dW.clear();
    __syncthreads();  // the frequencies and the state are there
    for (Index first = at.first; first < at.last; first += kChunk) {
      const Index row = first + warp_first_row();
      const float before = max_before(k, at.head, first);
      if (k.causal) keys.load(s, at, first, w);
      QueryRows<kD> queries;
      queries.load(k, at, row);
      const bool there[2] = {row + lane_row() < k.size.Nq, row + lane_row() + 8 < k.size.Nq};
      const ParkedRows<T, kD> q(dW.x, Rows<T, kD>(k.q.of(at.b, at.h), k.q.row, row, there));
      __syncthreads();  // queries and keys are there, and the state
      Sums dq[kD / 8]{};
      queries_of(dq, q, queries, before, keys, state.high, w, dW.dp, k.causal);
      put_rows(k.dq, at, row, k.size.Nq, dq);
      __syncthreads();  // all have read the state, and dp is there
      if (partials.dW) dW.add_chunk();
      if (k.causal) {
        const float after = max_before(k, at.head, smaller(first + kChunk, k.size.Nq));
        const PerToken lw = PerToken::from(keys.lw), weights{{weight_of(lw.x[0], after), weight_of(lw.x[1], after)}};
        state.take_in(keys.f, keys.y, weights, k.map.tau, remaining(before, after));
      }
      __syncthreads();  // before the next keys and queries come
    }
    if (partials.dW)
      dW.store(partials.dW + ((at.b * cut.count + at.segment) * k.size.H + at.h) * w.n * kD, partials.of_set, w.n);
  }
}

// dv = b o (Fk R[:, :dv]) + P^T G (3.8). The warp's features go to a plane, for registers are short.
template <class T, int kD>
__device__ void values_of(Sums (&dv)[kD / 8], const KeyRows<T, kD>& keys, const QueryPlanes<kD>& queries,
                          const Plane& R, const Frequencies& w, const Plane& features, bool causal) {
  w.put_features(features, keys.x);
  __syncwarp();
  for (int m = 0; m < w.features(); m += 16) {
    const OperandA f = a_across(features, warp_first_row(), m);
#pragma unroll
    for (int c = 0; c < kD / 8; c += 2) mma(dv[c], dv[c + 1], f, b_down(R, m, 8 * c));
  }
#pragma unroll
  for (Sums& sums : dv)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums.x[e] *= keys.b[e / 2];
  for (int query = causal ? warp_first_row() : kChunk; query < kChunk; query += 16) {
    Sums two[2]{};
    for (int m = 0; m < w.features(); m += 16)
      mma(two[0], two[1], a_across(features, warp_first_row(), m), b_across(queries.f, query, m));
#pragma unroll
    for (int e = 0; e < 8; ++e)
      two[e / 4].x[e % 4] *= keys.weight(e % 4 / 2, query + e / 4 * 8 + lane_column() + e % 2, queries.max);
    const OperandA a = operand_of(two);
#pragma unroll
    for (int c = 0; c < kD / 8; c += 2) mma(dv[c], dv[c + 1], a, b_down(queries.y, query, 8 * c));
  }
  __syncwarp();  // before the warp writes to the plane again
}

// dFk = b o (V1 R^T) + T^T Fq (3.8), from there dk without its part along k, and dlw_j (3.9) of the lane's rows.
template <class T, int kD>
__device__ void keys_of(Sums (&dk)[kD / 8], float (&dlw)[2], const KeyRows<T, kD>& keys, const Rows<T, kD>& v,
                        const QueryPlanes<kD>& queries, const Plane& R, float rho, const Frequencies& w,
                        const Plane& dp, bool causal) {
  OperandA pairs[kChunk / 16];  // T^T
  float floored[2] = {0, 0};
#pragma unroll
  for (int query = 0; query < kChunk; query += 16) {
    if (!causal || query < warp_first_row()) continue;
    Sums two[2]{};
#pragma unroll
    for (int c = 0; c < kD / 16; ++c) mma(two[0], two[1], v.high[c], b_across(queries.y, query, 16 * c));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int half = e % 4 / 2, i = query + e / 4 * 8 + lane_column() + e % 2;
      const float weight = keys.weight(half, i, queries.max);
      float& x = two[e / 4].x[e % 4];
      x = weight * (x + queries.through_den[i]);
      floored[half] += weight * queries.floored[i];
    }
    pairs[query / 16] = operand_of(two);
  }
  const float ones[2] = {1, 1};
  float along[2] = {0, 0};
  for (int block = 0; block < w.n / 16; ++block) {
    Sums df[2][2];  // of cosines, of sines
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = half * w.n + 16 * block;
      through_state<kD>(df[half], v.high, ones, keys.b, R, m);
#pragma unroll
      for (int query = 0; query < kChunk; query += 16)
        if (causal && query >= warp_first_row())
          mma(df[half][0], df[half][1], pairs[query / 16], b_down(queries.f, query, m));
    }
    w.back(dp, along, df[0], df[1], keys.x, block);
  }
  w.inputs_back(dk, dp);
  for (int i = 0; i < 2; ++i) {
    const float all = quad_sum(along[i]) + quad_sum(floored[i]) + keys.b[i] * rho;
    dlw[i] = keys.seen(i) ? all : 0.0f;
  }
}

// dk, dv, dtau and the keys' part in dW.
template <class T, int kD>
__global__ void __launch_bounds__(kFusedThreads, 2)
    key_gradients(FusedBwd<T> k, KeyStates<T> s, QueryStates of_queries, Partials partials) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  const Frequencies w(carve, k.map, kD);
  const QueryPlanes<kD> queries(carve, w.features());
  State<kD> R{State<kD>::plane(carve, w.features()), w.features(), {}};
  MapGradient<kD> dW(carve, w);
  const bool wants_keys = k.dk.p || partials.dW || partials.dtau;
  for (Index item = blockIdx.x; item < s.S.heads * s.cut.count; item += gridDim.x) {
    const SegmentPlace at(item, s.cut, s.cut.count, k.size.H);
    const Index slot = k.causal ? at.segment + 1 : 0;
    w.load<kD>(k.map, at.h);
    R.load(of_queries.R.at(at.head, slot));
    dW.clear();
    float rho = of_queries.R.last(at.head, slot), dtau = 0;
    __syncthreads();  // the frequencies and the state are there
    for (Index first = at.first + (at.last - 1 - at.first) / kChunk * kChunk; first >= at.first; first -= kChunk) {
      const Index row = first + warp_first_row();
      const float after = max_before(k, at.head, smaller(first + kChunk, s.cut.N));
      if (k.causal) queries.load(k, at, first, w);
      const bool seen[2] = {s.seen(at.b, row + lane_row()), s.seen(at.b, row + lane_row() + 8)};
      const KeyRows<T, kD> keys(s, at, Rows<T, kD>(s.k.of(at.b, at.h), s.k.row, row, seen), seen, after, dW.x);
      __syncthreads();  // queries and keys are there, and the state
      if (k.dv.p) {
        Sums dv[kD / 8]{};
        values_of(dv, keys, queries, R.high, w, dW.dp, k.causal);
        put_rows(k.dv, at, row, s.cut.N, dv);
      }
      if (wants_keys) {
        const bool still[2] = {keys.seen(0), keys.seen(1)};
        const Rows<T, kD> v(k.v.of(at.b, at.h), k.v.row, row, still);
        Sums dk[kD / 8]{};
        float dlw[2];
        keys_of(dk, dlw, keys, v, queries, R.high, rho, w, dW.dp, k.causal);
        const float factor = k.map.tau ? 2 * std::exp(-k.map.tau[at.h]) : 0.0f;
        const float most = k.running_max[at.head * k.size.Nq + k.size.Nq - 1];
#pragma unroll
        for (int c = 0; c < kD / 8; ++c)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float2 x = keys.x.two(c, i);
            dk[c].x[2 * i] += factor * dlw[i] * x.x;
            dk[c].x[2 * i + 1] += factor * dlw[i] * x.y;
          }
        put_rows(k.dk, at, row, s.cut.N, dk);
        for (int i = 0; i < 2; ++i)
          if (keys.seen(i) && lane_column() == 0) dtau -= (keys.lw[i] - most) * dlw[i];
      }
      __syncthreads();  // all have read the state, and dp is there
      if (partials.dW) dW.add_chunk();
      if (k.causal) {
        const float before = max_before(k, at.head, first), left = remaining(before, after);
        const PerToken kept = queries.kept(before);
        R.take_in(queries.f, queries.y, kept, k.map.tau, left);
        rho = left * rho + queries.sum_floored(kept);
      }
      __syncthreads();  // before the next queries and keys come
    }
    const Index part = at.b * s.cut.count + at.segment;
    if (partials.dW)
      dW.store(partials.dW + ((partials.queries + part) * k.size.H + at.h) * w.n * kD, partials.of_set, w.n);
    if (!partials.dtau) continue;
    dtau = block_sum(dtau);
    if (threadIdx.x == 0) partials.dtau[at.h * k.size.B * s.cut.count + part] = dtau;
  }
}

// What the two large kernels need; segment_gradients needs less.
template <int kD> std::size_t shared_bytes(const FeatureMap& map) {
  Carver carve{nullptr};
  const Frequencies w(carve, map, kD);
  const QueryPlanes<kD> queries(carve, w.features());
  State<kD>::plane(carve, w.features());
  const MapGradient<kD> dW(carve, w);
  return carve.used;
}

template <class T, int kD>
void run_for_head_size(const FusedBwd<T>& k, const KeyStates<T>& s, const QueryStates& of_queries,
                       const Partials& partials) {
  const Index heads = s.S.heads, segments = of_queries.cut.count - first_summed(k.causal);
  const auto shape = [&](Index items) {
    return LaunchShape(blocks_for(items), kFusedThreads, shared_bytes<kD>(k.map));
  };
  if (k.dq.p || partials.dW)
    launch_kernel(shape(heads * of_queries.cut.count), query_gradients<T, kD>, k, s, of_queries.cut, partials);
  if (!(k.dk.p || k.dv.p || partials.dW || partials.dtau)) return;
  if (segments > 0) launch_kernel(shape(heads * segments), segment_gradients<T, kD>, k, of_queries);
  launch_kernel(for_elements(heads * of_queries.R.size()), scan_gradients<T>, k, of_queries);
  launch_kernel(shape(heads * s.cut.count), key_gradients<T, kD>, k, s, of_queries, partials);
}

}  // namespace

template <class T> void run_fused(const FusedBwd<T>& k) {
  Scratch memory;
  const KeyStates<T> s(memory, k);
  const QueryStates of_queries(memory, k.map, k.size);
  const Index B = k.size.B, H = k.size.H, size = H * k.map.n * k.size.d, queries = B * of_queries.cut.count;
  const Index parts = queries + B * s.cut.count, sets = k.map.kind == FeatureKind::trig_n ? 2 : 1;
  Partials partials{nullptr, nullptr, parts * size, queries};
  if (k.dmap.dw1 || k.dmap.dw2) partials.dW = memory.take(sets * parts * size);
  if (k.dmap.dtau && k.map.tau) partials.dtau = memory.take(B * H * s.cut.count);
  with_head_size(k.size.d, [&]<int kD>() { run_for_head_size<T, kD>(k, s, of_queries, partials); });
  const GradOut to[] = {k.dmap.dw1, k.dmap.dw2};
  for (int set = 0; set < 2; ++set) {
    const Index terms = set < sets ? parts : 0;
    if (to[set])
      sum_columns(to[set], 1, terms, size, 1, LoadTerms<float>{partials.dW + set * terms * size, terms, size});
  }
  if (k.dmap.dtau)
    sum_rows(k.dmap.dtau, H, partials.dtau ? B * s.cut.count : 0, 1,
             LoadTerms<float>{partials.dtau, B * s.cut.count, 1});
}
template void run_fused(const FusedBwd<float>& k);
template void run_fused(const FusedBwd<bf16>& k);

bool run_fused_if_it_fits(const LinearAttentionBwd& k) {
  const auto bytes = with_head_size(k.size.d, [&]<int kD>() { return shared_bytes<kD>(k.map); });
  if (!is_for_fused(k.map, k.size, k.q.p.dtype, bytes)) return false;
  bool fits = true;
  with_type(k.q.p.dtype, [&](auto t) {
    using T = decltype(t);
    const FusedBwd<T> fused{heads<T>(k.dq),  heads<T>(k.dk), heads<T>(k.dv), k.dmap,        heads<T>(k.dout),
                            heads<T>(k.out), heads<T>(k.q),  heads<T>(k.k),  heads<T>(k.v), k.running_max,
                            k.denominator,   k.unfloored,    k.key_mask,     k.map,         k.size,
                            k.floor,         k.causal};
    fits = in_pairs(fused.dq) && in_pairs(fused.dk) && in_pairs(fused.dv) && in_pairs(fused.dout) &&
           in_pairs(fused.out) && in_pairs(fused.q) && in_pairs(fused.k) && in_pairs(fused.v);
    if (fits) run_fused(fused);
  });
  return fits;
}

}  // namespace flexformer::cuda
