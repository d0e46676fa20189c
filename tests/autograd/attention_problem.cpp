// See attention_problem.h.
#include "tests/autograd/attention_problem.h"

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

// The gradient of one head's projections p = factor W x of a row, from those of its features f.
std::vector<double> projection_gradient(FeatureKind kind, const double* f, const double* df, const double* p, Index n) {
  std::vector<double> dp;
  const double root = 1 / std::sqrt(double(n)), share = kind == FeatureKind::trig_n ? 0.5 : 1;
  double mean = 0, mean_of_negative = 0;  // hedgehog
  for (Index m = 0; m < n && kind == FeatureKind::hedgehog; ++m) {
    mean += f[m] * df[m];
    mean_of_negative += f[n + m] * df[n + m];
  }
  for (Index m = 0; m < n; ++m)
    dp.push_back(kind == FeatureKind::performer ? f[m] * df[m]
                 : kind == FeatureKind::hedgehog
                     ? f[m] * (df[m] - mean) - f[n + m] * (df[n + m] - mean_of_negative)
                     : share * root * (std::cos(p[m]) * df[n + m] - std::sin(p[m]) * df[m]));
  return dp;
}

// Adds to dx [d] what the gradient g of the features f of one row asks for, in the maps without projections; and to
// dpower [d], polaformer's.
void add_row_gradient(const naive::Map& map, const double* x, const double* f, const double* g, const double* power,
                      Index i, Index d, bool keys, double* dx, double* dpower) {
  const bool swapped = map.opposite && !keys;
  for (Index c = 0; c < d; ++c) {
    if (map.kind == FeatureKind::identity) dx[c] += g[c];
    if (map.kind == FeatureKind::elu1) dx[c] += g[c] * (x[c] > 0 ? 1 : std::exp(x[c]));
    const double angle = std::acos(0.0) * double(i + 1) / double(map.max_length);
    if (map.kind == FeatureKind::cosformer && x[c] > 0) dx[c] += std::cos(angle) * g[c] + std::sin(angle) * g[d + c];
    if (map.kind != FeatureKind::polaformer || x[c] == 0) continue;
    const double gate = 1 / (1 + std::exp(-power[c])), value = f[c] + f[d + c];
    const double slope = value * (((x[c] > 0) != swapped) ? g[c] : g[d + c]);
    dx[c] += slope * (1 + 4 * gate) / x[c];
    dpower[c] += slope * std::log(std::fabs(x[c])) * 4 * gate * (1 - gate);
  }
}

// Adds to dx and to the map's gradients what the gradient df of the features of x asks for.
void features_backward(const naive::Map& map, const Array& x, bool keys, const Array& df, Array& dx, Arrays& dmap) {
  const Index d = x.size(3), n = map.w1.data.empty() ? 0 : map.w1.size(1);
  const Array features = naive::features(x, map, keys);
  const bool projects = n > 0 && map.kind != FeatureKind::polaformer;
  std::vector<std::size_t> sets{0};
  if (map.kind == FeatureKind::trig_n) sets.push_back(1);
  if (map.kind == FeatureKind::hedgehog) sets[0] = keys;
  for (Index b = 0; b < x.size(0); ++b)
    for (Index h = 0; h < x.size(1); ++h)
      for (Index i = 0; i < x.size(2); ++i) {
        const double *from = row(x, b, h, i), *f = row(features, b, h, i), *g = row(df, b, h, i);
        double* to = row(dx, b, h, i);
        if (!projects) {
          const Index power = n ? h * d : 0;
          add_row_gradient(map, from, f, g, n ? map.w1.data.data() + power : nullptr, i, d, keys, to,
                           n ? dmap[0].data.data() + power : nullptr);
          continue;
        }
        const double squares = dot(from, from, d);
        const double factor = map.kind == FeatureKind::rfa         ? 1 / std::sqrt(squares)
                              : map.kind == FeatureKind::performer ? std::pow(double(d), -0.25)
                                                                   : 1;
        std::vector<double> through_p(std::size_t(d), 0.0);
        for (std::size_t s : sets) {
          const double* w = (s ? map.w2 : map.w1).data.data() + h * n * d;
          std::vector<double> p;
          for (Index m = 0; m < n; ++m) p.push_back(factor * dot(w + m * d, from, d));
          const std::vector<double> dp = projection_gradient(map.kind, f, g, p.data(), n);
          for (Index m = 0; m < n; ++m) {
            add_scaled(through_p.data(), factor * dp[std::size_t(m)], w + m * d, d);
            add_scaled(dmap[s].data.data() + (h * n + m) * d, factor * dp[std::size_t(m)], from, d);
          }
        }
        if (map.kind == FeatureKind::rfa) add_scaled(to, -dot(through_p.data(), from, d) / squares, from, d);
        if (map.kind == FeatureKind::performer) add_scaled(to, -dot(f, g, df.size(3)) / std::sqrt(double(d)), from, d);
        add_scaled(to, 1, through_p.data(), d);
      }
}

