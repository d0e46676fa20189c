// See attention_problem.h.
#include "tests/attention_problem.h"

#include <doctest/doctest.h>

#include <cmath>
#include <utility>

namespace flexformer::testing {

using naive::Array, naive::Arrays;

namespace {

const double* row(const Array& x, Index b, Index h, Index i) {
  return x.data.data() + ((b * x.size(1) + h) * x.size(2) + i) * x.size(3);
}
double* row(Array& x, Index b, Index h, Index i) { return const_cast<double*>(row(std::as_const(x), b, h, i)); }
double dot(const double* a, const double* b, Index n) {
  double total = 0;
  for (Index i = 0; i < n; ++i) total += a[i] * b[i];
  return total;
}
void add_scaled(double* y, double factor, const double* x, Index n) {
  for (Index i = 0; i < n; ++i) y[i] += factor * x[i];
}

// Gradients of softmax attention: dS = P (dP - dout . out).
Arrays softmax_gradients(const Arrays& x, const naive::Mask& mask, const Array& out, const Array& dout) {
  const Array &q = x[0], &k = x[1], &v = x[2];
  const Index Nk = k.size(2), d = q.size(3), dv = v.size(3);
  const double scale = 1 / std::sqrt(double(d));
  Arrays g{Array(q.shape), Array(k.shape), Array(v.shape)};
  for (Index b = 0; b < q.size(0); ++b)
    for (Index h = 0; h < q.size(1); ++h)
      for (Index i = 0; i < q.size(2); ++i) {
        double total = 0, most = -HUGE_VAL;
        std::vector<double> p(std::size_t(Nk), 0.0);
        for (Index j = 0; j < Nk; ++j)
          if (mask.visible(b, i, j, Nk)) most = std::fmax(most, scale * dot(row(q, b, h, i), row(k, b, h, j), d));
        for (Index j = 0; j < Nk; ++j)
          if (mask.visible(b, i, j, Nk))
            total += p[std::size_t(j)] = std::exp(scale * dot(row(q, b, h, i), row(k, b, h, j), d) - most);
        for (Index j = 0; j < Nk; ++j) {
          const double weight = p[std::size_t(j)] > 0 ? p[std::size_t(j)] / total : 0;
          const double* go = row(dout, b, h, i);
          const double ds = scale * weight * (dot(go, row(v, b, h, j), dv) - dot(go, row(out, b, h, i), dv));
          add_scaled(row(g[0], b, h, i), ds, row(k, b, h, j), d);
          add_scaled(row(g[1], b, h, j), ds, row(q, b, h, i), d);
          add_scaled(row(g[2], b, h, j), weight, go, dv);
        }
      }
  return g;
}

// Adds to dx and to the map's gradients what the gradient df of the features of x asks for.
void features_backward(const naive::Map& map, const Array& x, const Array& df, Array& dx, Arrays& dmap) {
  const Index d = x.size(3), M = df.size(3), n = M / 2;
  const double root = 1 / std::sqrt(double(n));
  const bool trigonometric = map.kind == FeatureKind::trig_s || map.kind == FeatureKind::trig_n;
  const Index frequencies = map.kind == FeatureKind::trig_s ? 1 : 2;
  for (Index b = 0; b < x.size(0); ++b)
    for (Index h = 0; h < x.size(1); ++h)
      for (Index i = 0; i < x.size(2); ++i) {
        const double *from = row(x, b, h, i), *g = row(df, b, h, i);
        double* to = row(dx, b, h, i);
        for (Index c = 0; !trigonometric && c < d; ++c)
          to[c] += g[c] * (map.kind == FeatureKind::identity || from[c] > 0 ? 1 : std::exp(from[c]));
        for (Index f = 0; trigonometric && f < n; ++f)
          for (Index s = 0; s < frequencies; ++s) {
            const double* w = (s ? map.w2 : map.w1).data.data() + (h * n + f) * d;
            const double p = dot(w, from, d);
            const double dp = root / double(frequencies) * (std::cos(p) * g[n + f] - std::sin(p) * g[f]);
            add_scaled(to, dp, w, d);
            add_scaled(dmap[std::size_t(s)].data.data() + (h * n + f) * d, dp, from, d);
          }
      }
}

// Gradients of linear attention, pair by pair: a_ij = w_ij k_ij, out_i = sum_j a_ij v_j / D_i.
Arrays linear_gradients(const Arrays& x, const naive::Map& map, const naive::Mask& mask, double floor, const Array& out,
                        const Array& dout) {
  const Array &q = x[0], &k = x[1], &v = x[2], fq = naive::features(q, map), fk = naive::features(k, map);
  const Index Nk = k.size(2), d = q.size(3), dv = v.size(3), M = fq.size(3);
  Arrays g;
  for (const Array& input : x) g.emplace_back(input.shape);
  Array dfq(fq.shape), dfk(fk.shape);
  for (Index b = 0; b < q.size(0); ++b)
    for (Index h = 0; h < q.size(1); ++h)
      for (Index i = 0; i < q.size(2); ++i) {
        double most = -HUGE_VAL, den = 0, sw = 0;
        std::vector<double> lw, w, pair;
        for (Index j = 0; j < Nk; ++j) {
          lw.push_back(dot(row(k, b, h, j), row(k, b, h, j), d) / std::exp(map.tau[h]));
          if (mask.visible(b, i, j, Nk)) most = std::fmax(most, lw.back());
        }
        for (Index j = 0; j < Nk; ++j) {
          w.push_back(mask.visible(b, i, j, Nk) ? std::exp(lw[std::size_t(j)] - most) : 0);
          pair.push_back(dot(row(fq, b, h, i), row(fk, b, h, j), M));
          den += w.back() * pair.back();
          sw += w.back();
        }
        if (sw == 0) continue;
        const bool above = den > floor * sw;
        const double D = above ? den : floor * sw, *go = row(dout, b, h, i);
        const double e = -dot(go, row(out, b, h, i), dv) / D;
        for (Index j = 0; j < Nk; ++j) {
          const double w_j = w[std::size_t(j)], t = w_j * (dot(go, row(v, b, h, j), dv) / D + (above ? e : 0));
          const double dlw = t * pair[std::size_t(j)] + w_j * (above ? 0 : floor * e);
          add_scaled(row(dfq, b, h, i), t, row(fk, b, h, j), M);
          add_scaled(row(dfk, b, h, j), t, row(fq, b, h, i), M);
          add_scaled(row(g[2], b, h, j), w_j * pair[std::size_t(j)] / D, go, dv);
          add_scaled(row(g[1], b, h, j), 2 * dlw / std::exp(map.tau[h]), row(k, b, h, j), d);
          g.back()[h] -= (lw[std::size_t(j)] - most) * dlw;
        }
      }
  Arrays dmap(g.begin() + 3, g.end());
  features_backward(map, q, dfq, g[0], dmap);
  features_backward(map, k, dfk, g[1], dmap);
  std::copy(dmap.begin(), dmap.end(), g.begin() + 3);
  return g;
}

naive::Map naive_map(const Problem& p, const Arrays& x) {
  naive::Map map{feature_kind(p.kind), {}, {}, {}};
  if (is_trigonometric(p.kind)) map.w1 = x[3];
  if (p.kind == Kind::trig_n) map.w2 = x[4];
  map.tau = x.back();
  return map;
}

}  // namespace

Tensor random_normal(const Shape& shape, float deviation, std::uint64_t stream, float mean) {
  std::vector<float> values;
  for (Index i = 0; i < shape.numel(); ++i)
    values.push_back(mean + deviation * normal_at({17, stream}, std::uint64_t(i)));
  return Tensor::from(shape, values);
}

Array array_of(const Tensor& x) {
  const std::vector<float> values = x.to_vector();
  return {x.shape(), {values.begin(), values.end()}};
}

AttentionMask Problem::attention_mask() const {
  const Index B = inputs[0].size(0), Nk = inputs[1].size(2);
  return {mask.causal, mask.keys.empty() ? Tensor() : Tensor::from_ints({B, Nk}, mask.keys)};
}
FeatureMapVars Problem::map(const std::vector<Var>& x) const {
  FeatureMapVars map{feature_kind(kind), {}, {}, {}};
  if (is_trigonometric(kind)) map.w1 = x[3];
  if (kind == Kind::trig_n) map.w2 = x[4];
  map.tau = x.back();
  return map;
}
Var Problem::attend(const std::vector<Var>& x) const {
  if (kind == Kind::softmax) return softmax_attention(x[0], x[1], x[2], attention_mask());
  return linear_attention(x[0], x[1], x[2], map(x), attention_mask(), floor);
}

Problem problem(Kind kind, Index B, Index H, Index N, Index d, Index dv, bool causal, bool masked) {
  const float mean = kind == Kind::identity ? 1.0f : 0.0f;  // keeps denominators of the identity map positive
  const float spread = kind == Kind::softmax ? 1.0f : 0.3f;
  Problem p{kind,
            {random_normal({B, H, N, d}, spread, 1, mean), random_normal({B, H, N, d}, spread, 2, mean),
             random_normal({B, H, N, dv}, 1, 3)},
            {causal, {}}};
  const float w = 1 / std::sqrt(std::sqrt(float(d)));
  if (is_trigonometric(kind)) p.inputs.push_back(random_normal({H, d + 1, d}, w, 4));
  if (kind == Kind::trig_n) p.inputs.push_back(random_normal({H, d + 1, d}, w, 5));
  if (kind != Kind::softmax) p.inputs.push_back(random_normal({H}, 0.2f, 6, std::log(2 * std::sqrt(float(d)))));
  if (masked)
    for (Index i = 0; i < B * N; ++i) p.mask.keys.push_back(uniform_at({17, 7}, std::uint64_t(i)) < 0.6f);
  return p;
}

Answer solve(const Problem& p, const Tensor& dout) {
  std::vector<Var> x;
  for (const Tensor& input : p.inputs) x.emplace_back(input, true);
  Tape tape;
  const Var out = p.attend(x);
  tape.backward(out, dout);
  Answer answer{out.value(), {}};
  for (const Var& input : x) answer.gradients.push_back(input.grad());
  return answer;
}

double norm(const Array& x) { return std::sqrt(dot(x.data.data(), x.data.data(), x.numel())); }

// |ours - reference| / |reference|, where a reference near 0 counts as 1e-3 of `least`.
double error(const Tensor& ours, const Array& reference, double least) {
  REQUIRE(ours.shape() == reference.shape);
  Array difference = array_of(ours);
  add_scaled(difference.data.data(), -1, reference.data.data(), reference.numel());
  const double e = norm(difference) / std::max(norm(reference), 1e-3 * least);
  return e == e ? e : HUGE_VAL;
}

naive::Arrays exact_answer(const Problem& p, const Tensor& dout) {
  Arrays x;
  for (const Tensor& input : p.inputs) x.push_back(array_of(input));
  const Array go = array_of(dout);
  Array out;
  Arrays gradients;
  if (p.kind == Kind::softmax) {
    out = naive::softmax_attention(x[0], x[1], x[2], p.mask, 1 / std::sqrt(double(x[0].size(3))));
    gradients = softmax_gradients(x, p.mask, out, go);
  } else {
    const naive::Map map = naive_map(p, x);
    out = naive::linear_attention(x[0], x[1], x[2], map, p.mask, double(p.floor));
    gradients = linear_gradients(x, map, p.mask, double(p.floor), out, go);
  }
  gradients.insert(gradients.begin(), out);
  return gradients;
}

}  // namespace flexformer::testing
