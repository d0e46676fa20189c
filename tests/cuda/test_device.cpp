// The op table on the device: values and gradients against the CPU's, in memory full of NaN, three times to the same
// bits, each time in another way of working: what depends on an order, or goes round a loop too rarely, or waits for
// nothing, shows. Empty in a build without CUDA.
#if defined(FLEXFORMER_CUDA)
#include <doctest/doctest.h>

#include <algorithm>

#include <cmath>
#include <iostream>

#include "tests/autograd/op_cases.h"
#include "tests/cuda/device_ways.h"

namespace flexformer::testing {
namespace {

// Blocks as exact as their tensors, so that the emulation sees what is touched outside.
[[maybe_unused]] const bool exact_blocks = (memory::set_caching(Device::cuda, false), true);

bool is_large(const OpCase& row) {
  Index elements = 0;
  for (const Input& input : row.inputs) elements += input.shape.numel();
  return elements > 6500;
}

// The value, then the gradients of all inputs that have one.
using Outcome = std::vector<std::vector<float>>;

Outcome run_row(const OpCase& row, const Vars& x, const std::vector<float>& dy, int passes = 1) {
  Outcome outcome(1);
  for (int pass = 0; pass < passes; ++pass) {
    Tape tape;
    const Var y = row.op(x);
    outcome[0] = y.value().to_vector();
    if (y.requires_grad()) tape.backward(y, Tensor::from(y.shape(), dy, y.device()));
  }
  for (const Var& input : x) outcome.push_back(input.has_grad() ? input.grad().to_vector() : std::vector<float>());
  return outcome;
}

Outcome run_row(const OpCase& row, Device device, const std::vector<float>& dy, int passes = 1) {
  return run_row(row, variables(row, device), dy, passes);
}

std::vector<float> upstream(const std::vector<float>& y) {
  std::vector<float> dy = normal_numbers(Index(y.size()), 11);
  for (std::size_t i = 0; i < y.size(); ++i)
    if (!std::isfinite(y[i])) dy[i] = 0;
  return dy;
}

void check_close(const Outcome& ours, const Outcome& cpu, double tolerance) {
  REQUIRE_EQ(ours.size(), cpu.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    INFO((i == 0 ? "the value" : "the gradient of input "), (i == 0 ? "" : std::to_string(i - 1)));
    CHECK_EQ(difference(ours[i], Numbers(cpu[i].begin(), cpu[i].end()), tolerance), "");
  }
}

void check_row(const OpCase& row) {
  if (for_races && is_large(row)) return;
  const std::vector<float> dy = upstream(row.op(variables(row)).value().to_vector());
  const Outcome cpu = run_row(row, Device::cpu, dy);
  const Index live = memory::stats(Device::cuda).live_bytes;
  const Poisoned poisoned;
  if (for_races) use(ways[1]);
  const Outcome first = run_row(row, Device::cuda, dy);
  check_close(first, cpu, 1e-4);
  if (for_races) return;
  for (const Way& way : ways) {
    if (&way == ways) continue;
    use(way);
    INFO("the way of working: ", way.name);
    const Outcome again = run_row(row, Device::cuda, dy);
    for (std::size_t i = 0; i < first.size(); ++i)
      CHECK_MESSAGE(same_bits(again[i], first[i]), "result ", i, " differs from the first run's");
  }
  Outcome twice = run_row(row, Device::cuda, dy, 2);
  for (std::size_t i = 1; i < twice.size(); ++i)
    for (float& gradient : twice[i]) gradient /= 2;
  check_close(twice, cpu, 1e-4);
  CHECK_EQ(memory::stats(Device::cuda).live_bytes, live);
}

Tensor in_bf16(const Tensor& x) { return cast(Var(x.to(Device::cuda)), DType::bf16).value(); }

// |ours - cpu| / |cpu|, lengths of vectors, where both are finite; infinity where only one is, or NaN is there.
// Roundings are independent of each other, so it is the whole that must be near, not each small number among large
// ones.
double distance(const std::vector<float>& ours, const std::vector<float>& cpu) {
  double difference = 0, squares = 1e-12;
  if (ours.size() != cpu.size()) return HUGE_VAL;
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    if (ours[i] == cpu[i] && std::isinf(cpu[i])) continue;
    difference += std::pow(double(ours[i]) - double(cpu[i]), 2);
    squares += std::pow(double(cpu[i]), 2);
  }
  return std::isfinite(difference) ? std::sqrt(difference / squares) : HUGE_VAL;
}

// Activations in bfloat16, against floats of the same values on the CPU. Parameters and statistics are float in both.
void check_row_in_bf16(const OpCase& row) {
  if (for_races && is_large(row)) return;
  const InBf16 precision;
  Vars here = variables(row), there = here;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const Input& input = row.inputs[i];
    if (input.same_as >= 0) {
      here[i] = here[std::size_t(input.same_as)];
      there[i] = there[std::size_t(input.same_as)];
    } else {
      const Tensor x = input.parameter ? here[i].value().to(Device::cuda) : in_bf16(here[i].value());
      here[i] = Var(Tensor::from(x.shape(), x.to_vector()), !input.frozen);
      there[i] = Var(x, !input.frozen);
    }
  }
  const std::vector<float> y = row.op(here).value().to_vector();
  const std::vector<float> dy = in_bf16(Tensor::from({Index(y.size())}, upstream(y))).to_vector();
  const Outcome cpu = run_row(row, here, dy);
  const Poisoned poisoned;
  use(ways[1]);
  const Outcome ours = run_row(row, there, dy);
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    INFO("result ", i, ", the value or a gradient");
    CHECK_LE(distance(ours[i], cpu[i]), i == 0 ? row.bf16_value_tolerance : row.bf16_gradient_tolerance);
  }
}

