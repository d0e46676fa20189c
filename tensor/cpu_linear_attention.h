// What the two passes of linear attention share: log-weights of keys, and the chunks that the sequence is cut into.
#pragma once
#include "tensor/cpu_features.h"

namespace flexformer::cpu {

constexpr Index kChunk = 64;  // tokens whose weights among each other are computed directly, as a square
constexpr Index kStrip = 16;  // the square is triangular: it is computed in strips of as many keys or queries

// lw_j = factor |k_j|^2 + shift_j (norm_factor(), TileFeatures::log_shifts()), as the sum of two floats: `high` is a
// float's rounding, `low` what it left, so that differences of large log-weights keep their digits. `low` is cut to
// [-1, 1], which only weights beyond e^(2^24) feel. Hidden keys have -infinity. In kinds that do not weigh keys lw = 0.
struct LogWeights {
  float *high, *low;  // [Nk]
};
// The log-weight of one key.
double log_weight(const float* key, double factor, float shift, Index d);
// Fills them in for the head that phi is set to and returns the largest. shifts [kChunk] is scratch.
float log_weights(const LogWeights& lw, TileFeatures& phi, float* shifts, const FeatureMap& map, const HeadsIn& k,
                  const std::int32_t* key_mask, Index b, Index h, Index N, Index d);

// A maximum to subtract: 0 where no key is visible yet, so that exp(-inf - base) = 0 and nothing becomes NaN.
inline float base_of(float max) { return max == -HUGE_VALF ? 0.0f : max; }
inline Vec base_of(Vec max) { return select(max == -HUGE_VALF, Vec{}, max); }

// w_j = exp(lw_j - max), max >= every high. At most 1, up to the rounding of max.
inline void weights_below(float* w, const float* high, const float* low, float max, Index n) {
  for (Index j = 0; j < n; j += kLanes) {
    const Index left = n - j;
    store_up_to(w + j, exp((load_up_to(high + j, left) - base_of(max)) + load_up_to(low + j, left)), left);
  }
}
// exp(before - max) for one number: how much of what was summed up to `before` is left.
inline float remaining(float before, float max) {
  return before == max ? (before == -HUGE_VALF ? 0.0f : 1.0f) : exp(splat(before - base_of(max)))[0];
}

// centre [dv]: the weighted mean of the values. Out_i moves with the values, and the gradient G_i . (v_j - out_i) of a
// weight not at all when all values are shifted; the full form shifts them by their mean, so that digits are kept where
// one heavy key decides and its value is nearly the output. w [kChunk] is scratch.
void centre_values(float* centre, float* w, const LogWeights& lw, const HeadsIn& v, Index b, Index h, Index N, Index dv,
                   float max);

// Lane numbers first, first + 1 ...
inline VecInt lanes_from(Index first) {
  VecInt lane;
  for (int l = 0; l < kLanes; ++l) lane[l] = std::int32_t(first) + l;
  return lane;
}

}  // namespace flexformer::cpu
