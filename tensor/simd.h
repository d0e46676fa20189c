// A vector of floats as wide as the processor has them, in GCC/Clang's vector extensions: +, -, *, / and comparisons
// are the language's own, so the same source becomes AVX-512, AVX2 or plain SSE code. On top of it, the elementary
// functions, each lane computed without a look at its neighbours: a result does not depend on where in a row an element
// stands.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "tensor/shape.h"

namespace flexformer {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t VecInt __attribute__((vector_size(kLanes * 4)));  // also a mask: -1 for true, 0 for false

typedef std::uint32_t VecUnsigned __attribute__((vector_size(kLanes * 4)));

inline Vec splat(float x) { return x - Vec{}; }
inline VecInt splat_int(std::int32_t x) { return x - VecInt{}; }

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }

// The first n < kLanes elements; the other lanes are zero, and memory behind them is not touched.
inline Vec load_part(const float* p, Index n) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
#else
  Vec v{};
  std::memcpy(&v, p, std::size_t(n) * sizeof(float));
  return v;
#endif
}
inline void store_part(float* p, Vec v, Index n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v);
#else
  std::memcpy(p, &v, std::size_t(n) * sizeof(float));
#endif
}
inline Vec load_up_to(const float* p, Index n) { return n >= kLanes ? load(p) : load_part(p, n); }
inline void store_up_to(float* p, Vec v, Index n) { n >= kLanes ? store(p, v) : store_part(p, v, n); }

inline Vec bits_to_float(VecInt x) { return (Vec)x; }
inline VecInt float_to_bits(Vec x) { return (VecInt)x; }

// mask ? a : b, for scalars and for vectors alike.
template <class T, class Mask> inline T select(Mask mask, T a, T b) { return mask ? a : b; }

inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }
inline Vec abs(Vec x) { return bits_to_float(float_to_bits(x) & splat_int(0x7FFFFFFF)); }

// The vector with lanes i and i xor width exchanged.
template <int width, int... i> inline Vec swap_lanes(Vec v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (i ^ width)...);
}
template <int width> inline Vec swap_lanes(Vec v) {
  return swap_lanes<width>(v, std::make_integer_sequence<int, kLanes>());
}

// Sum and maximum of the lanes, always paired in the same order.
template <int width = kLanes / 2> inline float sum_lanes(Vec v) {
  v += swap_lanes<width>(v);
  if constexpr (width == 1)
    return v[0];
  else
    return sum_lanes<width / 2>(v);
}
template <int width = kLanes / 2> inline float max_lanes(Vec v) {
  v = max(v, swap_lanes<width>(v));
  if constexpr (width == 1)
    return v[0];
  else
    return max_lanes<width / 2>(v);
}

// Within each group of `rows` lanes (a power of two), exchanges rows and lanes: afterwards lane g*rows + j of x[i] is
// what lane g*rows + i of x[j] was. With rows = kLanes this transposes a square.
template <int width, int... i> inline void exchange(Vec& low, Vec& high, std::integer_sequence<int, i...>) {
  const Vec a = low, b = high;
  low = __builtin_shufflevector(a, b, (i & width ? kLanes + i - width : i)...);
  high = __builtin_shufflevector(a, b, (i & width ? kLanes + i : i + width)...);
}
template <int rows, int width = 1> inline void transpose_lanes(Vec (&x)[rows]) {
  if constexpr (width < rows) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
      if (!(i & width)) exchange<width>(x[i], x[i + width], std::make_integer_sequence<int, kLanes>());
    transpose_lanes<rows, 2 * width>(x);
  }
}

template <class F> inline Vec per_lane(Vec x, F f) {
  for (int i = 0; i < kLanes; ++i) x[i] = f(x[i]);
  return x;
}

inline Vec sqrt(Vec x) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_sqrt_ps(__mmask16(-1), (__m512)x);
#else
  return per_lane(x, [](float a) { return std::sqrt(a); });
#endif
}
inline Vec erf(Vec x) {
  return per_lane(x, [](float a) { return std::erf(a); });
}
inline Vec pow(Vec x, float p) {
  return per_lane(x, [p](float a) { return std::pow(a, p); });
}

// Nearest whole number, ties to even, for |x| < 2^22: adding and taking away 1.5 * 2^23 leaves no room for a fraction.
inline Vec round_small(Vec x) { return (x + 12582912.0f) - 12582912.0f; }

// The nearest bfloat16 (ties to even) as the upper half of a float's bits; the lower half is 0. A NaN stays one.
inline VecInt bf16_bits(Vec x) {
  const VecInt bits = float_to_bits(x), even = (VecInt)((VecUnsigned)bits >> 16) & 1;
  return (x != x ? bits | 0x00400000 : bits + 0x7FFF + even) & splat_int(std::int32_t(0xFFFF0000));
}

