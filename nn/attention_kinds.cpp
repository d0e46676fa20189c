// The table behind attention_kinds.h, and how the feature maps' parameters start.
#include "nn/attention_kinds.h"

#include <cmath>

namespace flexformer {
namespace {

// omega_scale * N(0, I / sqrt d): with 1, frequencies of the Gaussian kernel that softmax contains, math.md (2.2).
Tensor flexformer_start(const Scope& scope, const MapSize& s) {
  return scope.draw({s.heads, s.n, s.head_size},
                    Init::normal(s.omega_scale / std::sqrt(std::sqrt(float(s.head_size)))));
}

// N(0, I): frequencies of the Gaussian kernel on the unit sphere, where rfa's q and k lie.
Tensor rfa_start(const Scope& scope, const MapSize& s) {
  return scope.draw({s.heads, s.n, s.head_size}, Init::normal(1));
}

// Rows of N(0, I), made orthogonal within blocks of head_size rows; each keeps the length it was drawn with, so that
// every row by itself is still N(0, I).
Tensor performer_start(const Scope& scope, const MapSize& s) {
  Tensor w = scope.draw({s.heads, s.n, s.head_size}, Init::normal(1));
  const Index d = s.head_size;
  const auto dot = [d](const float* a, const float* b) {
    double sum = 0;
    for (Index c = 0; c < d; ++c) sum += double(a[c]) * double(b[c]);
    return sum;
  };
  for (Index row = 0; row < s.heads * s.n; ++row) {
    float* x = w.data() + row * d;
    const double length = std::sqrt(dot(x, x));
    const Index block = row % s.n / d * d + row / s.n * s.n;  // first row of the block
    for (int pass = 0; pass < 2; ++pass)                      // the second takes away what rounding left
      for (Index other = block; other < row; ++other) {
        const float* y = w.data() + other * d;
        const double along = dot(x, y) / dot(y, y);
        for (Index c = 0; c < d; ++c) x[c] -= float(along) * y[c];
      }
    const double left = std::sqrt(dot(x, x));
    for (Index c = 0; c < d; ++c) x[c] *= float(length / left);
  }
  return w;
}

// The identity, its rows repeated where n > head_size, plus N(0, 0.02^2), by which repeated rows part.
Tensor hedgehog_start(const Scope& scope, const MapSize& s) {
  Tensor w = scope.draw({s.heads, s.n, s.head_size}, Init::normal(0.02f));
  for (Index row = 0; row < s.heads * s.n; ++row) w.data()[row * s.head_size + row % s.n % s.head_size] += 1;
  return w;
}

// Exponents 1 + 4 sigmoid(0) = 3, one per channel.
Tensor polaformer_start(const Scope& scope, const MapSize& s) {
  return scope.draw({s.heads, 1, s.head_size}, Init::constant(0));
}

}  // namespace

const std::vector<AttentionKind>& attention_kinds() {
  using enum FeatureKind;
  constexpr float positive = 1e-20f;
  static const std::vector<AttentionKind> kinds = {
      // name, linear, feature map, start of w1 and w2, learned | tau: has, learns | ties q and k | end | floors
      {"softmax", false, identity, nullptr, false, false, false, false, false, 0, 0},
      {"flexformer_s", true, trig_s, flexformer_start, true, true, false, true, false, 0.05f, 0.01f},
      {"flexformer_n", true, trig_n, flexformer_start, true, true, true, true, false, 0.05f, 0.01f},
      {"linear", true, elu1, nullptr, false, false, false, false, false, 1e-6f, 1e-6f},
      {"performer", true, performer, performer_start, false, false, false, false, false, positive, positive},
      {"rfa", true, rfa, rfa_start, false, false, false, true, false, 0.05f, 0.01f},
      {"cosformer", true, cosformer, nullptr, false, false, false, false, true, positive, positive},
      {"hedgehog", true, hedgehog, hedgehog_start, true, false, false, false, false, positive, positive},
      {"polaformer", true, polaformer, polaformer_start, true, false, false, false, false, positive, positive},
  };
  return kinds;
}

const AttentionKind& attention_kind(const std::string& name) {
  std::string names;
  for (const AttentionKind& kind : attention_kinds()) {
    if (name == kind.name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  fail("there is no attention '", name, "'; there are ", names);
}

std::vector<std::string> attention_kind_names() {
  std::vector<std::string> names;
  for (const AttentionKind& kind : attention_kinds()) names.emplace_back(kind.name);
  return names;
}

}  // namespace flexformer
