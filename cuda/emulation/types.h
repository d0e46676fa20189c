// Types that nvcc knows by itself: sizes of grids, short vectors and bfloat16.
#pragma once
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// bfloat16: the upper half of a float, rounded to the nearest, ties to even; every NaN becomes 0x7FFF.
struct alignas(2) __nv_bfloat16 {
  std::uint16_t bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float x) {
    std::uint32_t word;
    std::memcpy(&word, &x, sizeof word);
    const bool is_nan = (word & 0x7FFFFFFF) > 0x7F800000;
    bits = is_nan ? std::uint16_t(0x7FFF) : std::uint16_t((word + 0x7FFF + (word >> 16 & 1)) >> 16);
  }
  operator float() const {
    const std::uint32_t word = std::uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &word, sizeof x);
    return x;
  }
};
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
