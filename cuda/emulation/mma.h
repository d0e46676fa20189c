// Tensor cores: the product of a warp's fragments and the loading of fragments from shared memory, under the names that
// cuda/mma.h gives them on a GPU. All 32 lanes must come to the same call. Which lane holds which element is what the
// PTX manual says (mma.m16n8k16, ldmatrix); cuda/mma.h draws it.
#pragma once
#include <cstdint>

#include "cuda/emulation/threads.h"

namespace flexformer::emu {

// mma.cpp. What a lane brings to a product and takes away from it; both are done for all lanes by the last to come.
struct Fragments {
  float* c;
  const std::uint32_t *a, *b;
};
void multiply_fragments(const std::uint64_t (&lanes)[32]);  // pointers to Fragments

// The addresses that all lanes gave, for each of them.
struct Rows {
  const __nv_bfloat16* own;
  const __nv_bfloat16* of_lane[32];
};
void share_rows(const std::uint64_t (&lanes)[32]);  // pointers to Rows

// Register i of a lane comes from matrix i, whose 8 rows of 8 numbers lie where lanes 8i .. 8i+7 point to: of row
// lane/4 two neighbours, or of two rows their number lane/4 (trans).
template <bool kTrans, int kMatrices>
void load_matrices(std::uint32_t (&to)[kMatrices], const __nv_bfloat16* row, Place place) {
  Rows rows{row, {}};
  meet(Collective::rows, 0xFFFFFFFF, reinterpret_cast<std::uint64_t>(&rows), 0, place);
#if EMU_RACES  // who reads a row, the lane that points to it or those that get its numbers, is the GPU's affair: both
               // do
  if (lane() < 8 * kMatrices)
    for (int half = 0; half < 2; ++half) (void)reinterpret_cast<const volatile std::uint64_t*>(row)[half];
#endif
  const int of_four = lane() / 4, two = lane() % 4 * 2;
  for (int i = 0; i < kMatrices; ++i) {
    const __nv_bfloat16* const* matrix = rows.of_lane + 8 * i;
    const std::uint32_t low = kTrans ? matrix[two][of_four].bits : matrix[of_four][two].bits;
    const std::uint32_t high = kTrans ? matrix[two + 1][of_four].bits : matrix[of_four][two + 1].bits;
    to[i] = low | high << 16;
  }
}

}  // namespace flexformer::emu

inline void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], EMU_PLACE) {
  flexformer::emu::Fragments own{c, a, b};
  flexformer::emu::meet(flexformer::emu::Collective::product, 0xFFFFFFFF, reinterpret_cast<std::uint64_t>(&own), 0,
                        {file, line});
}
template <bool kTrans> void ldmatrix(std::uint32_t (&to)[4], const __nv_bfloat16* row, EMU_PLACE) {
  flexformer::emu::load_matrices<kTrans>(to, row, {file, line});
}
template <bool kTrans> void ldmatrix(std::uint32_t (&to)[2], const __nv_bfloat16* row, EMU_PLACE) {
  flexformer::emu::load_matrices<kTrans>(to, row, {file, line});
}
