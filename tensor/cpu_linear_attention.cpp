// Linear attention, forward: math.md "Linear attention". The causal form walks over chunks; within a chunk all pairs
// are weighed directly, what came before is one state S = sum_j w_j phi(k_j) v_j^T, z = sum_j w_j phi(k_j) and
// c = sum_j w_j, in units of exp(largest log-weight so far). The full form has one state for all queries.
#include "tensor/cpu_linear_attention.h"

#include <cmath>

#include "tensor/cpu_gemm.h"

namespace flexformer::cpu {

namespace {

// In double precision: the result is the exponent of a weight. Eight sums at a time make one vector.
double squared_norm(const float* x, Index n) {
  double sums[8] = {}, total = 0;
  Index i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; ++l) sums[l] += double(x[i + l]) * double(x[i + l]);
  for (; i < n; ++i) total += double(x[i]) * double(x[i]);
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace

double log_weight(const float* key, double factor, float shift, Index d) {
  return std::clamp(squared_norm(key, d) * factor + double(shift), -3e38, 3e38);
}

float log_weights(const LogWeights& lw, TileFeatures& phi, float* shifts, const FeatureMap& map, const HeadsIn& k,
                  const std::int32_t* key_mask, Index b, Index h, Index N, Index d) {
  const double factor = norm_factor(map, h, d);
  const bool weighted = weighs_keys(map);
  float most = -HUGE_VALF;
  for (Index j = 0; j < N; ++j) {
    if (j % kChunk == 0) phi.log_shifts(shifts, keys_of(k, b, h, j, std::min(kChunk, N - j)));
    lw.low[j] = 0;
    if (key_mask && key_mask[b * N + j] == 0) {
      lw.high[j] = -HUGE_VALF;
      continue;
    }
    const double exact = weighted ? log_weight(row_of(k, b, h, j), factor, shifts[j % kChunk], d) : 0.0;
    lw.high[j] = float(exact);
    lw.low[j] = float(std::clamp(exact - double(lw.high[j]), -1.0, 1.0));
    most = std::max(most, lw.high[j]);
  }
  return most;
}

void centre_values(float* centre, float* w, const LogWeights& lw, const HeadsIn& v, Index b, Index h, Index N, Index dv,
                   float max) {
  float total = 0;
  std::fill_n(centre, dv, 0.0f);
  for (Index first = 0; first < N; first += kChunk) {
    const Index rows = std::min(kChunk, N - first);
    weights_below(w, lw.high + first, lw.low + first, max, rows);
    for (Index j = 0; j < rows; ++j) total += w[j];
    small_product(centre, dv, {w, rows, 1}, row_of(v, b, h, first), v.row, 1, dv, rows, true);
  }
  if (total > 0) scale_row(centre, centre, 1.0f / total, dv);
}

namespace {

struct Work {
  Work(Scratch& s, const FeatureMap& map, const AttentionSize& size)
      : phi(s, map, size.d, kChunk),
        lw{s.take(size.Nk), s.take(size.Nk)},
        fq(s.take(kChunk * phi.count())),
        fk(s.take(kChunk * phi.count())),
        fq_transposed(s.take(kChunk * phi.count())),
        pairs(s.take(kChunk * kChunk)),
        v(s.take(kChunk * size.dv)),
        out(s.take(kChunk * size.dv)),
        w(s.take(kChunk)),
        max(s.take(kChunk)),
        kept(s.take(kChunk)),
        den(s.take(kChunk)),
        sw(s.take(kChunk)),
        S(s.take(phi.count() * size.dv)),
        z(s.take(phi.count())),
        centre(s.take(size.dv)) {}
  TileFeatures phi;
  LogWeights lw;
  float *fq, *fk, *fq_transposed;    // [kChunk,M] [kChunk,M] [M,kChunk]
  float* pairs;                      // [kChunk,kChunk] w_ij k_ij, a row for each key
  float *v, *out;                    // [kChunk,dv] weighed values; numerators, then outputs
  float *w, *max, *kept, *den, *sw;  // [kChunk] w_j; m_i; exp(Mx - m_i); den_i; sw_i
  float *S, *z;                      // [M,dv] [M]
  float* centre;                     // [dv] what is taken off every value
  float c = 0, Mx = -HUGE_VALF;

  void start(Index h, Index dv) {
    phi.set_head(h);
    std::fill_n(S, phi.count() * dv, 0.0f);
    std::fill_n(z, phi.count(), 0.0f);
    std::fill_n(centre, dv, 0.0f);
    c = 0;
    Mx = -HUGE_VALF;
  }

