// Tensor cores in the emulation: fragments are where the PTX manual puts them, products are plain products, and lanes
// that do not come are an error.
#include "cuda/mma.h"
#include "tests/cuda/planted.h"

namespace flexformer::cuda {
namespace {

// c [16,8] = a [16,16] b [16,8], all float in memory, with fragments filled by the manual's words alone (PTX ISA,
// "Matrix Fragments for mma.m16n8k16"): groupID = lane >> 2, threadID_in_group = lane % 4.
__global__ void product_by_the_manual(float* c, const float* a, const float* b) {
  const int lane = int(threadIdx.x), group = lane >> 2, in_group = lane % 4;
  std::uint32_t of_a[4], of_b[2];
  for (int i = 0; i < 8; i += 2) {
    const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
    const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    of_a[i / 2] = pack(a[row * 16 + column], a[row * 16 + column + 1]);
  }
  for (int i = 0; i < 4; i += 2) {
    const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    of_b[i / 2] = pack(b[row * 8 + group], b[(row + 1) * 8 + group]);
  }
  float sum[4] = {};
  mma_m16n8k16(sum, of_a, of_b);
  for (int i = 0; i < 4; ++i) c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = sum[i];
}

// The same through planes, stored as they are or transposed, for 16 columns of b [16,16].
__global__ void product_of_planes(float* c, const float* a, const float* b, bool a_lies_down, bool b_lies_down) {
  SHARED(bf16, memory, [2][16][24]);
  const Plane of_a{memory[0][0], 24}, of_b{memory[1][0], 24};
  for (int e = int(threadIdx.x); e < 256; e += kWarp) {
    const int r = e / 16, k = e % 16;
    memory[0][a_lies_down ? k : r][a_lies_down ? r : k] = __float2bfloat16(a[e]);
    memory[1][b_lies_down ? r : k][b_lies_down ? k : r] = __float2bfloat16(b[e]);
  }
  __syncwarp();
  const OperandA operand = a_lies_down ? a_down(of_a, 0, 0) : a_across(of_a, 0, 0);
  Sums sum[2]{};
  mma(sum[0], sum[1], operand, b_lies_down ? b_down(of_b, 0, 0) : b_across(of_b, 0, 0));
  if (b_lies_down) {  // columns 8 to 15 once more
    sum[1] = {};
    mma(sum[1], operand, b_down_8(of_b, 0, 8));
  }
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 4; ++i) c[(lane_row() + i / 2 * 8) * 16 + 8 * half + lane_column() + i % 2] = sum[half].x[i];
}

// (a b) b with the first product's sums as the second one's operand; b [16,16].
__global__ void product_of_a_product(float* c, const float* a, const float* b) {
  SHARED(bf16, memory, [2][16][24]);
  const Plane of_a{memory[0][0], 24}, of_b{memory[1][0], 24};
  for (int e = int(threadIdx.x); e < 256; e += kWarp) {
    memory[0][e / 16][e % 16] = __float2bfloat16(a[e]);
    memory[1][e / 16][e % 16] = __float2bfloat16(b[e]);
  }
  __syncwarp();
  Sums first[2]{}, second[2]{};
  mma(first[0], first[1], a_across(of_a, 0, 0), b_down(of_b, 0, 0));
  mma(second[0], second[1], operand_of(first), b_down(of_b, 0, 0));
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 4; ++i) c[(lane_row() + i / 2 * 8) * 16 + 8 * half + lane_column() + i % 2] = second[half].x[i];
}

__global__ void product_without_lane_3() {
  if (threadIdx.x == 3) return;
  Sums c{};
  mma(c, OperandA{}, OperandB{});
}
__global__ void products_at_two_places() {
  float c[4] = {};
  const std::uint32_t a[4] = {}, b[2] = {};
  if (threadIdx.x < 16)
    mma_m16n8k16(c, a, b);
  else
    mma_m16n8k16(c, a, b);
}
__global__ void misaligned_rows() {
  SHARED(bf16, memory, [16 * 24 + 8]);
  std::uint32_t four[4];
  ldmatrix<false>(four, memory + 1);
}