inline Vec power_of_two(VecInt k) { return bits_to_float((k + 127) << 23); }

// e^x within 1 ulp over the whole range; 0 and infinity where a float has nothing else to say.
// x = k ln 2 + r with |r| <= ln(2)/2; e^r by a polynomial of degree 7 (coefficients: Cephes expf); times 2^k in two
// steps, since 2^128 and 2^-150 are no floats.
inline Vec exp(Vec x) {
  x = select(x > 89.0f, splat(89.0f), x);
  x = select(x < -104.0f, splat(-104.0f), x);
  const Vec k = round_small(x * 1.44269504f);
  Vec r = x - k * 0.693359375f;
  r = r - k * -2.12194440e-4f;
  Vec p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const VecInt whole = __builtin_convertvector(k, VecInt);
  const VecInt half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
}

// Natural logarithm within 1 ulp; -infinity at 0, NaN below. Coefficients: Cephes logf.
inline Vec log(Vec x) {
  const VecInt tiny = x < 1.17549435e-38f;
  const Vec scaled = select(tiny, x * 0x1p25f, x);
  const VecInt bits = float_to_bits(scaled);
  VecInt e = (bits >> 23) - 126;
  Vec m = bits_to_float((bits & splat_int(0x007FFFFF)) | splat_int(0x3F000000));  // in [0.5, 1)
  const VecInt low = m < 0.707106781f;
  e = e + low - (tiny & splat_int(25));
  m = select(low, m + m, m) - 1.0f;
  const Vec z = m * m, k = __builtin_convertvector(e, Vec);
  Vec p = splat(7.0376836292e-2f);
  p = p * m + -1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m + -1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m + -1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m + -2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  p = p * m * z + k * -2.12194440e-4f - 0.5f * z;
  const Vec inf = splat(HUGE_VALF), y = m + p + k * 0.693359375f;
  return select(x == 0.0f, -inf, select(x < 0.0f, inf - inf, select(x == inf, inf, select(x != x, x, y))));
}

// log(1 + x) for x >= 0, exact for small x: what rounding 1 + x lost is put back to first order.
inline Vec log1p(Vec x) {
  const Vec u = 1.0f + x;
  return select(x > 1e30f, log(x), log(u) - ((u - 1.0f) - x) / u);
}

// Sine and cosine of x by one range reduction, absolute error below 1e-7.
// x = k pi/2 + r with |r| <= pi/4; pi/2 is taken away in three pieces of few bits, so that k times a piece is exact.
// Lanes beyond 10,000, where that ends, go through the library in double precision.
inline void sincos(Vec x, Vec& sine, Vec& cosine) {
  const Vec k = round_small(x * 0.636619772f);
  Vec r = x - k * 1.5703125f;
  r = r - k * 4.837512969970703125e-4f;
  r = r - k * 7.54978995489188e-8f;
  const Vec z = r * r;
  Vec s = splat(-1.9515296e-4f);
  s = s * z + 8.3321609e-3f;
  s = s * z + -1.6666655e-1f;
  s = s * z * r + r;
  Vec c = splat(2.4433157e-5f);
  c = c * z + -1.3887316e-3f;
  c = c * z + 4.1666646e-2f;
  c = c * z + -0.5f;
  c = c * z + 1.0f;
  const VecInt quadrant = __builtin_convertvector(k, VecInt);
  const VecInt swapped = (quadrant & 1) != 0;
  const VecInt sine_sign = (quadrant & 2) << 30, cosine_sign = ((quadrant + 1) & 2) << 30;
  sine = bits_to_float(float_to_bits(select(swapped, c, s)) ^ sine_sign);
  cosine = bits_to_float(float_to_bits(select(swapped, s, c)) ^ cosine_sign);
  const Vec far = select(abs(x) <= 10000.0f, Vec{}, splat(1.0f));  // a NaN is far too: it must not hide a neighbour
  if (max_lanes(far) == 0.0f) [[likely]]
    return;
  for (int i = 0; i < kLanes; ++i) {
    if (std::fabs(x[i]) <= 10000.0f) continue;
    sine[i] = float(std::sin(double(x[i])));
    cosine[i] = float(std::cos(double(x[i])));
  }
}
inline Vec sin(Vec x) {
  Vec s, c;
  sincos(x, s, c);
  return s;
}
inline Vec cos(Vec x) {
  Vec s, c;
  sincos(x, s, c);
  return c;
}

// Within 2 ulp: a polynomial (Cephes tanhf) where 1 - 2/(e^2x + 1) would cancel.
inline Vec tanh(Vec x) {
  const Vec z = x * x;
  Vec p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z + -5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z + -3.33332819422e-1f;
  const Vec a = abs(x), far = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  return select(a < 0.625f, p * z * x + x, select(x < 0.0f, -far, far));
}

}  // namespace flexformer
