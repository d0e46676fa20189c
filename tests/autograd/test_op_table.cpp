// Every check over the op table. One row, many checks: value and gradients against the double-precision reference
// (gradients by its finite differences), poisoned memory, threads, gradients added up, frozen inputs, one variable
// given twice, and memory returned.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autograd/gradcheck.h"
#include "tensor/parallel.h"
#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

// Sets the number of threads until the end of the scope.
class Threads {
 public:
  explicit Threads(int count) : before_(threads()) { set_threads(count); }
  ~Threads() { set_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

struct Outcome {
  Shape shape;
  std::vector<float> y;
  std::vector<std::vector<float>> gradients;  // per input; empty where it has none
  bool operator==(const Outcome& other) const {
    return y.size() == other.y.size() && same_bits(y, other.y) && same_bits(gradients, other.gradients);
  }

  // NaN equals NaN here.
  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  }
  static bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& left, const auto& right) { return same_bits(left, right); });
  }
};

// The gradient of the result: random, but 0 where the result is infinite.
Tensor upstream(const Array& y) {
  std::vector<float> values = normal_numbers(y.numel(), 11);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(y.data[i])) values[i] = 0;
  return Tensor::from(y.shape, values);
}

void replay(const OpCase& row, const Vars& x, const Tensor& dy, Outcome* outcome = nullptr) {
  Tape tape;
  const Var y = row.op(x);
  if (outcome) {
    outcome->shape = y.shape();
    outcome->y = y.value().to_vector();
  }
  if (y.requires_grad()) tape.backward(y, dy);
}

std::vector<std::vector<float>> gradients_of(const Vars& x) {
  std::vector<std::vector<float>> all;
  for (const Var& input : x) all.push_back(input.has_grad() ? input.grad().to_vector() : std::vector<float>());
  return all;
}

Outcome run_row(const OpCase& row, const Tensor& dy) {
  Outcome outcome;
  const Vars x = variables(row);
  replay(row, x, dy, &outcome);
  outcome.gradients = gradients_of(x);
  return outcome;
}

// Inputs with a gradient of their own.
std::vector<int> free_inputs(const OpCase& row) {
  std::vector<int> all;
  for (int i = 0; i < int(row.inputs.size()); ++i)
    if (!row.inputs[std::size_t(i)].frozen && row.inputs[std::size_t(i)].same_as < 0) all.push_back(i);
  return all;
}

// The reference's result at x + step * direction, where directions are given for the free inputs.
Array moved(const OpCase& row, Arrays x, const Arrays& direction, double step) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int source = row.inputs[i].same_as;
    const Numbers& move = direction[source < 0 ? i : std::size_t(source)].data;
    for (std::size_t j = 0; j < move.size(); ++j) x[i].data[j] += step * move[j];
  }
  return row.reference(x);
}

// d(dy . reference) along a direction by central differences; element by element, so that large ones drown nothing.
double expected_slope(const OpCase& row, const Arrays& x, const Arrays& direction, const Tensor& dy) {
  const double step = 1e-7;
  const Array ahead = moved(row, x, direction, step), behind = moved(row, x, direction, -step);
  double total = 0;
  for (Index i = 0; i < ahead.numel(); ++i)
    if (dy.data()[i] != 0) total += double(dy.data()[i]) * (ahead[i] - behind[i]);
  return total / (2 * step);
}

// Compares the slope along a direction with the reference's. Errors of single elements add up like their squares, so
// the tolerance is one of the gradient's length.
std::string slope_difference(const OpCase& row, const Outcome& ours, const Arrays& x, const Arrays& direction,
                             const Tensor& dy) {
  const double expected = expected_slope(row, x, direction, dy);
  double slope = 0, squares = 0, farthest = 0;
  for (int i : free_inputs(row)) {
    const auto& gradient = ours.gradients[std::size_t(i)];
    const Numbers& move = direction[std::size_t(i)].data;
    for (std::size_t j = 0; j < move.size(); ++j) {
      slope += double(gradient[j]) * move[j];
      squares += double(gradient[j]) * double(gradient[j]) * move[j] * move[j];
      farthest = std::fmax(farthest, std::fabs(move[j]));
    }
  }
  const double error = std::fabs(slope - expected);
  const double scale =
      std::sqrt(squares) + std::fabs(expected) + 0.1 * farthest;  // a gradient below 0.1 is a small one
  if (error <= row.gradient_tolerance * scale) return "";
  return text("slope ", slope, ", expected ", expected, ", error ", error / scale, " of tolerance ",
              row.gradient_tolerance);
}

// How far an input moves, relative to a step: as far as its values are large.
double reach(const Array& x) {
  double most = 1;
  for (double value : x.data)
    if (std::isfinite(value)) most = std::fmax(most, std::fabs(value));
  return most;
}

