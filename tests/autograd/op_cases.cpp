// Collects the table and draws its inputs. A row's numbers depend on its name, so rows may come and go freely.
#include "tests/autograd/op_cases.h"

#include <cmath>

namespace flexformer::testing {
namespace {

RandomKey key_of(const std::string& name, int input) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (char c : name) hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
  return {hash, std::uint64_t(input)};
}

}  // namespace

const OpCases& op_cases() {
  static const OpCases all = [] {
    OpCases cases;
    add_elementwise_cases(cases);
    add_shape_cases(cases);
    add_reduction_cases(cases);
    add_norm_cases(cases);
    add_product_cases(cases);
    add_loss_cases(cases);
    add_attention_cases(cases);
    add_distillation_cases(cases);
    return cases;
  }();
  return all;
}

std::vector<float> draw(const OpCase& row, int index) {
  const Input& input = row.inputs[std::size_t(index)];
  if (input.same_as >= 0) return draw(row, input.same_as);
  if (input.kind == Input::given) return input.values;
  const RandomKey key = key_of(row.name, index);
  std::vector<float> values(std::size_t(input.shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = input.kind == Input::normal ? input.a + input.b * normal_at(key, i)
                                            : input.a + (input.b - input.a) * uniform_at(key, i);
  return values;
}

Arrays arrays(const OpCase& row) {
  Arrays all;
  for (int i = 0; i < int(row.inputs.size()); ++i) {
    const auto values = draw(row, i);
    all.emplace_back(row.inputs[std::size_t(i)].shape, Numbers(values.begin(), values.end()));
  }
  return all;
}

Vars variables(const OpCase& row, Device device) {
  Vars all;
  for (int i = 0; i < int(row.inputs.size()); ++i) {
    const Input& input = row.inputs[std::size_t(i)];
    if (input.same_as >= 0)
      all.push_back(all[std::size_t(input.same_as)]);
    else
      all.emplace_back(Tensor::from(input.shape, draw(row, i), device), !input.frozen);
  }
  return all;
}

std::vector<float> normal_numbers(Index n, std::uint64_t stream) {
  std::vector<float> values;
  for (Index i = 0; i < n; ++i) values.push_back(normal_at({12345, stream}, std::uint64_t(i)));
  return values;
}

Ints coin_flips(Index n, double probability, std::uint64_t stream) {
  Ints values;
  for (Index i = 0; i < n; ++i) values.push_back(uniform_at({54321, stream}, std::uint64_t(i)) < probability);
  return values;
}

std::string difference(std::span<const float> ours, std::span<const double> reference, double tolerance) {
  if (ours.size() != reference.size()) return text(ours.size(), " values, expected ", reference.size());
  double squares = 0, finite = 0;
  for (double value : reference)
    if (std::isfinite(value)) squares += value * value, ++finite;
  const double scale = std::fmax(1e-2, finite > 0 ? std::sqrt(squares / finite) : 0);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = double(ours[i]), b = reference[i];
    const bool same = std::isfinite(b) ? std::fabs(a - b) <= tolerance * (std::fabs(b) + scale)
                                       : (std::isnan(b) ? std::isnan(a) : a == b);
    if (!same)
      return text("element ", i, " is ", a, ", expected ", b, " (scale ", scale, ", tolerance ", tolerance, ")");
  }
  return "";
}

}  // namespace flexformer::testing