// Gradients of linear attention, pair by pair: a_ij = w_ij k_ij, out_i = sum_j a_ij v_j / D_i. Added to g.
void add_linear_gradients(Arrays& g, const Arrays& x, const Array& v, Array& dvalues, const naive::Map& map,
                          const naive::Mask& mask, double floor, const Array& out, const Array& dout) {
  const Array &q = x[0], &k = x[1], fq = naive::features(q, map, false), fk = naive::features(k, map, true);
  const Index Nk = k.size(2), d = q.size(3), dv = v.size(3), M = fq.size(3);
  const bool weighted = !map.tau.data.empty();
  Array dfq(fq.shape), dfk(fk.shape);
  for (Index b = 0; b < q.size(0); ++b)
    for (Index h = 0; h < q.size(1); ++h)
      for (Index i = 0; i < q.size(2); ++i) {
        const double inverse = weighted ? 1 / std::exp(map.tau[h]) : 0;
        double most = -HUGE_VAL, den = 0, sw = 0;
        std::vector<double> lw, w, pair;
        for (Index j = 0; j < Nk; ++j) {
          lw.push_back(dot(row(k, b, h, j), row(k, b, h, j), d) * inverse);
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
          add_scaled(row(dvalues, b, h, j), w_j * pair[std::size_t(j)] / D, go, dv);
          add_scaled(row(g[1], b, h, j), 2 * dlw * inverse, row(k, b, h, j), d);
          if (weighted) g.back()[h] -= (lw[std::size_t(j)] - most) * dlw;
        }
      }
  Arrays dmap(g.begin() + 3, g.end());
  features_backward(map, q, false, dfq, g[0], dmap);
  features_backward(map, k, true, dfk, g[1], dmap);
  std::copy(dmap.begin(), dmap.end(), g.begin() + 3);
}

Arrays linear_gradients(const Arrays& x, const naive::Map& map, const naive::Mask& mask, double floor, const Array& out,
                        const Array& dout) {
  Arrays g;
  for (const Array& input : x) g.emplace_back(input.shape);
  const Array& v = x[2];
  const Index dv = v.size(3), half = map.kind == FeatureKind::polaformer ? (dv + 1) / 2 : dv;
  Arrays parts;
  for (const auto& [first, last] : {std::pair{Index(0), half}, {half, dv}}) {
    if (first == last) continue;
    const auto part = [first = first, last = last](const Array& y) { return naive::slice(y, 3, first, last); };
    naive::Map own = map;
    own.opposite = first > 0;
    parts.push_back(part(g[2]));
    add_linear_gradients(g, x, part(v), parts.back(), own, mask, floor, part(out), part(dout));
  }
  g[2] = naive::concat(parts, 3);
  return g;
}

naive::Map naive_map(const Problem& p, const Arrays& x) {
  naive::Map map{.kind = feature_kind(p.kind), .max_length = 1000};
  if (weight_sets(p.kind) >= 1) map.w1 = x[3];
  if (weight_sets(p.kind) >= 2) map.w2 = x[4];
  if (has_tau(p.kind)) map.tau = x.back();
  return map;
}

// Numbers near 1 and -1.
Tensor random_signed(const Shape& shape, std::uint64_t stream) {
  Tensor x = random_normal(shape, 0.3f, stream);
  for (Index i = 0; i < x.numel(); ++i) x.data()[i] += uniform_at({18, stream}, std::uint64_t(i)) < 0.5f ? -1.0f : 1.0f;
  return x;
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
  FeatureMapVars map{.kind = feature_kind(kind), .max_length = 1000};
  if (weight_sets(kind) >= 1) map.w1 = x[3];
  if (weight_sets(kind) >= 2) map.w2 = x[4];
  if (has_tau(kind)) map.tau = x.back();
  return map;
}
FeatureMap Problem::kernel_map() const {
  const int sets = weight_sets(kind);
  return {.kind = feature_kind(kind),
          .n = sets ? inputs[3].size(1) : 0,
          .w1 = sets >= 1 ? inputs[3].data() : nullptr,
          .w2 = sets >= 2 ? inputs[4].data() : nullptr,
          .tau = has_tau(kind) ? inputs.back().data() : nullptr,
          .max_length = 1000};
}
Var Problem::attend(const std::vector<Var>& x) const {
  if (kind == Kind::softmax) return softmax_attention(x[0], x[1], x[2], attention_mask());
  return linear_attention(x[0], x[1], x[2], map(x), attention_mask(), floor);
}

Problem problem(Kind kind, Index B, Index H, Index N, Index d, Index dv, bool causal, bool masked) {
  // Around 1, where denominators of the identity and cosformer are positive and rfa's q and k are neighbours.
  const float mean = kind == Kind::identity || kind == Kind::cosformer || kind == Kind::rfa ? 1.0f : 0.0f;
  const float spread = kind == Kind::softmax ? 1.0f : 0.3f;
  Problem p{kind,
            {random_normal({B, H, N, d}, spread, 1, mean), random_normal({B, H, N, d}, spread, 2, mean),
             random_normal({B, H, N, dv}, 1, 3)},
            {causal, {}}};
  const float w = 1 / std::sqrt(std::sqrt(float(d)));
  const Shape shape{H, kind == Kind::polaformer ? 1 : d + 1, d};
  for (int set = 0; set < weight_sets(kind); ++set) p.inputs.push_back(random_normal(shape, w, 4 + std::uint64_t(set)));
  if (kind >= Kind::performer) p.floor = 1e-20f;
  for (std::size_t i = 0; kind == Kind::polaformer && i < 2; ++i) p.inputs[i] = random_signed({B, H, N, d}, i + 1);
  if (has_tau(kind)) p.inputs.push_back(random_normal({H}, 0.2f, 6, std::log(2 * std::sqrt(float(d)))));
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