Arrays no_move(const Arrays& x) {
  Arrays all;
  for (const Array& input : x) all.emplace_back(input.shape);
  return all;
}

// Along random directions over all inputs together, then along a few single coordinates of each.
std::string gradient_difference(const OpCase& row, const Outcome& ours, const Tensor& dy, int directions,
                                int coordinates) {
  const Arrays x = arrays(row);
  for (int i : free_inputs(row)) {
    const auto& gradient = ours.gradients[std::size_t(i)];
    if (Index(gradient.size()) != x[std::size_t(i)].numel())
      return text("input ", i, " has ", gradient.size(), " gradients, expected ", x[std::size_t(i)].numel());
  }
  std::vector<double> reaches;
  for (const Array& input : x) reaches.push_back(reach(input));
  for (int trial = 0; trial < directions; ++trial) {
    Arrays direction = no_move(x);
    for (int i : free_inputs(row)) {
      const auto signs = coin_flips(x[std::size_t(i)].numel(), 0.5, std::uint64_t(100 * trial + i));
      for (std::size_t j = 0; j < signs.size(); ++j)
        direction[std::size_t(i)].data[j] = signs[j] ? reaches[std::size_t(i)] : -reaches[std::size_t(i)];
    }
    const std::string found = slope_difference(row, ours, x, direction, dy);
    if (!found.empty()) return text("direction ", trial, ": ", found);
  }
  for (int i : free_inputs(row))
    for (int trial = 0; trial < coordinates; ++trial) {
      const Index n = x[std::size_t(i)].numel();
      if (n <= trial) break;
      const Index j = trial == 0 ? 0 : trial == 1 ? n - 1 : Index(uniform_at({17, 1}, std::uint64_t(trial)) * float(n));
      Arrays direction = no_move(x);
      direction[std::size_t(i)][j] = reaches[std::size_t(i)];
      const std::string found = slope_difference(row, ours, x, direction, dy);
      if (!found.empty()) return text("input ", i, " element ", j, ": ", found);
    }
  return "";
}

void check_against_reference(const OpCase& row, const Outcome& ours, const Array& expected, const Tensor& dy) {
  CHECK(ours.shape == expected.shape);
  CHECK_EQ(difference(ours.y, expected.data, row.value_tolerance), "");
  Index inputs = 0;
  for (const Input& input : row.inputs) inputs += input.shape.numel();
  const bool large = inputs > 4000;  // the reference takes its time
  CHECK_EQ(gradient_difference(row, ours, dy, large ? 2 : 4, large ? 2 : 4), "");
}

void check_same_bits(const OpCase& row, const Outcome& ours, const Tensor& dy) {
  const Vars x = variables(row);
  CHECK_MESSAGE(Outcome::same_bits(row.op(x).value().to_vector(), ours.y), "without a tape the value differs");
  memory::set_poison(true);
  const Outcome poisoned = run_row(row, dy);
  memory::set_poison(false);
  CHECK_MESSAGE(poisoned == ours, "differs in memory full of NaN: something was read before it was written");
  for (int count : {2, 3}) {
    const Threads some(count);
    CHECK_MESSAGE(run_row(row, dy) == ours, "differs with ", count, " threads from one");
  }
}

// A second backward pass adds to the gradients of the first.
void check_accumulation(const OpCase& row, const Outcome& ours, const Tensor& dy) {
  const Vars x = variables(row);
  replay(row, x, dy);
  replay(row, x, dy);
  for (int i : free_inputs(row)) {
    Numbers twice;
    for (float value : ours.gradients[std::size_t(i)]) twice.push_back(2 * double(value));
    CHECK_EQ(difference(x[std::size_t(i)].grad().to_vector(), twice, 1e-6), "");
  }
}

void check_frozen_inputs(const OpCase& row, const Outcome& ours, const Tensor& dy) {
  const auto free = free_inputs(row);
  for (int i : free) {
    OpCase other = row;
    for (auto& input : other.inputs) input.frozen = input.frozen || &input == &other.inputs[std::size_t(i)];
    Outcome expected = ours;
    expected.gradients[std::size_t(i)].clear();
    CHECK_MESSAGE(run_row(other, dy) == expected, "freezing input ", i, " changes more than its gradient");
  }
  OpCase still = row;
  for (auto& input : still.inputs) input.frozen = true;
  CHECK_FALSE(still.op(variables(still)).requires_grad());
}

// One variable in two places gets the sum of both gradients.
void check_same_input_twice(const OpCase& row) {
  const auto free = free_inputs(row);
  for (int i : free)
    for (int j : free) {
      if (i >= j || !(row.inputs[std::size_t(i)].shape == row.inputs[std::size_t(j)].shape)) continue;
      OpCase other = row;
      other.inputs[std::size_t(j)].same_as = i;
      const Array expected = other.reference(arrays(other));
      const Tensor dy = upstream(expected);
      const Outcome ours = run_row(other, dy);
      INFO("inputs ", i, " and ", j, " are one variable");
      CHECK_EQ(difference(ours.y, expected.data, row.value_tolerance), "");
      CHECK_EQ(gradient_difference(other, ours, dy, 2, 2), "");
    }
}