void check_kernel(const KernelCase& row) {
  const std::vector<float> cpu = row.run(Device::cpu);
  const Poisoned poisoned;
  if (for_races) use(ways[1]);
  const std::vector<float> first = row.run(Device::cuda);
  check_close({first}, {cpu}, 1e-4);
  if (for_races) return;
  for (const Way& way : ways) {
    use(way);
    CHECK_MESSAGE(same_bits(row.run(Device::cuda), first), "differs from the first run: ", way.name);
  }
}

}  // namespace

TEST_CASE("the op table on the device: each row agrees with the CPU") {
  if (!usable()) return;
  for (const OpCase& row : op_cases()) {
    SUBCASE(row.name.c_str()) { check_row(row); }
  }
}

TEST_CASE("the op table on the device in bfloat16: each row agrees with the CPU to a few roundings") {
  if (!usable()) return;
  for (const OpCase& row : op_cases()) {
    SUBCASE(row.name.c_str()) { check_row_in_bf16(row); }
  }
}

TEST_CASE("the kernel table on the device: each row agrees with the CPU") {
  if (!usable()) return;
  for (const KernelCase& row : kernel_cases()) {
    SUBCASE(row.name.c_str()) { check_kernel(row); }
  }
}

TEST_CASE("the table of bad calls on the device: each is refused in the CPU's words") {
  if (!usable()) return;
  for (const BadCase& row : bad_cases()) {
    INFO(row.name);
    if (!row.on_host_only) CHECK_EQ(refusal(row, Device::cuda), refusal(row));
  }
  const Var here(Tensor::zeros({2}), true), there(Tensor::zeros({2}, DType::f32, Device::cuda), true);
  CHECK_THROWS_WITH_AS(add(here, there), doctest::Contains("inputs lie on cpu and cuda; move them to one device"),
                       Error);
}

