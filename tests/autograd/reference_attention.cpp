// Naive attention: every query against every visible key, as the formulas say.
#include <cmath>

#include "tests/autograd/reference.h"

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

namespace {

// phi of one row x [d] at position i (from 0) of head h.
Numbers row_features(const Map& map, const double* x, Index h, Index i, Index d, bool keys) {
  const Index n = map.w1.data.empty() ? 0 : map.w1.size(1);
  const auto project = [&](const Array& w, double factor) {
    Numbers p;
    for (Index f = 0; f < n; ++f) p.push_back(factor * dot(w.data.data() + (h * n + f) * d, x, d));
    return p;
  };
  const double squares = dot(x, x, d);
  Numbers y, second;  // second: the later half of phi
  switch (map.kind) {
    case FeatureKind::identity:
      return Numbers(x, x + d);
    case FeatureKind::elu1:
      for (Index c = 0; c < d; ++c) y.push_back(x[c] > 0 ? x[c] + 1 : std::exp(x[c]));
      return y;
    case FeatureKind::performer:
      for (double p : project(map.w1, std::pow(double(d), -0.25)))
        y.push_back(std::exp(p - squares / 2 / std::sqrt(double(d))) / std::sqrt(double(n)));
      return y;
    case FeatureKind::trig_s:
    case FeatureKind::trig_n:
    case FeatureKind::rfa: {
      const double factor = map.kind == FeatureKind::rfa ? (squares > 0 ? 1 / std::sqrt(squares) : 0) : 1;
      const Numbers p1 = project(map.w1, factor), p2 = map.kind == FeatureKind::trig_n ? project(map.w2, 1) : p1;
      for (std::size_t f = 0; f < p1.size(); ++f) {
        y.push_back((std::cos(p1[f]) + std::cos(p2[f])) / 2 / std::sqrt(double(n)));
        second.push_back((std::sin(p1[f]) + std::sin(p2[f])) / 2 / std::sqrt(double(n)));
      }
      break;
    }
    case FeatureKind::hedgehog:
      y = softmax(project(keys ? map.w2 : map.w1, 1));
      second = softmax(project(keys ? map.w2 : map.w1, -1));
      break;
    case FeatureKind::cosformer:
      for (Index c = 0; c < d; ++c) {
        const double angle = std::acos(0.0) * double(i + 1) / double(map.max_length);
        y.push_back(std::fmax(x[c], 0) * std::cos(angle));
        second.push_back(std::fmax(x[c], 0) * std::sin(angle));
      }
      break;
    case FeatureKind::polaformer:
      for (Index c = 0; c < d; ++c) {
        const double exponent = 1 + 4 / (1 + std::exp(-map.w1[h * d + c]));
        y.push_back(x[c] > 0 ? std::pow(x[c], exponent) : 0);
        second.push_back(x[c] < 0 ? std::pow(-x[c], exponent) : 0);
      }
      if (map.opposite && !keys) std::swap(y, second);
  }
  y.insert(y.end(), second.begin(), second.end());
  return y;
}

}  // namespace

Array features(const Array& x, const Map& map, bool keys) {
  const Index B = x.size(0), H = x.size(1), N = x.size(2), d = x.size(3);
  const Numbers zeros(std::size_t(d), 0.0);
  Array y(x.shape.with(3, Index(row_features(map, zeros.data(), 0, 0, d, keys).size())));
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < N; ++i) {
        const Numbers row = row_features(map, vector_at(x, b, h, i), h, i, d, keys);
        std::copy(row.begin(), row.end(), vector_at(y, b, h, i));
      }
  return y;
}

static Array weighted_values(const Array& q, const Array& k, const Array& v, const Map& map, const Mask& mask,
                             double floor) {
  const Array query_features = features(q, map, false), key_features = features(k, map, true);
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

Array linear_attention(const Array& q, const Array& k, const Array& v, const Map& map, const Mask& mask, double floor) {
  if (map.kind == FeatureKind::polaformer && !map.opposite && v.size(3) > 1) {
    const Index dv = v.size(3), half = (dv + 1) / 2;
    Map opposite = map;
    opposite.opposite = true;
    const Array first = slice(v, 3, 0, half), rest = slice(v, 3, half, dv);
    return concat({weighted_values(q, k, first, map, mask, floor), weighted_values(q, k, rest, opposite, mask, floor)},
                  3);
  }
  return weighted_values(q, k, v, map, mask, floor);
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