  // Takes a chunk's keys, their features in fk, into the state, whose unit becomes exp(new_max).
  void take_in(const float* values, Index v_row, Index first, Index rows, float new_max, Index dv) {
    const Index M = phi.count();
    const float left = remaining(Mx, new_max);
    if (left != 1.0f) {
      scale_row(S, S, left, M * dv);
      scale_row(z, z, left, M);
      c *= left;
    }
    Mx = new_max;
    weights_below(w, lw.high + first, lw.low + first, new_max, rows);
    for (Index j = 0; j < rows; ++j) {
      for (Index x = 0; x < dv; x += kLanes) {
        const Vec value = load_up_to(values + j * v_row + x, dv - x) - load_up_to(centre + x, dv - x);
        store_up_to(v + j * dv + x, w[j] * value, dv - x);
      }
      c += w[j];
    }
    small_product(S, dv, {fk, 1, M}, v, dv, M, dv, rows, true);
    small_product(z, M, {w, rows, 1}, fk, M, 1, M, rows, true);
  }

  // pairs = weights o k_ij, and their column sums in den and those of the weights in sw. Column i is query i.
  void weigh_pairs(Index first, Index rows, bool weighted) {
    for (Index i = 0; i < rows; i += kLanes) {
      const Vec base = base_of(load(max + i));
      const VecInt query = lanes_from(i);
      Vec den_sum{}, sw_sum{};
      for (Index j = 0; j < std::min(rows, i + kLanes); ++j) {
        const float high = lw.high[first + j];
        Vec weight = weighted ? exp((high - base) + lw.low[first + j]) : splat(high == 0.0f ? 1.0f : 0.0f);
        if (j > i) weight = select(query >= splat_int(std::int32_t(j)), weight, Vec{});
        float* pair = pairs + j * kChunk + i;
        const Vec product = select(weight == 0.0f, Vec{}, load(pair) * weight);
        store(pair, product);
        den_sum += product;
        sw_sum += weight;
      }
      for (Index j = i + kLanes; j < std::min(rows, (i / kStrip + 1) * kStrip); ++j)
        store(pairs + j * kChunk + i, Vec{});
      store(den + i, den_sum);
      store(sw + i, sw_sum);
    }
  }
};

// out = num / D, and what the backward pass needs, for queries first .. first+rows of one head.
void finish(Work& work, const LinearAttentionFwd& k, Index b, Index h, Index first, Index rows) {
  const Index dv = k.size.dv, at = (b * k.size.H + h) * k.size.Nq + first;
  for (Index i = 0; i < rows; ++i) {
    const float least = k.floor * work.sw[i];
    const bool above = work.sw[i] > 0 && (k.floor == 0.0f || work.den[i] > least);
    const float D = above ? work.den[i] : least;
    k.running_max[at + i] = weighs_keys(k.map) ? work.max[i] : 0.0f;
    k.denominator[at + i] = D;
    k.unfloored[at + i] = above ? 1.0f : 0.0f;
    float* out = work.out + i * dv;
    const float of_centre = work.den[i] / D;
    for (Index c = 0; c < dv; c += kLanes) {
      const Vec centre = load_up_to(work.centre + c, dv - c), num = load_up_to(out + c, dv - c);
      store_up_to(out + c, work.sw[i] > 0 ? num / D + of_centre * centre : Vec{}, dv - c);
    }
  }
  store_rows(k.out, b, h, first, work.out, rows, dv);
}

void causal_chunk(Work& work, const LinearAttentionFwd& k, Index b, Index h, Index first, Index rows) {
  const Index M = work.phi.count(), dv = k.size.dv;
  const float* v = row_of(k.v, b, h, first);
  work.phi.forward(work.fq, nullptr, queries_of(k.q, b, h, first, rows));
  work.phi.forward(work.fk, nullptr, keys_of(k.k, b, h, first, rows));
  transpose_tile(work.fq_transposed, kChunk, work.fq, M, rows, M);

  float running = work.Mx;
  for (Index i = 0; i < kChunk; ++i) {
    if (i < rows) running = std::max(running, work.lw.high[first + i]);
    work.max[i] = running;
  }
  for (Index i = 0; i < kChunk; i += kLanes) {
    const Vec max = load(work.max + i);
    store(work.kept + i, exp(work.Mx - base_of(max)));
  }
  for (Index j = 0; j < rows; j += kStrip)
    small_product(work.pairs + j * kChunk + j, kChunk, {work.fk + j * M, M, 1}, work.fq_transposed + j, kChunk,
                  std::min(kStrip, rows - j), rows - j, M, false);
  work.weigh_pairs(first, rows, weighs_keys(k.map));

  // What came before the chunk, then the chunk's own keys.
  small_product(work.out, dv, {work.fq, M, 1}, work.S, dv, rows, dv, M, false);
  small_product(work.w, kChunk, {work.z, M, 1}, work.fq_transposed, kChunk, 1, rows, M, false);
  for (Index i = 0; i < rows; ++i) {
    scale_row(work.out + i * dv, work.out + i * dv, work.kept[i], dv);
    work.den[i] += work.kept[i] * work.w[i];
    work.sw[i] += work.kept[i] * work.c;
  }
  for (Index i = 0; i < rows; i += kStrip)
    small_product(work.out + i * dv, dv, {work.pairs + i, 1, kChunk}, v, k.v.row, std::min(kStrip, rows - i), dv,
                  std::min(rows, i + kStrip), true);
  finish(work, k, b, h, first, rows);
  work.take_in(v, k.v.row, first, rows, running, dv);
}

void full_head(Work& work, const LinearAttentionFwd& k, Index b, Index h, float max) {
  const auto [B, H, Nq, Nk, d, dv] = k.size;
  const Index M = work.phi.count();
  centre_values(work.centre, work.w, work.lw, k.v, b, h, Nk, dv, max);
  for (Index j = 0; j < Nk; j += kChunk) {
    const Index rows = std::min(kChunk, Nk - j);
    work.phi.forward(work.fk, nullptr, keys_of(k.k, b, h, j, rows));
    work.take_in(row_of(k.v, b, h, j), k.v.row, j, rows, max, dv);
  }
  for (Index i = 0; i < Nq; i += kChunk) {
    const Index rows = std::min(kChunk, Nq - i);
    work.phi.forward(work.fq, nullptr, queries_of(k.q, b, h, i, rows));
    small_product(work.out, dv, {work.fq, M, 1}, work.S, dv, rows, dv, M, false);
    for (Index r = 0; r < rows; ++r) {
      work.den[r] = dot(work.fq + r * M, work.z, M);
      work.sw[r] = work.c;
      work.max[r] = max;
    }
    finish(work, k, b, h, i, rows);
  }
}

}  // namespace

void run(const LinearAttentionFwd& k) {
  const Index heads = k.size.B * k.size.H, N = k.size.Nk;
  PerThread<Work> works(heads, k.map, k.size);
  parallel_for(heads, 1, [&](Index head, Index) {
    Work& work = works.mine();
    const Index b = head / k.size.H, h = head % k.size.H;
    work.start(h, k.size.dv);
    const float max = log_weights(work.lw, work.phi, work.w, k.map, k.k, k.key_mask, b, h, N, k.size.d);
    if (!k.causal) return full_head(work, k, b, h, max);
    for (Index i = 0; i < N; i += kChunk) causal_chunk(work, k, b, h, i, std::min(kChunk, N - i));
  });
}

namespace {

struct StateWork {
  StateWork(Scratch& s, const FeatureMap& map, Index d, Index dv, Index N)
      : phi(s, map, d, kChunk),
        lw{s.take(N), s.take(N)},
        fk(s.take(kChunk * phi.count())),
        values(s.take(kChunk * (dv + 1))),
        w(s.take(kChunk)) {}
  TileFeatures phi;
  LogWeights lw;
  float* fk;      // [kChunk,M]
  float* values;  // [kChunk,dv+1] w_j [v_j, 1]
  float* w;       // [kChunk]
};

}  // namespace

void run(const LinearAttentionState& k) {
  const Index heads = k.B * k.H, width = k.dv + 1;
  PerThread<StateWork> works(heads, k.map, k.d, k.dv, k.N);
  parallel_for(heads, 1, [&](Index head, Index) {
    StateWork& work = works.mine();
    const Index b = head / k.H, h = head % k.H, M = work.phi.count();
    float* state = k.state + head * M * width;
    work.phi.set_head(h);
    const float max = log_weights(work.lw, work.phi, work.w, k.map, k.k, nullptr, b, h, k.N, k.d);
    float sum = 0;
    std::fill_n(state, M * width, 0.0f);
    for (Index first = 0; first < k.N; first += kChunk) {
      const Index rows = std::min(kChunk, k.N - first);
      work.phi.forward(work.fk, nullptr, keys_of(k.k, b, h, first, rows));
      weights_below(work.w, work.lw.high + first, work.lw.low + first, max, rows);
      for (Index j = 0; j < rows; ++j) {
        scale_row(work.values + j * width, row_of(k.v, b, h, first + j), work.w[j], k.dv);
        work.values[j * width + k.dv] = work.w[j];
        sum += work.w[j];
      }
      small_product(state, width, {work.fk, 1, M}, work.values, width, M, width, rows, true);
    }
    k.weight_sum[head] = sum;
    k.max[head] = max;
  });
}

namespace {

struct StepWork {
  StepWork(Scratch& s, const FeatureMap& map, Index d, Index dv)
      : fq(s.take(feature_count(map.kind, map.n, d))),
        fk(s.take(feature_count(map.kind, map.n, d))),
        p(s.take(row_scratch(map, d))),
        value(s.take(dv + 1)),
        num(s.take(dv + 1)),
        opposite(s.take(dv + 1)) {}
  float *fq, *fk, *p;
  float* value;           // [v, 1]
  float *num, *opposite;  // [dv+1] fq^T state, and that of queries whose features have changed halves
};

// state = kept * state + fk value (fk already weighed); num = fq^T state and, for polaformer, opposite the same with
// the halves of fq exchanged. A strip of columns stays in registers over all rows.
template <bool two> void step_state(StepWork& work, float* state, float kept, Index M, Index width) {
  constexpr int vectors = two ? 2 : 5;
  for (Index c = 0; c < width; c += vectors * kLanes) {
    Vec num[vectors] = {}, opposite[two ? vectors : 1] = {}, value[vectors] = {};
    const Index left = width - c;
    for (int i = 0; i < vectors; ++i)
      if (i * kLanes < left) value[i] = load_up_to(work.value + c + i * kLanes, left - i * kLanes);
    float* row = state + c;
    for (Index m = 0; m < M; ++m, row += width) {
      const float fk = work.fk[m], fq = work.fq[m], of_opposite = two ? work.fq[m < M / 2 ? m + M / 2 : m - M / 2] : 0;
#pragma GCC unroll 5
      for (int i = 0; i < vectors; ++i) {
        if (i * kLanes >= left) break;
        const Vec s = kept * load_up_to(row + i * kLanes, left - i * kLanes) + fk * value[i];
        store_up_to(row + i * kLanes, s, left - i * kLanes);
        num[i] += fq * s;
        if constexpr (two) opposite[i] += of_opposite * s;
      }
    }
    for (int i = 0; i < vectors && i * kLanes < left; ++i) {
      store_up_to(work.num + c + i * kLanes, num[i], left - i * kLanes);
      if constexpr (two) store_up_to(work.opposite + c + i * kLanes, opposite[i], left - i * kLanes);
    }
  }
}

// out = num / D for the values from `first` to `last`; num[dv] is the denominator.
void divide(float* out, const float* num, float least, float floor, Index first, Index last, Index dv) {
  const float D = floor == 0.0f || num[dv] > least ? num[dv] : least;
  for (Index c = first; c < last; ++c) out[c] = num[c] / D;
}

}  // namespace

void run(const LinearAttentionStep& k) {
  const Index M = feature_count(k.map.kind, k.map.n, k.d), heads = k.B * k.H, width = k.dv + 1;
  const bool two = k.map.kind == FeatureKind::polaformer;
  PerThread<StepWork> works(heads, k.map, k.d, k.dv);
  parallel_for(heads, grain_for(M * (k.d + k.dv), Index(1) << 17), [&](Index begin, Index end) {
    StepWork& work = works.mine();
    for (Index head = begin; head < end; ++head) {
      const Index h = head % k.H;
      const float* key = k.k + head * k.d;
      const float shift = feature_row(work.fk, work.p, k.map, h, key, k.d, k.position, true);
      feature_row(work.fq, work.p, k.map, h, k.q + head * k.d, k.d, k.position, false);
      const double lw = weighs_keys(k.map) ? log_weight(key, norm_factor(k.map, h, k.d), shift, k.d) : 0.0;
      const float before = k.max[head], now = std::max(before, float(lw));
      const float kept = remaining(before, now);
      const float w = float(std::exp(std::min(lw - double(now), 1.0)));
      scale_row(work.fk, work.fk, w, M);
      std::copy_n(k.v + head * k.dv, k.dv, work.value);
      work.value[k.dv] = 1;
      float* state = k.state + head * M * width;
      two ? step_state<true>(work, state, kept, M, width) : step_state<false>(work, state, kept, M, width);
      const float sw = kept * k.weight_sum[head] + w, least = k.floor * sw;
      k.weight_sum[head] = sw;
      k.max[head] = now;
      float* out = k.out + head * k.dv;
      const Index split = two ? (k.dv + 1) / 2 : k.dv;
      divide(out, work.num, least, k.floor, 0, split, k.dv);
      if (two) divide(out, work.opposite, least, k.floor, split, k.dv, k.dv);
    }
  });
}

}  // namespace flexformer::cpu