TEST_CASE("tensors move between host and device") {
  if (!usable()) return;
  const Tensor x = Tensor::from({2, 2}, {1, 2, 3, 4}), i = Tensor::from_ints({2}, std::vector{7, -1});
  const Tensor there = x.to(Device::cuda);
  CHECK_EQ(there.device(), Device::cuda);
  CHECK_EQ(there.to_vector(), x.to_vector());
  CHECK_EQ(there.clone().to(Device::cpu).to_vector(), x.to_vector());
  CHECK_UNARY(there.to(Device::cuda).shares_memory_with(there));
  CHECK_EQ(i.to(Device::cuda).to(Device::cpu).ints()[0], 7);
  CHECK_EQ(Tensor::full({}, 2.5f, Device::cuda).item(), 2.5f);
  CHECK_EQ(Tensor::zeros({3}, DType::f32, Device::cuda).to_vector(), std::vector<float>(3));
  Tensor back = Tensor::zeros({2, 2});
  back.copy_from(there);
  CHECK_EQ(back.to_vector(), x.to_vector());
  CHECK_UNARY(Tensor::empty({0}, DType::f32, Device::cuda).to_vector().empty());
}

TEST_CASE("random numbers on the device are the CPU's") {
  if (!usable()) return;
  for (Index n : {1, 4097}) {
    Tensor here = Tensor::empty({n}), there = Tensor::empty({n}, DType::f32, Device::cuda);
    for (const auto device : {Device::cpu, Device::cuda}) {
      Tensor& y = device == Device::cpu ? here : there;
      launch(device, FillUniform{.y = y.data(), .n = n, .low = 0, .high = 1, .key = {3, 4}});
    }
    CHECK_UNARY(same_bits(there.to_vector(), here.to_vector()));
  }
}

TEST_CASE("a product on the device refuses nothing that the CPU takes: strides that fit no library") {
  if (!usable()) return;
  // Every second element of every third row, transposed or not; c has room between its rows.
  const Index M = 5, N = 7, K = 6;
  const std::vector<float> a = normal_numbers(400, 1), b = normal_numbers(400, 2), zero(400);
  for (const bool bf16 : {false, true})
    for (const bool add : {false, true}) {
      Outcome results;
      for (const Device device : {Device::cpu, Device::cuda}) {
        const Tensor pa = Tensor::from({400}, a, device), pb = Tensor::from({400}, b, device);
        Tensor c = Tensor::from({400}, normal_numbers(400, 3), device);
        launch(device, Gemm{.c = {c.data(), add},
                            .a = pa.data(),
                            .b = pb.data(),
                            .bias = add ? nullptr : pb.data(),
                            .M = M,
                            .N = N,
                            .K = K,
                            .a_row = 2,
                            .a_col = 30,
                            .b_row = 36,
                            .b_col = 3,
                            .c_row = 9,
                            .batch = {2, 3},
                            .a_batch = {0, 7},
                            .b_batch = {5, 11},
                            .c_batch = {150, 50},
                            .bf16 = bf16});
        results.push_back(c.to_vector());
      }
      check_close({results[1]}, {results[0]}, 1e-5);
    }
}

TEST_CASE("a profile of work on the device has the op's name and the time between two marks of the stream") {
  if (!usable()) return;
  const Var x(Tensor::full({8, 16}, 1, Device::cuda), true), W(Tensor::full({4, 16}, 1, Device::cuda), true);
  profile::start();
  for (int i = 0; i < 3; ++i) {
    Tape tape;
    tape.backward(sum(linear(x, W, Var())));
  }
  profile::stop();
  for (const char* op : {"linear", "linear backward", "sum backward"}) {
    CAPTURE(op);
    const auto rows = profile::ops();
    const auto row = std::ranges::find(rows, std::string(op), &profile::Row::name);
    REQUIRE(row != rows.end());
    CHECK_EQ(row->calls, 3);
    CHECK(row->seconds > 0);
    CHECK(row->cost.bytes > 0);
  }
}

}  // namespace flexformer::testing
#endif