void check_row(const OpCase& row) {
  const Threads one(1);
  const Index live = memory::stats(Device::cpu).live_bytes;
  {
    const Array expected = row.reference(arrays(row));
    const Tensor dy = upstream(expected);
    const Outcome ours = run_row(row, dy);
    check_against_reference(row, ours, expected, dy);
    check_same_bits(row, ours, dy);
    check_accumulation(row, ours, dy);
    check_frozen_inputs(row, ours, dy);
    check_same_input_twice(row);
  }
  CHECK_EQ(memory::stats(Device::cpu).live_bytes, live);
}

void check_kernel(const KernelCase& row) {
  const Threads one(1);
  const Index live = memory::stats(Device::cpu).live_bytes;
  const auto ours = row.run(Device::cpu);
  CHECK_EQ(difference(ours, row.reference(), row.tolerance), "");
  memory::set_poison(true);
  CHECK_MESSAGE(Outcome::same_bits(row.run(Device::cpu), ours), "differs in memory full of NaN");
  memory::set_poison(false);
  for (int count : {2, 3}) {
    const Threads some(count);
    CHECK_MESSAGE(Outcome::same_bits(row.run(Device::cpu), ours), "differs with ", count, " threads from one");
  }
  CHECK_EQ(memory::stats(Device::cpu).live_bytes, live);
}

}  // namespace

TEST_CASE("the op table: each row agrees with its reference under every check") {
  for (const OpCase& row : op_cases()) {
    SUBCASE(row.name.c_str()) { check_row(row); }
  }
}

TEST_CASE("the kernel table: kernels that no op launches agree with their reference") {
  for (const KernelCase& row : kernel_cases()) {
    SUBCASE(row.name.c_str()) { check_kernel(row); }
  }
}

TEST_CASE("gradcheck, which knows no reference, agrees with the table's gradients") {
  for (const OpCase& row : op_cases()) {
    const bool chosen = row.name == "gelu" || row.name == "matmul [3,5] [5,7]" || row.name == "layer_norm [2,3,5]" ||
                        row.name == "log_softmax [3,5,7] axis 1" || row.name == "rope 2x17 heads 3x8 from 0" ||
                        row.name == "softmax_attention causal 2x2x17x17x3x5 x1" ||
                        row.name == "linear_attention trig_n tau causal 2x2x17x17x3x5 n5";
    if (!chosen) continue;
    SUBCASE(row.name.c_str()) {
      const Gradcheck report = gradcheck(row.op, variables(row), {.tolerance = 5e-3});
      CHECK_MESSAGE(report.ok, report.message);
    }
  }
}

TEST_CASE("row names are unique") {
  std::vector<std::string> names;
  for (const OpCase& row : op_cases()) names.push_back(row.name);
  for (const KernelCase& row : kernel_cases()) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  CHECK_EQ(std::string(std::adjacent_find(names.begin(), names.end()) == names.end()
                           ? ""
                           : *std::adjacent_find(names.begin(), names.end())),
           "");
}

TEST_CASE("the tables launch every kernel there is, and the profile knows what each costs") {
  const Threads one(1);
  profile::start();
  std::fill(std::begin(kernel_launches), std::end(kernel_launches), 0);
  for (const OpCase& row : op_cases()) {
    const Vars x = variables(row);
    Tape tape;
    const Var y = row.op(x);
    if (y.requires_grad()) tape.backward(y, Tensor::full(y.shape(), 1));
  }
  for (const KernelCase& row : kernel_cases()) row.run(Device::cpu);
  profile::stop();
  const std::vector<profile::Row> profiled = profile::kernels();
  CHECK_EQ(profiled.size(), std::size_t(KernelId::count));
  for (const profile::Row& row : profiled) {
    CHECK_MESSAGE((row.cost.bytes > 0 && row.cost.bytes < 1e8), row.name, " moves ", row.cost.bytes, " bytes");
    CHECK_MESSAGE((row.cost.operations >= 0 && row.cost.operations < 1e9), row.name, ": ", row.cost.operations);
  }
#define FLEXFORMER_KERNEL_NAME(Kernel) #Kernel,
  const char* names[] = {FLEXFORMER_KERNELS(FLEXFORMER_KERNEL_NAME)};
#undef FLEXFORMER_KERNEL_NAME
  for (int i = 0; i < int(KernelId::count); ++i)
    CHECK_MESSAGE(kernel_launches[i] > 0, names[i], " was launched by no row: add one");
}

}  // namespace flexformer::testing
