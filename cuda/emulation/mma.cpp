// The product of tensor cores, done lane by lane in float from what the PTX manual says about fragments. Compiled
// without the race detector, as the scheduler is: lanes read each other's registers here.
#include "cuda/emulation/mma.h"

#include "tensor/error.h"

namespace flexformer::emu {
namespace {

float half(std::uint32_t two, int which) {
  __nv_bfloat16 x;
  x.bits = std::uint16_t(which ? two >> 16 : two & 0xFFFF);
  return __bfloat162float(x);
}

}  // namespace

void multiply_fragments(const std::uint64_t (&lanes)[32]) {
  const auto of = [&](int lane) { return *reinterpret_cast<const Fragments*>(lanes[lane]); };
  float a[16][16], b[16][8];  // [row][k] [k][column]
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < 2; ++e) a[g + i % 2 * 8][t * 2 + e + i / 2 * 8] = half(of(lane).a[i], e);
    for (int i = 0; i < 2; ++i)
      for (int e = 0; e < 2; ++e) b[t * 2 + e + i * 8][g] = half(of(lane).b[i], e);
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = of(lane).c[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      of(lane).c[i] = sum;
    }
}

void share_rows(const std::uint64_t (&lanes)[32]) {
  for (const std::uint64_t to : lanes)
    for (int lane = 0; lane < 32; ++lane) {
      const __nv_bfloat16* row = reinterpret_cast<const Rows*>(lanes[lane])->own;
      check("ldmatrix", reinterpret_cast<std::uintptr_t>(row) % 16 == 0, "lane ", lane,
            " gives a row that is not aligned to 16 bytes");
      reinterpret_cast<Rows*>(to)->of_lane[lane] = row;
    }
}

}  // namespace flexformer::emu
