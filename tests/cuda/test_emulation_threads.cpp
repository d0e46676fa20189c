// The emulation finds threads that wait in vain and races, and gives barriers and warp functions their meaning.
#include "tests/cuda/planted.h"

namespace flexformer::cuda {
namespace {

// ---- barriers

// Reverses 64 numbers in shared memory; the barrier can be left out.
__global__ void reverse(float* y, const float* x, bool barrier) {
  SHARED(float, all, [64]);
  all[threadIdx.x] = x[threadIdx.x];
  if (barrier) __syncthreads();
  y[threadIdx.x] = all[63 - threadIdx.x];
}

__global__ void barrier_for_half() {
  if (threadIdx.x < 32) __syncthreads();
}
__global__ void different_barriers() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void shuffle_without_lane_3(float* y) {
  if (threadIdx.x == 3) return;
  y[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, float(threadIdx.x), 1);
}
__global__ void shuffles_at_two_places(float* y) {
  const float x = float(threadIdx.x);
  if (threadIdx.x < 16)
    y[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, x, 0);
  else
    y[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, x, 1);
}
__global__ void shuffle_from_outside(float* y) {
  if (threadIdx.x < 8) y[threadIdx.x] = __shfl_sync(0xFFu, 1.0f, 20);
}

TEST_CASE("emulation: a barrier makes shared memory safe, and without it poison or a race is seen") {
  const Tensor x = numbers(64);
  for (const auto order : {emu::Order::forward, emu::Order::reverse, emu::Order::random}) {
    emu::set_order(order, 5);
    Tensor y = empty(64);
    launch_kernel({1, 64}, reverse, y.data(), x.data(), true);
    const std::vector<float> good = y.to_vector();
    for (int i = 0; i < 64; ++i) CHECK_EQ(good[std::size_t(i)], float(63 - i));
    if (finds_races) continue;
    launch_kernel({1, 64}, reverse, y.data(), x.data(), false);
    int wrong = 0;
    for (float value : y.to_vector()) wrong += std::isnan(value);
    CHECK_GT(wrong, 0);
  }
  emu::set_order(emu::Order::forward);
  for (const bool barrier : {true, false})
    check_race(barrier ? "with a barrier" : "without", !barrier, [&] {
      Tensor y = empty(64);
      launch_kernel({1, 64}, reverse, y.data(), x.data(), barrier);
    });
}

TEST_CASE("emulation: threads that wait in vain are an error that says where") {
  Tensor y = empty(64);
  CHECK_SAYS(launch_kernel({1, 64}, barrier_for_half), "32 at __syncthreads (");
  CHECK_SAYS(launch_kernel({1, 64}, barrier_for_half), "32 have returned");
  CHECK_SAYS(launch_kernel({1, 64}, different_barriers), "; 32 at __syncthreads (");
  CHECK_SAYS(launch_kernel({1, 64}, different_barriers), "the first is thread (32,0,0)");
  CHECK_SAYS(launch_kernel({1, 32}, shuffle_without_lane_3, y.data()), "lane 3 of warp 0, which has returned");
  CHECK_SAYS(launch_kernel({1, 32}, shuffles_at_two_places, y.data()), "16 at a shuffle (");
  CHECK_SAYS(launch_kernel({1, 32}, shuffle_from_outside, y.data()), "reads lane 20");
  CHECK_SAYS(launch_kernel({1, 16}, shuffle_without_lane_3, y.data()), "of warp 0, which ");
  launch_kernel({1, 64}, reverse, y.data(), numbers(64).data(), true);  // and all goes on
  CHECK_EQ(y.to_vector()[0], 63);
}

// ---- races between blocks, and with the host -----------------------------------------------------------------------

__global__ void same_element(float* y) { y[0] = float(blockIdx.x); }
__global__ void add_atomically(int* sum) { atomicAdd(sum, 1); }
__global__ void exchange_in_warp(float* y, bool ordered) {
  SHARED(float, all, [32]);
  all[threadIdx.x] = float(threadIdx.x);
  if (ordered) __syncwarp();
  y[thread_number()] = all[threadIdx.x ^ 1];
}
TEST_CASE("emulation: races between blocks and within a warp are seen, ordered work is not") {
  const auto run = [](auto kernel, unsigned blocks, unsigned threads, auto... given) {
    return [=] {
      Tensor y = empty(64);
      launch_kernel({blocks, threads}, kernel, y.data(), given...);
      launch_kernel({blocks, threads}, kernel, y.data(), given...);  // launches are ordered
    };
  };
  check_race("one element of two blocks", true, run(same_element, 2, 1));
  check_race("an element for each block", false, run(own_element, 8, 1));
  check_race("lanes that do not wait", true, run(exchange_in_warp, 1, 32, false));
  check_race("lanes that wait", false, run(exchange_in_warp, 2, 32, true));
  check_race("atomic additions", false, [] {
    Tensor sum = Tensor::zeros({1}, DType::i32, Device::cuda);
    launch_kernel({8, 64}, add_atomically, sum.ints());
  });
}

TEST_CASE("emulation: a deferred stream shows a result that nobody waited for") {
  const Tensor x = numbers(8);
  Tensor y = empty(8);
  emu::set_deferred(true);
  const long before = emu::grids_run();
  launch_kernel({1, 8}, twice, y.data(), x.data(), Index(8));
  CHECK_EQ(emu::grids_run(), before);
  CHECK_EQ(y.to_vector()[3], 6);  // a copy to the host waits
  CHECK_EQ(emu::grids_run(), before + 1);
  float early = -1;
  check_cuda("copy", cudaMemcpyAsync(&early, y.data(), sizeof early, cudaMemcpyDeviceToHost, stream()));
  CHECK_EQ(early, -1);  // this one does not
  emu::set_deferred(false);
  CHECK_EQ(early, 0);
}

// ---- the functions themselves

__global__ void warp_functions(float* y) {
  const int lane = int(threadIdx.x);
  const float x = float(lane);
  y[lane] = __shfl_down_sync(0xFFFFFFFFu, x, 3u) + 100 * __shfl_up_sync(0xFFFFFFFFu, x, 1u, 8) +
            10000 * __shfl_sync(0xFFFFFFFFu, x, 9, 8);
  const unsigned odd = __ballot_sync(0xFFFFFFFFu, lane & 1);
  if (odd != 0xAAAAAAAAu || __all_sync(0xFFFFFFFFu, lane < 31) || !__any_sync(0xFFFFFFFFu, lane == 31)) y[lane] = -1;
}
__global__ void sums_of_blocks(double* y) {
  const double sum = block_sum(double(threadIdx.x + blockIdx.x));
  if (threadIdx.x == blockDim.x - 1) y[blockIdx.x] = sum;
}
__global__ void late_copy(float* y, const float* x) {
  SHARED(float, there, [4]);
  __pipeline_memcpy_async(&there[0], x, sizeof(float));
  __pipeline_commit();
  __pipeline_memcpy_async(&there[1], x + 1, sizeof(float));
  __pipeline_commit();
  y[0] = there[0];  // too early
  __pipeline_wait_prior(1);
  y[1] = there[0];
  y[2] = there[1];  // one group may still be on its way
  __pipeline_wait_prior(0);
  y[3] = there[1];
}

TEST_CASE("emulation: warp functions, sums of a block and asynchronous copies do what CUDA's do") {
  Tensor y = empty(32);
  launch_kernel({1, 32}, warp_functions, y.data());
  const std::vector<float> got = y.to_vector();
  for (int lane = 0; lane < 32; ++lane)
    CHECK_EQ(got[std::size_t(lane)], float((lane + 3 < 32 ? lane + 3 : lane) + 100 * (lane % 8 ? lane - 1 : lane) +
                                           10000 * (lane / 8 * 8 + 1)));
  for (const unsigned threads : {32u, 64u, 256u, 1024u}) {
    // For all that comes later the race detector keeps a number for each thread that ever was, at each wait of each.
    if (finds_races && threads > 256) continue;
    Tensor sums = empty(6);
    launch_kernel({3, threads}, sums_of_blocks, reinterpret_cast<double*>(sums.data()));
    const Tensor host = sums.to(Device::cpu);
    const double sum = reinterpret_cast<const double*>(host.data())[2];
    CHECK_EQ(sum, double(threads) * (threads - 1) / 2 + 2.0 * threads);
  }
  launch_kernel({1, 1}, late_copy, y.data(), numbers(2).data());
  const std::vector<float> late = y.to_vector();
  CHECK(std::isnan(late[0]));
  CHECK_EQ(late[1], 0);
  CHECK(std::isnan(late[2]));
  CHECK_EQ(late[3], 1);
}

// Rounds as its definition says: to the nearer of the two neighbours, to the even one half way.
TEST_CASE("emulation: bfloat16 rounds to the nearest, ties to even") {
  const auto value = [](std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  };
  for (std::uint64_t i = 0; i < (std::uint64_t(1) << 32); i += 99991) {
    const std::uint32_t bits = std::uint32_t(i), low = bits & 0xFFFF0000u;
    const float x = value(bits);
    const std::uint16_t got = __float2bfloat16(x).bits;
    if (std::isnan(x)) {
      CHECK_EQ(got, 0x7FFF);
      continue;
    }
    if (std::isinf(x)) continue;
    const double below = std::fabs(double(value(low))), exact = std::fabs(double(x));
    const double step = std::ldexp(1.0, std::max(int(bits >> 23 & 0xFF), 1) - 127 - 7);
    const double rest = (exact - below) / step;
    const bool up = rest > 0.5 || (rest == 0.5 && (low >> 16 & 1));
    CHECK_EQ(got, std::uint16_t((low >> 16) + (up ? 1 : 0)));
  }
  CHECK_EQ(__float2bfloat16(INFINITY).bits, 0x7F80);
  CHECK_EQ(__bfloat162float(__float2bfloat16(1.5f)), 1.5f);
}

}  // namespace
}  // namespace flexformer::cuda
