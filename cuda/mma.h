// Tensor cores: products of bfloat16 matrices that one warp does together, with sums in float. sm_80 and newer.
//
// c [16,8] += a [16,16] b [16,8] is one instruction, mma.m16n8k16. Its 32 lanes share the three matrices in fragments;
// a register of a and b holds two neighbours. Lane 4g + t, with g = 0 .. 7 and t = 0 .. 3, has
//
//              k 2t,2t+1   k 2t+8,2t+9                 column g                    column 2t   column 2t+1
//   row g       a.x[0]       a.x[2]        k 2t,2t+1    b.x[0]          row g       c.x[0]       c.x[1]
//   row g+8     a.x[1]       a.x[3]        k 2t+8,2t+9  b.x[1]          row g+8     c.x[2]       c.x[3]
//
// so that two sums side by side, rounded, are already the operand a of the next product (operand_of): features go from
// the projection into the next product without leaving registers.
//
// Everything else comes from planes of bfloat16 in shared memory. ldmatrix fills a register from an 8 x 8 matrix whose
// rows eight lanes point to: lane 4g + t gets numbers 2t, 2t+1 of row g or, transposed, number g of rows 2t, 2t+1. A
// plane therefore serves along its rows ("across": k runs along a row) and along its columns ("down") equally well. Its
// rows are 16 m + 8 numbers apart, so that the eight rows begin in different banks.
#pragma once
#include <cstring>

#include "cuda/kernel.h"

#if defined(__CUDACC__)
namespace flexformer::cuda {

// Nothing on older GPUs: fused_attention.h does not let them come here.
__device__ inline void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
template <bool kTrans> __device__ void ldmatrix(std::uint32_t (&to)[4], const __nv_bfloat16* row) {
  const unsigned at = unsigned(__cvta_generic_to_shared(row));
  if constexpr (kTrans)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}
template <bool kTrans> __device__ void ldmatrix(std::uint32_t (&to)[2], const __nv_bfloat16* row) {
  static_assert(kTrans);
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(unsigned(__cvta_generic_to_shared(row))));
}

}  // namespace flexformer::cuda
#endif

namespace flexformer::cuda {

struct OperandA {
  std::uint32_t x[4];
};
struct OperandB {
  std::uint32_t x[2];
};
struct Sums {
  float x[4];
};

// c += a b
__device__ inline void mma(Sums& c, const OperandA& a, const OperandB& b) { mma_m16n8k16(c.x, a.x, b.x); }

// Two numbers in a register, the first in its lower half; from and to memory at once, where they are aligned as one.
__device__ inline std::uint32_t bits_of(__nv_bfloat162 two) {
  std::uint32_t bits;
  memcpy(&bits, &two, sizeof bits);
  return bits;
}
__device__ inline std::uint32_t pack(float first, float second) {
  return bits_of(__floats2bfloat162_rn(first, second));
}
__device__ inline std::uint32_t load_pair(const bf16* p) {
  return bits_of(*reinterpret_cast<const __nv_bfloat162*>(p));
}
__device__ inline void store_pair(bf16* p, std::uint32_t bits) {
  __nv_bfloat162 two;
  memcpy(&two, &bits, sizeof two);
  *reinterpret_cast<__nv_bfloat162*>(p) = two;
}
__device__ inline float2 unpack(std::uint32_t two) {
  float2 x;
  const std::uint32_t first = two << 16, second = two & 0xFFFF0000u;
  memcpy(&x.x, &first, sizeof first);
  memcpy(&x.y, &second, sizeof second);
  return x;
}
// What rounding to bfloat16 took away, rounded: x is the sum of both but for 2^-17 of it.
__device__ inline std::uint32_t pack_rest(float first, float second) {
  const float2 rounded = unpack(pack(first, second));
  return pack(first - rounded.x, second - rounded.y);
}

// The sums of 16 columns, as the operand whose k they are.
__device__ inline OperandA operand_of(const Sums (&c)[2]) {
  return {
      {pack(c[0].x[0], c[0].x[1]), pack(c[0].x[2], c[0].x[3]), pack(c[1].x[0], c[1].x[1]), pack(c[1].x[2], c[1].x[3])}};
}

// Where a lane's numbers lie in a fragment.
__device__ inline int lane_row() { return int(threadIdx.x) % kWarp / 4; }         // g
__device__ inline int lane_column() { return int(threadIdx.x) % kWarp % 4 * 2; }  // 2t

// A matrix in shared memory; element (r, c) is p[r * row + c].
struct Plane {
  bf16* p;
  int row;
  __device__ void put(int r, int c, std::uint32_t two) const { store_pair(p + r * row + c, two); }
  __device__ std::uint32_t get(int r, int c) const { return load_pair(p + r * row + c); }
  // The row that a lane points ldmatrix to, for four 8 x 8 matrices from (r, c) on: two below each other and then the
  // two to their right, or the other way round.
  __device__ const bf16* down_first(int r, int c) const {
    const int lane = int(threadIdx.x) % kWarp;
    return p + (r + lane % 16) * row + c + lane / 16 * 8;
  }
  __device__ const bf16* right_first(int r, int c) const {
    const int lane = int(threadIdx.x) % kWarp;
    return p + (r + lane % 8 + lane / 16 * 8) * row + c + lane / 8 % 2 * 8;
  }
};

// a[i][k] = x(row + i, k0 + k)
__device__ inline OperandA a_across(const Plane& x, int row, int k0) {
  OperandA a;
  ldmatrix<false>(a.x, x.down_first(row, k0));
  return a;
}
// a[i][k] = x(k0 + k, row + i)
__device__ inline OperandA a_down(const Plane& x, int k0, int row) {
  OperandA a;
  ldmatrix<true>(a.x, x.right_first(k0, row));
  return a;
}

// Two operands b side by side, 16 columns of the product.
struct OperandsB {
  OperandB half[2];
};
__device__ inline OperandsB halves(const std::uint32_t (&x)[4]) { return {{{{x[0], x[1]}}, {{x[2], x[3]}}}}; }
// b[k][j] = x(column + j, k0 + k)
__device__ inline OperandsB b_across(const Plane& x, int column, int k0) {
  std::uint32_t four[4];
  ldmatrix<false>(four, x.right_first(column, k0));
  return halves(four);
}
// b[k][j] = x(k0 + k, column + j)
__device__ inline OperandsB b_down(const Plane& x, int k0, int column) {
  std::uint32_t four[4];
  ldmatrix<true>(four, x.down_first(k0, column));
  return halves(four);
}
// The same for 8 columns.
__device__ inline OperandB b_down_8(const Plane& x, int k0, int column) {
  OperandB b;
  ldmatrix<true>(b.x, x.p + (k0 + int(threadIdx.x) % 16) * x.row + column);
  return b;
}
__device__ inline void mma(Sums& left, Sums& right, const OperandA& a, const OperandsB& b) {
  mma(left, a, b.half[0]);
  mma(right, a, b.half[1]);
}

}  // namespace flexformer::cuda
