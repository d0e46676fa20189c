// Linear attention, backward: math.md "Linear attention". With e_i = -(dout_i . out_i) / D_i and
// G_i = [dout_i / D_i, u_i e_i] the gradients of features are products with two states: S = sum_j w_j phi(k_j) [v_j, 1]
// over the keys before a query, and R = sum_i e^(Mx - m_i) phi(q_i) G_i over the queries after a key.
//
// The causal form first walks forward and keeps S as it is before each chunk, then backward with R, where it makes each
// chunk's features and weights once. States are kept transposed: products with them then read rows, and the column of
// the denominator is just one more row.
#include <cmath>

#include "tensor/cpu_gemm.h"
#include "tensor/cpu_linear_attention.h"

namespace flexformer::cpu {
namespace {

struct Work {
  Work(Scratch& s, const FeatureMap& map, const AttentionSize& size, Index kept_states)
      : phi(s, map, size.d, kChunk),
        M(phi.count()),
        d(size.d),
        dv(size.dv),
        G_row((size.dv + kLanes) / kLanes * kLanes),
        lw{s.take(size.Nk), s.take(size.Nk)},
        fq(s.take(kChunk * M)),
        fk(s.take(kChunk * M)),
        companions_q(s.take(phi.needs_companions() ? kChunk * M : 0)),
        companions_k(s.take(phi.needs_companions() ? kChunk * M : 0)),
        fq_transposed(s.take(kChunk * M)),
        df(s.take(kChunk * M)),
        dx(s.take(kChunk * std::max(size.d, size.dv))),
        G(s.take(kChunk * G_row)),
        G_kept(s.take(kChunk * G_row)),
        G_transposed(s.take(kChunk * size.dv)),
        v1(s.take(kChunk * G_row)),
        P(s.take(kChunk * kChunk)),
        T(s.take(kChunk * kChunk)),
        max(s.take(kChunk)),
        kept(s.take(kChunk)),
        floored(s.take(kChunk)),
        through_den(s.take(kChunk)),
        w(s.take(kChunk)),
        dlw(s.take(kChunk)),
        R(s.take((size.dv + 1) * M)),
        R_columns(s.take(size.dv * M)),
        centre(s.take(size.dv)),
        S(s.take(kept_states * (size.dv + 1) * M)) {}
  TileFeatures phi;
  Index M, d, dv, G_row;  // G_row: dv + 1, rounded up to whole vectors
  LogWeights lw;
  float *fq, *fk;  // [kChunk,M]
  float *companions_q, *companions_k;
  float* fq_transposed;              // [M,kChunk]
  float *df, *dx;                    // [kChunk,M]; [kChunk,d or dv]
  float *G, *G_kept, *G_transposed;  // [kChunk,G_row]; the same times exp(Mx - m_i); [dv,kChunk]
  float* v1;                         // [kChunk,G_row] w_j [v_j, 1]
  float *P, *T;                      // [kChunk,kChunk] w_ij k_ij and w_ij G_i . [v_j, 1], a row for each key
  float *max, *kept;                 // [kChunk] m_i, exp(Mx - m_i) with Mx before the chunk
  float *floored, *through_den;      // [kChunk] h_i = (1 - u_i) floor e_i, and u_i e_i (for centred values)
  float *w, *dlw;                    // [kChunk] w_j in units of exp(Mx after the chunk)
  float *R, *R_columns;              // [dv+1,M]; [M,dv]
  float* centre;                     // [dv] what is taken off every value, see centre_values()
  float* S;                          // [kept_states,dv+1,M]
  float rho = 0;                     // sum of exp(Mx - m_i) h_i over later queries
  bool any_floored = false;
  double dtau = 0;

