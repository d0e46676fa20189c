// The feature maps themselves: features of one row, from its elements x or its projections p = W x, and the gradient
// back through them. math.md "Feature maps" and "Other kinds of linear attention".
#pragma once
#include <cmath>
#include <numbers>

#include "tensor/cpu_attention.h"

namespace flexformer::cpu {

inline void elu1_row(float* f, const float* x, Index d) {
  for (Index c = 0; c < d; c += kLanes) {
    const Vec v = load_up_to(x + c, d - c);
    store_up_to(f + c, select(v > 0.0f, v + 1.0f, exp(v)), d - c);
  }
}

// [cos p, sin p] / sqrt(n)
inline void trig_s_row(float* f, const float* p, Index n, float root) {
  for (Index c = 0; c < n; c += kLanes) {
    Vec sine, cosine;
    sincos(load_up_to(p + c, n - c), sine, cosine);
    store_up_to(f + c, root * cosine, n - c);
    store_up_to(f + n + c, root * sine, n - c);
  }
}

// [cos a cos b, sin a cos b] / sqrt(n), p = [a, b]
inline void trig_n_row(float* f, float* companions, const float* p, Index n, float root) {
  for (Index c = 0; c < n; c += kLanes) {
    Vec sine_a, cosine_a, sine_b, cosine_b;
    sincos(load_up_to(p + c, n - c), sine_a, cosine_a);
    sincos(load_up_to(p + n + c, n - c), sine_b, cosine_b);
    cosine_b *= root;
    store_up_to(f + c, cosine_a * cosine_b, n - c);
    store_up_to(f + n + c, sine_a * cosine_b, n - c);
    if (!companions) continue;
    sine_b *= root;
    store_up_to(companions + c, cosine_a * sine_b, n - c);
    store_up_to(companions + n + c, sine_a * sine_b, n - c);
  }
}

// The gradients of p for both, from those of f; companions are null for trig_s.
inline void trigonometric_backward(float* dp, const float* df, const float* f, const float* companions, Index n) {
  for (Index c = 0; c < n; c += kLanes) {
    const Index left = n - c;
    const Vec dcos = load_up_to(df + c, left), dsin = load_up_to(df + n + c, left);
    store_up_to(dp + c, load_up_to(f + c, left) * dsin - load_up_to(f + n + c, left) * dcos, left);
    if (!companions) continue;
    const Vec db = load_up_to(companions + c, left) * dcos + load_up_to(companions + n + c, left) * dsin;
    store_up_to(dp + n + c, -db, left);
  }
}

// The largest of sign * p, n >= 1.
inline float largest(const float* p, float sign, Index n) {
  Vec most = splat(sign * p[0]);
  Index c = 0;
  for (; c + kLanes <= n; c += kLanes) most = max(most, sign * load(p + c));
  float result = max_lanes(most);
  for (; c < n; ++c) result = std::max(result, sign * p[c]);
  return result;
}

// y = factor * exp(sign * p - most); returns the sum.
inline float exp_row(float* y, const float* p, float sign, float most, float factor, Index n) {
  Vec total{};
  for (Index c = 0; c < n; c += kLanes) {
    const Index left = n - c;
    store_up_to(y + c, factor * exp(sign * load_up_to(p + c, left) - most), left);
    total += load_up_to(y + c, left);
  }
  return sum_lanes(total);
}

// [softmax(p), softmax(-p)]
inline void hedgehog_row(float* f, const float* p, Index n) {
  for (const float sign : {1.0f, -1.0f}) {
    const float sum = exp_row(f, p, sign, largest(p, sign, n), 1, n);
    scale_row(f, f, 1 / sum, n);
    f += n;
  }
}
inline void hedgehog_backward(float* dp, const float* df, const float* f, Index n) {
  const float mean = dot(df, f, n), mean_of_negative = dot(df + n, f + n, n);
  for (Index c = 0; c < n; c += kLanes) {
    const Index left = n - c;
    const Vec positive = load_up_to(f + c, left) * (load_up_to(df + c, left) - mean);
    const Vec negative = load_up_to(f + n + c, left) * (load_up_to(df + n + c, left) - mean_of_negative);
    store_up_to(dp + c, positive - negative, left);
  }
}

// Where a token stands on cosformer's quarter circle; positions count from 0 here, from 1 on the circle.
struct QuarterTurn {
  QuarterTurn(Index position, Index max_length) {
    const double angle = std::numbers::pi / 2 * double(position + 1) / double(max_length);
    cosine = float(std::cos(angle));
    sine = float(std::sin(angle));
  }
  float cosine, sine;
};
// relu(x) [cos a, sin a]
inline void cosformer_row(float* f, const float* x, const QuarterTurn& turn, Index d) {
  for (Index c = 0; c < d; c += kLanes) {
    const Vec positive = max(load_up_to(x + c, d - c), Vec{});
    store_up_to(f + c, turn.cosine * positive, d - c);
    store_up_to(f + d + c, turn.sine * positive, d - c);
  }
}
inline void cosformer_backward(float* dx, const float* df, const float* x, const QuarterTurn& turn, Index d) {
  for (Index c = 0; c < d; c += kLanes) {
    const Index left = d - c;
    const Vec g = turn.cosine * load_up_to(df + c, left) + turn.sine * load_up_to(df + d + c, left);
    store_up_to(dx + c, select(load_up_to(x + c, left) > 0.0f, g, Vec{}), left);
  }
}

// polaformer's exponents p = 1 + 4 sigmoid(w), and dp/dw.
inline void polaformer_exponents(float* exponents, float* slopes, const float* w, Index d) {
  for (Index c = 0; c < d; ++c) {
    const double gate = 1 / (1 + std::exp(-double(w[c])));
    exponents[c] = float(1 + 4 * gate);
    if (slopes) slopes[c] = float(4 * gate * (1 - gate));
  }
}
// f = [(x+)^p, (x-)^p], halves exchanged if swapped. Powers end at e^40, so that products of two are still floats and
// 0 times one is 0: a hidden key, whose weight is 0, may be of any size.
inline void polaformer_row(float* f, const float* x, const float* exponents, bool swapped, Index d) {
  float *positive = swapped ? f + d : f, *negative = swapped ? f : f + d;
  for (Index c = 0; c < d; c += kLanes) {
    const Index left = d - c;
    const Vec v = load_up_to(x + c, left);
    const Vec power = exp(min(load_up_to(exponents + c, left) * log(abs(v)), splat(40.0f)));
    store_up_to(positive + c, select(v > 0.0f, power, Vec{}), left);
    store_up_to(negative + c, select(v < 0.0f, power, Vec{}), left);
  }
}
// dx (null: not wanted), and dp [d] += (null: not wanted) of the exponents.
inline void polaformer_backward(float* dx, float* dp, const float* df, const float* f, const float* x,
                                const float* exponents, bool swapped, Index d) {
  const Index positive = swapped ? d : 0, negative = d - positive;
  for (Index c = 0; c < d; c += kLanes) {
    const Index left = d - c;
    const Vec v = load_up_to(x + c, left), power = load_up_to(f + c, left) + load_up_to(f + d + c, left);
    const Vec g = power * select(v > 0.0f, load_up_to(df + positive + c, left), load_up_to(df + negative + c, left));
    const VecInt none = power == 0.0f;
    if (dx) store_up_to(dx + c, select(none, Vec{}, g * load_up_to(exponents + c, left) / v), left);
    if (dp) store_up_to(dp + c, load_up_to(dp + c, left) + select(none, Vec{}, g * log(abs(v))), left);
  }
}

}  // namespace flexformer::cpu