// Small whole numbers, which neither operands nor sums round.
std::vector<float> whole_numbers(int n, int seed) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back(float((i * 7 + seed * 13 + i * i % 11) % 9 - 4));
  return x;
}
std::vector<float> plain_product(const std::vector<float>& a, const std::vector<float>& b, int columns) {
  std::vector<float> c;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < columns; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[std::size_t(i * 16 + k)] * b[std::size_t(k * columns + j)];
      c.push_back(sum);
    }
  return c;
}

TEST_CASE("emulation: tensor cores multiply what the fragments hold") {
  const std::vector<float> a = whole_numbers(256, 1), b = whole_numbers(256, 2);
  const std::vector<float> narrow(b.begin(), b.begin() + 128);
  const Tensor of_a = Tensor::from({256}, a, Device::cuda), of_b = Tensor::from({256}, b, Device::cuda);
  for (const auto order : {emu::Order::forward, emu::Order::reverse, emu::Order::random}) {
    emu::set_order(order, 3);
    Tensor c = empty(128);
    launch_kernel({1, 32}, product_by_the_manual, c.data(), of_a.data(), of_b.data());
    CHECK_EQ(c.to_vector(), plain_product(a, narrow, 8));
    const std::vector<float> wide = plain_product(a, b, 16);
    for (const bool a_lies_down : {false, true})
      for (const bool b_lies_down : {false, true}) {
        Tensor planes = empty(256);
        launch_kernel({1, 32}, product_of_planes, planes.data(), of_a.data(), of_b.data(), a_lies_down, b_lies_down);
        CHECK_EQ(planes.to_vector(), wide);
      }
    Tensor twice = empty(256);
    launch_kernel({1, 32}, product_of_a_product, twice.data(), of_a.data(), of_b.data());
    CHECK_EQ(twice.to_vector(), plain_product(wide, b, 16));
  }
  emu::set_order(emu::Order::forward);
}

TEST_CASE("emulation: a product rounds its operands to bfloat16, and two of them hold a float nearly") {
  std::vector<float> a(256), b(256);
  a[0] = 1.001f, a[1] = 1.0f, b[0] = 1.0f, b[8] = 1e-3f;
  const Tensor of_a = Tensor::from({256}, a, Device::cuda), of_b = Tensor::from({256}, b, Device::cuda);
  Tensor c = empty(128);
  launch_kernel({1, 32}, product_by_the_manual, c.data(), of_a.data(), of_b.data());
  CHECK_EQ(c.to_vector()[0], 1.0f + __bfloat162float(__float2bfloat16(1e-3f)));
  const float x = 1.2345678f, y = -9.876543e-5f;
  const float2 rounded = unpack(pack(x, y)), rest = unpack(pack_rest(x, y));
  CHECK_LE(std::abs(rounded.x + rest.x - x), std::ldexp(x, -17));
  CHECK_LE(std::abs(rounded.y + rest.y - y), std::ldexp(-y, -17));
}

TEST_CASE("emulation: lanes that do not come to a product are an error") {
  CHECK_SAYS(launch_kernel({1, 32}, product_without_lane_3), "a product at ");
  CHECK_SAYS(launch_kernel({1, 32}, product_without_lane_3), "cuda/mma.h:");
  CHECK_SAYS(launch_kernel({1, 32}, product_without_lane_3), "lane 3 of warp 0, which has returned");
  CHECK_SAYS(launch_kernel({1, 32}, products_at_two_places), "16 at a product (");
  CHECK_SAYS(launch_kernel({1, 16}, product_without_lane_3), "of warp 0, which ");
  CHECK_SAYS(launch_kernel({1, 32}, misaligned_rows), "not aligned to 16 bytes");
}

}  // namespace
}  // namespace flexformer::cuda
