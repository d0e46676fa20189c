// Shapes, tensors, the allocator and random numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tensor/device_memory.h"
#include "tensor/kernels.h"

namespace flexformer {
namespace {

void check_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const Error& error) {
    CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what(), " lacks: ", part);
    return;
  }
  FAIL_CHECK("nothing was thrown, expected: ", part);
}

}  // namespace

TEST_CASE("a shape counts its elements") {
  CHECK_EQ(Shape{}.numel(), 1);
  CHECK_EQ(Shape{}.rank(), 0);
  CHECK_EQ(Shape{2, 3, 4}.numel(), 24);
  CHECK_EQ(Shape{2, 0, 4}.numel(), 0);
  CHECK_EQ(Shape{2, 3, 4}.numel(1, 3), 12);
  CHECK_EQ(Shape{2, 3, 4}[-1], 4);
  CHECK_EQ(Shape{2, 3, 4}.with(-2, 7), Shape{2, 7, 4});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
  CHECK_EQ(text(Shape{2, 3}), "[2,3]");
}

TEST_CASE("impossible shapes are refused") {
  check_error([] { Shape{1, 2, 3, 4, 5}; }, "at most 4 axes, got one more after [1,2,3,4]");
  check_error([] { Shape{2, -1}; }, "negative size -1");
  check_error([] { Shape{2}.with(0, -1); }, "negative size -1");
  check_error([] { Shape{1 << 30, 1 << 30, 1 << 30}; }, "has too many elements");
  check_error([] { Shape{Index(1) << 60}; }, "has too many elements");
  check_error([] { Shape({2, Index(1) << 40}).with(0, Index(1) << 40); }, "has too many elements");
  check_error([] { Shape({2, 3})[2]; }, "there is no axis 2 in shape [2,3]");
  check_error([] { Shape({2, 3})[-3]; }, "there is no axis -3 in shape [2,3]");
  check_error([] { Shape{}.last(); }, "there is no axis -1 in shape []");
  CHECK_EQ(Shape{Index(1) << 40, 0, Index(1) << 40}.numel(), 0);
  CHECK_EQ(Shape{65536, 65537}.numel(), 4295032832);  // past 2^32
}

TEST_CASE("a reshaped tensor shares the elements, a clone does not") {
  Tensor x = Tensor::from({2, 3}, {1, 2, 3, 4, 5, 6}), y = x.reshape({3, 2}), z = x.clone();
  x.data()[5] = 9;
  CHECK_EQ(y.data()[5], 9);
  CHECK_EQ(z.data()[5], 6);
  CHECK(x.shares_memory_with(y));
  CHECK_FALSE(x.shares_memory_with(z));
  z.copy_from(x);
  CHECK_EQ(z.to_vector(), std::vector<float>{1, 2, 3, 4, 5, 9});
  CHECK_EQ(Tensor::full({1, 1}, 4).item(), 4);
}

TEST_CASE("misuse of a tensor is refused") {
  const Tensor x = Tensor::zeros({2, 3}), i = Tensor::from_ints({2}, std::vector{1, 2});
  check_error([&] { x.reshape({4}); }, "[2,3] has 6 elements, [4] has 4");
  check_error([&] { Tensor::from({2}, {1, 2, 3}); }, "shape [2] does not hold 3 values");
  check_error([&] { Tensor::from_ints({2}, std::vector{1}); }, "shape [2] does not hold 1 values");
  check_error([&] { x.ints(); }, "elements are f32, not i32");
  check_error([&] { i.data(); }, "elements are i32, not f32");
  check_error([&] { Tensor().data(); }, "this tensor has no elements yet");
  check_error([&] { x.item(); }, "shape [2,3] has 6 elements, not one");
  check_error([&] { Tensor::zeros({3}).copy_from(x); }, "target [3] f32, source [2,3] f32");
}

TEST_CASE("the allocator hands a freed block out again and counts bytes") {
  memory::trim(Device::cpu);
  const memory::Stats before = memory::stats(Device::cpu);
  const void* first = nullptr;
  {
    const Tensor x = Tensor::zeros({1000});
    first = x.data();
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0);
    const memory::Stats now = memory::stats(Device::cpu);
    CHECK_GE(now.live_bytes, before.live_bytes + 4000);
    CHECK_LE(now.live_bytes, before.live_bytes + 4500);  // at most an eighth is lost
    CHECK_EQ(now.system_calls, before.system_calls + 1);
  }
  CHECK_EQ(memory::stats(Device::cpu).live_bytes, before.live_bytes);
  CHECK_GT(memory::stats(Device::cpu).reserved_bytes, before.reserved_bytes);
  const Tensor again = Tensor::zeros({10, 100});
  CHECK_EQ(static_cast<const void*>(again.data()), first);
  CHECK_EQ(memory::stats(Device::cpu).system_calls, before.system_calls + 1);
}

TEST_CASE("the peak of live bytes is kept until it is reset") {
  memory::reset_peak(Device::cpu);
  const Index before = memory::stats(Device::cpu).peak_bytes;
  { const Tensor x = Tensor::zeros({4096}), y = Tensor::zeros({4096}); }
  CHECK_EQ(memory::stats(Device::cpu).peak_bytes, before + 2 * 16384);
  memory::reset_peak(Device::cpu);
  CHECK_EQ(memory::stats(Device::cpu).peak_bytes, before);
}

TEST_CASE("poisoned memory is full of NaN") {
  memory::set_poison(true);
  const Tensor x = Tensor::empty({100}), i = Tensor::empty({100}, DType::i32);
  memory::set_poison(false);
  for (Index j = 0; j < 100; ++j) {
    CHECK(std::isnan(x.data()[j]));
    CHECK_EQ(i.ints()[j], -1);
  }
}

