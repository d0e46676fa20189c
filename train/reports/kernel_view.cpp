#include "train/reports/kernel_view.h"

#include <algorithm>
#include <cmath>

namespace flexformer {
namespace {

// Calls see(x) for every query and key x [d] of a head that is no padding.
template <class See> void for_each_vector(const Tensor& qk, const LayerSight& sight, Index head, const See& see) {
  const Index B = qk.size(0), H = qk.size(1), T = qk.size(2), d = qk.size(3);
  const std::int32_t* present = sight.mask.key_mask.defined() ? sight.mask.key_mask.ints() : nullptr;
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      if (!present || present[b * T + t]) see(qk.data() + ((b * H + head) * T + t) * d);
}

struct Moments {
  std::vector<double> mean, covariance;  // [d] [d,d]
  double variance = 0;                   // the covariance's trace
};

Moments moments(const LayerSight& sight, Index head, std::initializer_list<const Tensor*> of) {
  const auto d = std::size_t(sight.layer->head_size);
  Moments m{std::vector<double>(d), std::vector<double>(d * d)};
  double count = 0;
  for (const Tensor* tensor : of)
    for_each_vector(*tensor, sight, head, [&](const float* x) {
      ++count;
      for (std::size_t c = 0; c < d; ++c) m.mean[c] += double(x[c]);
    });
  for (double& value : m.mean) value /= std::max(count, 1.0);
  for (const Tensor* tensor : of)
    for_each_vector(*tensor, sight, head, [&](const float* x) {
      for (std::size_t a = 0; a < d; ++a)
        for (std::size_t b = 0; b < d; ++b)
          m.covariance[a * d + b] += (double(x[a]) - m.mean[a]) * (double(x[b]) - m.mean[b]) / count;
    });
  for (std::size_t c = 0; c < d; ++c) m.variance += m.covariance[c * d + c];
  return m;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

// The eigenvector of a symmetric matrix [d,d] with the largest eigenvalue, by powers of the matrix; then its part of
// the matrix is taken away.
std::vector<double> take_main_axis(std::vector<double>& matrix, std::size_t d) {
  std::vector<double> axis(d), next(d);
  for (std::size_t c = 0; c < d; ++c) axis[c] = 1 + double(c) / double(d);  // no symmetry can make it a right angle
  double value = 0;
  for (int i = 0; i < 200; ++i) {
    const double length = norm(axis);
    for (double& x : axis) x /= length;
    for (std::size_t a = 0; a < d; ++a) {
      next[a] = 0;
      for (std::size_t b = 0; b < d; ++b) next[a] += matrix[a * d + b] * axis[b];
    }
    value = norm(next);
    if (value <= 0) break;  // no spread is left: any direction will do
    axis = next;
  }
  const double length = norm(axis);
  for (double& x : axis) x /= length;
  for (std::size_t a = 0; a < d; ++a)
    for (std::size_t b = 0; b < d; ++b) matrix[a * d + b] -= value * axis[a] * axis[b];
  return axis;
}

}  // namespace

std::vector<LayerSight> watch_layers(const std::function<void(const Pass&)>& forward) {
  std::vector<LayerSight> sights;
  const Pass::Observer observe = [&](const MultiHeadAttention& layer, const Var& projected, const AttentionMask& mask) {
    sights.push_back({&layer, layer.heads_of(projected, 0).value(), layer.heads_of(projected, 1).value(), mask});
  };
  forward({.only_observe = true, .observer = &observe});
  return sights;
}

Tensor attention_weights(const LayerSight& sight, bool by_softmax) {
  const MultiHeadAttention& layer = *sight.layer;
  const Index B = sight.q.size(0), H = layer.heads, T = sight.q.size(2);
  const bool own = layer.kind->is_linear && !by_softmax;
  const Index copies = own && layer.kind->features == FeatureKind::polaformer ? 2 : 1;
  Tensor unit = Tensor::zeros({1, 1, T, copies * T});
  for (Index t = 0; t < T; ++t)
    for (Index copy = 0; copy < copies; ++copy) unit.data()[t * copies * T + copy * T + t] = 1;
  const Var q(sight.q), k(sight.k), v = expand(Var(unit), {B, H, T, copies * T});
  return (own ? linear_attention(q, k, v, layer.feature_map(), sight.mask, layer.floor)
              : softmax_attention(q, k, v, sight.mask))
      .value();
}

double floored_share(const LayerSight& sight, const Tensor& weights, Index head) {
  double rows = 0, floored = 0;
  const Index columns = weights.size(3);
  for_each_vector(weights, sight, head, [&](const float* row) {
    double sum = 0;
    for (Index j = 0; j < columns; ++j) sum += double(row[j]);
    ++rows;
    floored += sum < 1 - 1e-4;
  });
  return floored / std::max(rows, 1.0);
}

Tensor kernel_values(const MultiHeadAttention& layer, const Tensor& x, const Tensor& y) {
  const Var fx = feature_map(Var(x), layer.feature_map()), fy = feature_map(Var(y), layer.feature_map(), true);
  const Tensor values = matmul(fx, fy, false, true).value();
  return values.reshape({values.size(1), values.size(2), values.size(3)});
}

std::vector<Spread> spreads(const LayerSight& sight, Index head, int count) {
  const auto d = std::size_t(sight.layer->head_size);
  std::vector<double> matrix = moments(sight, head, {&sight.q, &sight.k}).covariance;
  std::vector<Spread> out;
  for (int i = 0; i < std::min(count, int(d)); ++i) {
    const std::vector<double> axis = take_main_axis(matrix, d);
    Spread spread{{axis.begin(), axis.end()}, 0};
    for (const Tensor* tensor : {&sight.q, &sight.k})
      for_each_vector(*tensor, sight, head, [&](const float* x) {
        double along = 0;
        for (std::size_t c = 0; c < d; ++c) along += axis[c] * double(x[c]);
        spread.reach = std::max(spread.reach, std::abs(along));
      });
    out.push_back(std::move(spread));
  }
  return out;
}

double typical_distance(const LayerSight& sight, Index head) {
  const Moments q = moments(sight, head, {&sight.q}), k = moments(sight, head, {&sight.k});
  double apart = 0;
  for (std::size_t c = 0; c < q.mean.size(); ++c) apart += (q.mean[c] - k.mean[c]) * (q.mean[c] - k.mean[c]);
  return std::sqrt(q.variance + k.variance + apart);
}

std::vector<Turn> turns(const Tensor& before, const Tensor& now, Index head) {
  const Index n = now.size(1), d = now.size(2);
  std::vector<Turn> out;
  for (Index row = head * n; row < (head + 1) * n; ++row) {
    const float *a = before.data() + row * d, *b = now.data() + row * d;
    double aa = 0, bb = 0, ab = 0;
    for (Index c = 0; c < d; ++c)
      aa += double(a[c]) * double(a[c]), bb += double(b[c]) * double(b[c]), ab += double(a[c]) * double(b[c]);
    out.push_back({std::sqrt(aa), std::sqrt(bb), aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0});
  }
  return out;
}

}  // namespace flexformer