  float* state(Index i) { return S + i * (dv + 1) * M; }
};

// Features of a chunk's keys, and their weights in units of exp(max).
void load_keys(Work& work, const LinearAttentionBwd& k, Index b, Index h, Index first, Index rows, float max) {
  const Index dv = work.dv;
  work.phi.forward(work.fk, work.companions_k, keys_of(k.k, b, h, first, rows));
  weights_below(work.w, work.lw.high + first, work.lw.low + first, max, rows);
  for (Index j = 0; j < rows; ++j) {
    float* v1 = work.v1 + j * work.G_row;
    const float* v = row_of(k.v, b, h, first + j);
    for (Index c = 0; c < dv; c += kLanes)
      store_up_to(v1 + c, work.w[j] * (load_up_to(v + c, dv - c) - load_up_to(work.centre + c, dv - c)), dv - c);
    v1[dv] = work.w[j];
  }
}

// S += (w [v,1])^T phi(k) of the loaded keys.
void take_in(Work& work, float* S, Index rows) {
  small_product(S, work.M, {work.v1, 1, work.G_row}, work.fk, work.M, work.dv + 1, work.M, rows, true);
}

// Features of a chunk's queries and their G, where `before` is the largest log-weight before the chunk. For the full
// form, whose queries share one maximum, `before` is that maximum.
void load_queries(Work& work, const LinearAttentionBwd& k, Index b, Index h, Index first, Index rows, float before) {
  const Index dv = work.dv, at = (b * k.size.H + h) * k.size.Nq + first;
  work.phi.forward(work.fq, work.companions_q, queries_of(k.q, b, h, first, rows));
  work.any_floored = false;
  for (Index i = 0; i < kChunk; ++i) {
    if (i >= rows) {
      work.max[i] = work.kept[i] = work.floored[i] = work.through_den[i] = 0;
      continue;
    }
    const float D = k.denominator[at + i], u = k.unfloored[at + i];
    const bool seen = D != 0 || u != 0;  // else the query saw no key
    const float *dout = row_of(k.dout, b, h, first + i), *out = row_of(k.out, b, h, first + i);
    const float inverse = seen ? 1.0f / D : 0.0f;
    Vec through_out{}, through_centre{};
    for (Index c = 0; c < dv; c += kLanes) {
      const Vec g = load_up_to(dout + c, dv - c), centre = load_up_to(work.centre + c, dv - c);
      through_out += g * (load_up_to(out + c, dv - c) - centre);
      through_centre += g * centre;
    }
    const float e = seen ? -inverse * sum_lanes(through_out) : 0.0f;
    const float shift = seen ? inverse * sum_lanes(through_centre) : 0.0f;
    work.max[i] = k.running_max[at + i];
    work.kept[i] = remaining(before, work.max[i]);
    work.through_den[i] = u != 0 ? e : shift;
    work.floored[i] = u != 0 ? 0.0f : k.floor * (e - shift);
    work.any_floored = work.any_floored || work.floored[i] != 0;
    float *G = work.G + i * work.G_row, *G_kept = work.G_kept + i * work.G_row;
    for (Index c = 0; c < dv; c += kLanes) {
      const Vec g = seen ? inverse * load_up_to(dout + c, dv - c) : Vec{};
      store_up_to(G + c, g, dv - c);
      store_up_to(G_kept + c, work.kept[i] * g, dv - c);
    }
    G[dv] = work.through_den[i];
    G_kept[dv] = work.kept[i] * G[dv];
  }
}

// P and T of a chunk: all pairs of a query and a key that is not later. Also dlw_j = sum_i w_ij h_i.
void weigh_pairs(Work& work, const LinearAttentionBwd& k, Index b, Index h, Index first, Index rows) {
  const Index M = work.M, dv = work.dv;
  transpose_tile(work.fq_transposed, kChunk, work.fq, M, rows, M);
  transpose_tile(work.G_transposed, kChunk, work.G, work.G_row, rows, dv);
  const float* v = row_of(k.v, b, h, first);
  for (Index j = 0; j < rows; j += kStrip) {
    const Index strip = std::min(kStrip, rows - j), corner = j * kChunk + j;
    small_product(work.P + corner, kChunk, {work.fk + j * M, M, 1}, work.fq_transposed + j, kChunk, strip, rows - j, M,
                  false);
    small_product(work.T + corner, kChunk, {v + j * k.v.row, k.v.row, 1}, work.G_transposed + j, kChunk, strip,
                  rows - j, dv, false);
  }
  for (Index j = 0; j < rows; ++j) {
    const float high = work.lw.high[first + j], low = work.lw.low[first + j];
    Vec floored{};
    for (Index i = j / kStrip * kStrip; i < rows; i += kLanes) {
      float *P = work.P + j * kChunk + i, *T = work.T + j * kChunk + i;
      Vec weight =
          weighs_keys(k.map) ? exp((high - base_of(load(work.max + i))) + low) : splat(high == 0.0f ? 1.0f : 0.0f);
      if (i < j) weight = select(lanes_from(i) >= splat_int(std::int32_t(j)), weight, Vec{});
      const VecInt hidden = weight == 0.0f;
      store(P, select(hidden, Vec{}, load(P) * weight));
      store(T, select(hidden, Vec{}, (load(T) + load(work.through_den + i)) * weight));
      floored += weight * load(work.floored + i);
    }
    work.dlw[j] = work.any_floored ? sum_lanes(floored) : 0.0f;
  }
}

// df = G S^T, with the queries' S.
void query_features_from_state(Work& work, const float* S, Index rows) {
  small_product(work.df, work.M, {work.G_kept, work.G_row, 1}, S, work.M, rows, work.M, work.dv + 1, false);
}
// R and rho take the chunk's queries in; `left` is what remains of the later ones in the new unit.
void take_in_queries(Work& work, Index rows, float left) {
  const Index M = work.M;
  if (left != 1.0f) scale_row(work.R, work.R, left, (work.dv + 1) * M);
  small_product(work.R, M, {work.G_kept, 1, work.G_row}, work.fq, M, work.dv + 1, M, rows, true);
  work.rho *= left;
  for (Index i = 0; i < rows; ++i) work.rho += work.kept[i] * work.floored[i];
}

// dq and the map's gradient from df.
void finish_queries(Work& work, const LinearAttentionBwd& k, Index b, Index h, Index first, Index rows, float* dW) {
  work.phi.backward(k.dq.grad ? work.dx : nullptr, dW, work.df, work.fq, work.companions_q,
                    queries_of(k.q, b, h, first, rows));
  if (k.dq.grad) store_rows(k.dq, b, h, first, work.dx, rows, work.d);
}

// dk, dv, dtau and the map's gradient of the loaded keys. With `causal`, P and T hold the chunk's own pairs and dlw
// what their floor gives.
void finish_keys(Work& work, const LinearAttentionBwd& k, Index b, Index h, Index first, Index rows, float most,
                 float* dW) {
  const Index M = work.M, d = work.d, dv = work.dv;
  if (k.dv.grad) {
    transpose_tile(work.R_columns, dv, work.R, M, dv, M);
    small_product(work.dx, dv, {work.fk, M, 1}, work.R_columns, dv, rows, dv, M, false);
    for (Index j = 0; j < rows; ++j) scale_row(work.dx + j * dv, work.dx + j * dv, work.w[j], dv);
    for (Index j = 0; k.causal && j < rows; j += kStrip)
      small_product(work.dx + j * dv, dv, {work.P + j * kChunk + j, kChunk, 1}, work.G + j * work.G_row, work.G_row,
                    std::min(kStrip, rows - j), dv, rows - j, true);
    store_rows(k.dv, b, h, first, work.dx, rows, dv);
  }
  small_product(work.df, M, {work.v1, work.G_row, 1}, work.R, M, rows, M, dv + 1, false);
  for (Index j = 0; k.causal && j < rows; j += kStrip)
    small_product(work.df + j * M, M, {work.T + j * kChunk + j, kChunk, 1}, work.fq + j * M, M,
                  std::min(kStrip, rows - j), M, rows - j, true);
  const float *x = row_of(k.k, b, h, first), *df = work.df;
  work.phi.backward(k.dk.grad ? work.dx : nullptr, dW, df, work.fk, work.companions_k, keys_of(k.k, b, h, first, rows));
  if (weighs_keys(k.map)) {
    const float factor = 2.0f * float(norm_factor(k.map, h, d));
    for (Index j = 0; j < rows; ++j) {
      const float high = work.lw.high[first + j];
      if (high == -HUGE_VALF) continue;
      const float dlw = dot(work.fk + j * M, df + j * M, M) + work.w[j] * work.rho + (k.causal ? work.dlw[j] : 0.0f);
      work.dtau -= (double(high) - double(most) + double(work.lw.low[first + j])) * double(dlw);
      for (Index c = 0; k.dk.grad && c < d; c += kLanes) {
        float* dx = work.dx + j * d + c;
        store_up_to(dx, load_up_to(dx, d - c) + factor * dlw * load_up_to(x + j * k.k.row + c, d - c), d - c);
      }
    }
  }
  if (k.dk.grad) store_rows(k.dk, b, h, first, work.dx, rows, d);
}

void full_head(Work& work, const LinearAttentionBwd& k, Index b, Index h, float most, float* dW) {
  const Index Nq = k.size.Nq, Nk = k.size.Nk;
  centre_values(work.centre, work.w, work.lw, k.v, b, h, Nk, work.dv, most);
  for (Index j = 0; j < Nk; j += kChunk) {
    const Index rows = std::min(kChunk, Nk - j);
    load_keys(work, k, b, h, j, rows, most);
    take_in(work, work.S, rows);
  }
  for (Index i = 0; i < Nq; i += kChunk) {
    const Index rows = std::min(kChunk, Nq - i);
    load_queries(work, k, b, h, i, rows, most);
    query_features_from_state(work, work.S, rows);
    take_in_queries(work, rows, 1.0f);
    finish_queries(work, k, b, h, i, rows, dW);
  }
  for (Index j = 0; j < Nk; j += kChunk) {
    const Index rows = std::min(kChunk, Nk - j);
    load_keys(work, k, b, h, j, rows, most);
    finish_keys(work, k, b, h, j, rows, most, dW);
  }
}

void causal_head(Work& work, const LinearAttentionBwd& k, Index b, Index h, float most, float* dW) {
  const Index N = k.size.Nk, M = work.M, chunks = (N + kChunk - 1) / kChunk;
  const float* max = k.running_max + (b * k.size.H + h) * N;
  const auto max_before = [&](Index chunk) { return chunk == 0 ? -HUGE_VALF : max[chunk * kChunk - 1]; };
  const auto max_after = [&](Index chunk) { return max[std::min(N, (chunk + 1) * kChunk) - 1]; };

  for (Index chunk = 0; chunk + 1 < chunks; ++chunk) {
    load_keys(work, k, b, h, chunk * kChunk, kChunk, max_after(chunk));
    const float left = remaining(max_before(chunk), max_after(chunk));
    scale_row(work.state(chunk + 1), work.state(chunk), left, (work.dv + 1) * M);
    take_in(work, work.state(chunk + 1), kChunk);
  }
  for (Index chunk = chunks - 1; chunk >= 0; --chunk) {
    const Index first = chunk * kChunk, rows = std::min(kChunk, N - first);
    const float before = max_before(chunk), after = max_after(chunk);
    load_queries(work, k, b, h, first, rows, before);
    load_keys(work, k, b, h, first, rows, after);
    weigh_pairs(work, k, b, h, first, rows);
    query_features_from_state(work, work.state(chunk), rows);
    for (Index i = 0; i < rows; i += kStrip)
      small_product(work.df + i * M, M, {work.T + i, 1, kChunk}, work.fk, M, std::min(kStrip, rows - i), M,
                    std::min(rows, i + kStrip), true);
    finish_queries(work, k, b, h, first, rows, dW);
    finish_keys(work, k, b, h, first, rows, most, dW);
    take_in_queries(work, rows, remaining(before, after));
  }
}

// dtau [H] from one sum for each batch and head.
void reduce_dtau(const GradOut& dtau, const float* sums, Index B, Index H) {
  for (Index h = 0; dtau && h < H; ++h) {
    double total = 0;
    for (Index b = 0; b < B; ++b) total += sums[b * H + h];
    dtau.p[h] = dtau.add ? dtau.p[h] + float(total) : float(total);
  }
}

}  // namespace

void run(const LinearAttentionBwd& k) {
  const Index B = k.size.B, H = k.size.H, heads = B * H, N = k.size.Nk;
  const Index weights = weight_rows(k.map.kind, k.map.n) * k.size.d;
  const bool wants_weights = k.dmap.dw1 || k.dmap.dw2;
  PerThread<Work> works(heads, k.map, k.size, k.causal ? std::max<Index>(1, (N + kChunk - 1) / kChunk) : Index(1));
  Tensor dW = Tensor::zeros({heads, wants_weights ? weights : 0}), dtau = Tensor::zeros({heads});
  parallel_for(heads, 1, [&](Index head, Index) {
    Work& work = works.mine();
    const Index b = head / H, h = head % H;
    float* own_dW = wants_weights ? dW.data() + head * weights : nullptr;
    work.phi.set_head(h);
    work.dtau = 0;
    work.rho = 0;
    std::fill_n(work.centre, work.dv, 0.0f);
    std::fill_n(work.R, (work.dv + 1) * work.M, 0.0f);
    std::fill_n(work.S, (work.dv + 1) * work.M, 0.0f);
    const float most = log_weights(work.lw, work.phi, work.w, k.map, k.k, k.key_mask, b, h, N, k.size.d);
    k.causal ? causal_head(work, k, b, h, most, own_dW) : full_head(work, k, b, h, most, own_dW);
    dtau.data()[head] = float(work.dtau);
  });
  if (wants_weights) reduce_map_gradient(k.dmap, k.map, dW.data(), B, H, k.size.d);
  reduce_dtau(k.dmap.dtau, dtau.data(), B, H);
}

}  // namespace flexformer::cpu