TEST_CASE("what is allocated during a reservation is handed out to nobody else until that ends") {
  const Shape shape{12345};
  memory::trim(Device::cpu);
  const float* reserved;
  {
    const memory::Reservation reservation(Device::cpu);
    Tensor kept;
    reservation.during([&] {
      reserved = Tensor::empty(shape).data();
      CHECK_EQ(Tensor::empty(shape).data(), reserved);  // within, a block is used again
      kept = Tensor::empty(shape);
      check_error([&] { reservation.during([] {}); }, "memory: two reservations cannot be open at a time");
    });
    CHECK_EQ(kept.data(), reserved);
    kept = Tensor();  // comes back to the reservation, not to everyone
    const Tensor other = Tensor::empty(shape);
    CHECK_NE(other.data(), reserved);
    CHECK_THROWS_AS(reservation.during([] { fail("in between"); }), Error);
    CHECK_NE(Tensor::empty(shape).data(), reserved);  // closed all the same
    reservation.during([&] { CHECK_EQ(Tensor::empty(shape).data(), reserved); });
    memory::trim(Device::cpu);  // takes nothing away from it
    reservation.during([&] { CHECK_EQ(Tensor::empty(shape).data(), reserved); });
  }
  CHECK_EQ(Tensor::empty(shape).data(), reserved);
  memory::trim(Device::cpu);
}

TEST_CASE("memory that the system does not have is an error that says what to lower") {
  check_error([] { Tensor::empty({Index(1) << 50}); }, "more needed");
  check_error([] { Tensor::empty({Index(1) << 50}); }, "lower train.batch");
}

TEST_CASE("bfloat16 on the host can be read, but is no argument of kernels there") {
  Tensor x = Tensor::zeros({3}, DType::bf16);
  CHECK_EQ(x.to_vector(), std::vector<float>(3));
  check_error([&] { x.values(); }, "elements are bf16, not f32");
}

#if !defined(FLEXFORMER_CUDA)
TEST_CASE("a kernel for CUDA is refused by a build without it") {
  check_error([] { Tensor::empty({1}, DType::f32, Device::cuda); }, device::trouble());
  check_error([] { launch(Device::cuda, SquaredNorms{.sums = nullptr, .arrays = nullptr, .count = 0}); },
              "rebuild with 'make CUDA=1'");
}
#endif

// Random123's test vectors for philox4x32-10.
TEST_CASE("Philox gives the published numbers") {
  struct Row {
    std::uint64_t position, stream, seed;
    std::uint32_t out[4];
  };
  const std::uint64_t ones = ~std::uint64_t(0);
  const Row rows[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {ones, ones, ones, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Row& row : rows) {
    const Philox x = Philox::at({row.seed, row.stream}, row.position);
    for (int i = 0; i < 4; ++i) CHECK_EQ(x.v[i], row.out[i]);
  }
}

TEST_CASE("random fills have the right moments and follow the numbered sequence") {
  constexpr Index n = 200000;
  const RandomKey key{11, 5};
  Tensor uniform = Tensor::empty({n}), normal = Tensor::empty({n});
  launch(Device::cpu, FillUniform{.y = uniform.data(), .n = n, .low = -1, .high = 3, .key = key});
  launch(Device::cpu, FillNormal{.y = normal.data(), .n = n, .scale = 2, .key = key});
  double mean[2] = {}, square[2] = {}, fourth = 0;
  for (Index i = 0; i < n; ++i) {
    const double u = double(uniform.data()[i]), z = double(normal.data()[i]);
    CHECK_UNARY(u >= -1 && u < 3);
    mean[0] += u / n, square[0] += u * u / n, mean[1] += z / n, square[1] += z * z / n, fourth += z * z * z * z / n;
  }
  CHECK_LT(std::fabs(mean[0] - 1), 0.012);            // 5 standard errors of 4/sqrt(12 n)
  CHECK_LT(std::fabs(square[0] - 7.0 / 3), 0.03);     // variance 16/12 + 1
  CHECK_LT(std::fabs(mean[1]), 0.022);                // 5 standard errors of 2/sqrt(n)
  CHECK_LT(std::fabs(square[1] - 4), 0.063);          // of 4 sqrt(2/n)
  CHECK_LT(std::fabs(fourth / (3 * 16) - 1), 0.037);  // of sqrt(96/9/n)
  for (Index i : {Index(0), Index(3), Index(63), Index(64), Index(4097), n - 1}) {
    CHECK_EQ(uniform.data()[i], -1 + 4 * uniform_at(key, std::uint64_t(i)));
    CHECK_EQ(normal.data()[i], 2 * normal_at(key, std::uint64_t(i)));
  }
}

TEST_CASE("a uniform fill never reaches its upper end") {
  Tensor y = Tensor::empty({100000});
  launch(Device::cpu, FillUniform{.y = y.data(), .n = 100000, .low = 1, .high = 1 + 0x1p-22f, .key = {1, 2}});
  for (float v : y.to_vector()) CHECK_UNARY(v >= 1 && v < 1 + 0x1p-22f);
}

TEST_CASE("a source of random sequences is resumed from its state") {
  Random a(7);
  for (int i = 0; i < 5; ++i) a.uniform();
  Random b;
  b.set_state(a.state());
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t x = a.below(1000), y = b.below(1000);
    CHECK_EQ(x, y);
    CHECK_LT(x, 1000);
  }
  CHECK_NE(Random(7).uniform(), Random(8).uniform());
}

}  // namespace flexformer
