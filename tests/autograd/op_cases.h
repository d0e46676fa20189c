// THE TABLE: one row per case of an op. A row says what goes in, how the engine computes the answer and how plain loops
// in double precision do; test_op_table.cpp drives every check from that. A new op is tested by adding its rows.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/autograd/reference.h"

namespace flexformer::testing {

using Vars = std::vector<Var>;
using Ints = std::vector<std::int32_t>;
using naive::Array, naive::Arrays, naive::Numbers;

// An input of an op: given values, or random ones that depend on the row's name and the input's position alone.
struct Input {
  Shape shape;
  enum Kind { normal, uniform, given } kind = normal;
  float a = 0, b = 1;         // mean and deviation, or low and high
  std::vector<float> values;  // where given
  bool frozen = false;        // wants no gradient
  bool parameter = false;     // stays float where activations are bfloat16
  int same_as = -1;           // the very same Var as an earlier input
};
inline Input normal(const Shape& shape, float deviation = 1, float mean = 0) {
  return {shape, Input::normal, mean, deviation, {}, false, false, -1};
}
inline Input uniform(const Shape& shape, float low, float high) {
  return {shape, Input::uniform, low, high, {}, false, false, -1};
}
inline Input given(const Shape& shape, std::vector<float> values) {
  return {shape, Input::given, 0, 0, std::move(values), false, false, -1};
}
inline Input frozen(Input input) {
  input.frozen = true;
  return input;
}

inline Input parameter(Input input) {
  input.parameter = true;
  return input;
}

struct OpCase {
  std::string name;
  std::vector<Input> inputs;
  std::function<Var(const Vars&)> op;
  std::function<Array(const Arrays&)> reference;
  // |ours - reference| <= tolerance * (|reference| + its root mean square), for every element.
  double value_tolerance = 2e-6, gradient_tolerance = 1e-5;
  // Where activations are bfloat16: |ours - float| / |float|, of all elements together.
  double bf16_gradient_tolerance = 1e-2, bf16_value_tolerance = 1e-2;
};
using OpCases = std::vector<OpCase>;

// A kernel that no op launches: optimiser steps, random fills, decoding steps.
struct KernelCase {
  std::string name;
  std::function<std::vector<float>(Device)> run;
  std::function<Numbers()> reference;
  double tolerance = 2e-6;
};
using KernelCases = std::vector<KernelCase>;

using Floats = std::vector<float>;
inline Floats joined(std::initializer_list<Tensor> tensors) {
  Floats all;
  for (const Tensor& tensor : tensors)
    for (float value : tensor.to_vector()) all.push_back(value);
  return all;
}

// A call that must throw Error, and a part of its message.
struct BadCase {
  std::string name;
  std::function<void()> call;
  std::string message;
  bool on_host_only = false;  // a GPU takes it
};
using BadCases = std::vector<BadCase>;

void add_elementwise_cases(OpCases& cases);   // op_cases_elementwise.cpp
void add_shape_cases(OpCases& cases);         // op_cases_shape.cpp
void add_reduction_cases(OpCases& cases);     // op_cases_reduce.cpp
void add_norm_cases(OpCases& cases);          // op_cases_reduce.cpp
void add_product_cases(OpCases& cases);       // op_cases_matmul.cpp
void add_loss_cases(OpCases& cases);          // op_cases_loss.cpp
void add_attention_cases(OpCases& cases);     // op_cases_attention.cpp
void add_distillation_cases(OpCases& cases);  // op_cases_distill.cpp
const OpCases& op_cases();                    // all of them
const KernelCases& kernel_cases();            // op_cases_kernels.cpp
void add_decoding_cases(KernelCases& cases);  // op_cases_decoding.cpp
const BadCases& bad_cases();                  // op_cases_bad.cpp
// What the call throws, with tensors that lie there; "" if it is accepted.
std::string refusal(const BadCase& row, Device where = Device::cpu);

// The values of one input of a row, its values as an array, and one engine variable per input.
std::vector<float> draw(const OpCase& row, int input);
Arrays arrays(const OpCase& row);
Vars variables(const OpCase& row, Device device = Device::cpu);

// A mask, where x lies.
inline AttentionMask beside(const Var& x, const AttentionMask& mask) {
  return {mask.causal, mask.key_mask.to(x.device())};
}

// n numbers of a fixed sequence: standard normal, and 1 with the given probability (else 0).
std::vector<float> normal_numbers(Index n, std::uint64_t stream);
Ints coin_flips(Index n, double probability, std::uint64_t stream);

// "" if a and b agree (see OpCase), else what differs and where. Infinities and NaN must be the same in both.
std::string difference(std::span<const float> ours, std::span<const double> reference, double tolerance);

}  // namespace flexformer::testing
