// The emulation finds memory that is touched outside its bounds, from the wrong side, too early, or never written.
#include "tests/cuda/planted.h"

namespace flexformer::cuda {
namespace {

// ----------------------------------------------------------------------------------------------------------

__global__ void write_at(float* y, Index at) { y[at] = 1; }
__global__ void read_at(float* y, const float* x, Index at) { y[0] = x[at]; }
__global__ void write_past_shared(int at) {
  SHARED(float, few, [8]);
  few[at] = 1;
}
__global__ void write_past_dynamic(int at) {
  DYN_SHARED(float, few);
  few[at] = 1;
}
__global__ void read_unwritten_shared(float* y) {
  SHARED(float, few, [8]);
  y[0] = few[3];
}
struct Pointers {
  float* y;
  const float* x;
};
__global__ void copy_one(Pointers p) { *p.y = *p.x; }

TEST_CASE("emulation: a write outside an allocation is found") {
  Tensor y = empty(10);
  const auto outside = [&](Index at) { launch_kernel({1, 1}, write_at, y.data(), at); };
  if (finds_addresses) {
    check_ends_with([&] { outside(10); }, "AddressSanitizer");
    check_ends_with([&] { outside(-1); }, "AddressSanitizer");
    check_ends_with([&] { launch_kernel({1, 1}, read_at, y.data(), y.data(), 10); }, "AddressSanitizer");
    check_ends_with([&] { launch_kernel({1, 1}, write_past_shared, 8); }, "AddressSanitizer");
    check_ends_with([&] { launch_kernel({1, 1, 32}, write_past_dynamic, 8); }, "AddressSanitizer");
    return;
  }
  check_ends_with([&] { outside(10); }, "wrote past an allocation of 40 bytes");
  check_ends_with([&] { outside(-1); }, "an allocation of");
  CHECK_SAYS(launch_kernel({1, 1}, write_past_shared, 8), "outside the shared array few of 32 bytes");
  CHECK_SAYS(launch_kernel({1, 1, 32}, write_past_dynamic, 8), "outside the shared array DYN_SHARED of 32 bytes");
  launch_kernel({1, 1}, read_at, y.data(), y.data(), 10);
  CHECK_LT(y.to_vector()[0], -1e36f);  // a fence, as a float
}

TEST_CASE("emulation: memory that was never written reads as NaN") {
  Tensor y = empty(4);
  for (float value : y.to_vector()) CHECK(std::isnan(value));
  launch_kernel({1, 1}, read_unwritten_shared, y.data());
  CHECK(std::isnan(y.to_vector()[0]));
}

TEST_CASE("emulation: the host cannot touch device memory") {
  const Tensor y = numbers(4);
  check_ends_with([&] { std::cerr << y.data()[2]; }, "the host touches device memory");
}

TEST_CASE("emulation: a kernel's pointers lie in live device memory") {
  Tensor y = empty(4);
  float on_host = 1;
  const float* stale = numbers(4).data();
  CHECK_SAYS(launch_kernel({1, 1}, read_at, y.data(), &on_host, 0), "argument 1 (byte 0)");
  CHECK_SAYS(launch_kernel({1, 1}, read_at, y.data(), &on_host, 0), "memory of the host");
  CHECK_SAYS(launch_kernel({1, 1}, copy_one, Pointers{y.data(), &on_host}), "argument 0 (byte 8)");
  CHECK_SAYS(launch_kernel({1, 1}, read_at, y.data(), stale, 0), "no live allocation");
}

TEST_CASE("emulation: a full device is an error that says what to lower") {
  emu::set_capacity(1 << 20);
  CHECK_SAYS(empty(1 << 20), "out of memory on the GPU: 5 MB more needed");
  CHECK_SAYS(empty(1 << 20), "lower train.batch");
  emu::set_capacity(std::size_t(4) << 30);
}

}  // namespace
}  // namespace flexformer::cuda
