// Naive attention: every query against every visible key, as the formulas say.
#include <cmath>

#include "tests/reference.h"

namespace flexformer::naive {
namespace {

// The vector at (b, h, i) of an array [B,H,N,d].
template <class A> auto* vector_at(A& x, Index b, Index h, Index i) {
  return x.data.data() + ((b * x.size(1) + h) * x.size(2) + i) * x.size(3);
}

double dot(const double* a, const double* b, Index n) {
  double total = 0;
  for (Index i = 0; i < n; ++i) total += a[i] * b[i];
  return total;
}

double largest(const Numbers& x, const std::vector<bool>& counts) {
  double most = -HUGE_VAL;
  for (std::size_t j = 0; j < x.size(); ++j)
    if (counts[j]) most = std::fmax(most, x[j]);
  return most;
}

std::vector<bool> visible_keys(const Mask& mask, Index b, Index i, Index Nk) {
  std::vector<bool> visible;
  for (Index j = 0; j < Nk; ++j) visible.push_back(mask.visible(b, i, j, Nk));
  return visible;
}

}  // namespace

Array softmax_attention(const Array& q, const Array& k, const Array& v, const Mask& mask, double scale) {
  const Index B = q.size(0), H = q.size(1), Nq = q.size(2), Nk = k.size(2), d = q.size(3), dv = v.size(3);
  Array out(q.shape.with(3, dv));
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < Nq; ++i) {
        const auto visible = visible_keys(mask, b, i, Nk);
        Numbers scores;
        for (Index j = 0; j < Nk; ++j) scores.push_back(scale * dot(vector_at(q, b, h, i), vector_at(k, b, h, j), d));
        const double most = largest(scores, visible);
        double total = 0;
        for (std::size_t j = 0; j < scores.size(); ++j)
          total += scores[j] = visible[j] ? std::exp(scores[j] - most) : 0;
        double* row = vector_at(out, b, h, i);
        for (Index j = 0; j < Nk; ++j)
          for (Index c = 0; total > 0 && c < dv; ++c)
            row[c] += scores[std::size_t(j)] / total * vector_at(v, b, h, j)[c];
      }
  return out;
}

Array features(const Array& x, const Map& map) {
  const Index B = x.size(0), H = x.size(1), N = x.size(2), d = x.size(3);
  const bool trigonometric = map.kind == FeatureKind::trig_s || map.kind == FeatureKind::trig_n;
  const Index n = trigonometric ? map.w1.size(1) : 0;
  Array y(x.shape.with(3, trigonometric ? 2 * n : d));
  Index at = 0;
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < N; ++i) {
        const double* vector = vector_at(x, b, h, i);
        for (Index c = 0; !trigonometric && c < d; ++c)
          y[at++] = map.kind == FeatureKind::identity ? vector[c] : vector[c] > 0 ? vector[c] + 1 : std::exp(vector[c]);
        for (Index f = 0; f < n; ++f) {
          const double p1 = dot(map.w1.data.data() + (h * n + f) * d, vector, d);
          const double p2 = map.kind == FeatureKind::trig_n ? dot(map.w2.data.data() + (h * n + f) * d, vector, d) : p1;
          y[at + f] = (std::cos(p1) + std::cos(p2)) / 2 / std::sqrt(double(n));
          y[at + n + f] = (std::sin(p1) + std::sin(p2)) / 2 / std::sqrt(double(n));
        }
        at += 2 * n;
      }
  return y;
}

Array linear_attention(const Array& q, const Array& k, const Array& v, const Map& map, const Mask& mask, double floor) {
  const Array query_features = features(q, map), key_features = features(k, map);
  const Index B = q.size(0), H = q.size(1), Nq = q.size(2), Nk = k.size(2), d = q.size(3), dv = v.size(3);
  const Index M = query_features.size(3);
  Array out(q.shape.with(3, dv));
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < Nq; ++i) {
        const auto visible = visible_keys(mask, b, i, Nk);
        Numbers log_weights;
        for (Index j = 0; j < Nk; ++j) {
          const double* key = vector_at(k, b, h, j);
          log_weights.push_back(map.tau.data.empty() ? 0 : dot(key, key, d) / std::exp(map.tau[h]));
        }
        const double most = largest(log_weights, visible);  // a common factor, which the quotient does not see
        double weights = 0, denominator = 0;
        Numbers numerator(std::size_t(dv), 0.0);
        for (Index j = 0; j < Nk; ++j) {
          if (!visible[std::size_t(j)]) continue;
          const double w = std::exp(log_weights[std::size_t(j)] - most);
          const double a = w * dot(vector_at(query_features, b, h, i), vector_at(key_features, b, h, j), M);
          weights += w;
          denominator += a;
          for (Index c = 0; c < dv; ++c) numerator[std::size_t(c)] += a * vector_at(v, b, h, j)[c];
        }
        if (floor > 0 && denominator <= floor * weights) denominator = floor * weights;
        for (Index c = 0; weights > 0 && c < dv; ++c)
          vector_at(out, b, h, i)[c] = numerator[std::size_t(c)] / denominator;
      }
  return out;
}

Array head_part(const Array& qkv, Index heads, int part) {
  const Index B = qkv.size(0), T = qkv.size(1), C = qkv.size(2) / 3, d = C / heads;
  Array y(Shape{B, heads, T, d});
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index t = 0; t < T; ++t)
        for (Index c = 0; c < d; ++c)
          y[((b * heads + h) * T + t) * d + c] = qkv[(b * T + t) * 3 * C + part * C + h * d + c];
  return y;
}

Array merge_heads(const Array& x) {
  return reshape(permute(x, {0, 2, 1, 3}), Shape{x.size(0), x.size(2), x.size(1) * x.size(3)});
}

Array rope(const Array& qkv, Index heads, Index position, double base) {
  const Index B = qkv.size(0), T = qkv.size(1), C = qkv.size(2) / 3, d = C / heads;
  Array y = qkv;
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index pair = 0; pair < C; ++pair) {  // of the 2C channels of q and k
        const Index first = (b * T + t) * 3 * C + 2 * pair, c = (2 * pair % d) / 2;
        const double angle = double(position + t) * std::pow(base, -2.0 * double(c) / double(d));
        y[first] = std::cos(angle) * qkv[first] - std::sin(angle) * qkv[first + 1];
        y[first + 1] = std::sin(angle) * qkv[first] + std::cos(angle) * qkv[first + 1];
      }
  return y;
}

}  // namespace flexformer::naive
