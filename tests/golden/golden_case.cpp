// Reading golden cases and measuring how far we are from them.
#include "tests/golden/golden_case.h"

#include <cmath>
#include <limits>

namespace flexformer::golden {
namespace {

Values read_values(const Json& json, const std::string& where) {
  if (!json.is_object() || json.size() != 3) fail(where, ": a tensor is an object with dtype, shape and data");
  const auto dtype = json_get<std::string>(json, "dtype", where);
  if (dtype != "f64" && dtype != "i64" && dtype != "bool") fail(where, ": there is no dtype '", dtype, "'");
  Values values;
  values.whole = dtype != "f64";
  const Json &sizes = json_member(json, "shape", where), &data = json_member(json, "data", where);
  if (!sizes.is_array() || !data.is_array()) fail(where, ": shape and data are arrays");
  for (const Json& size : sizes) {
    if (!size.is_number_integer()) fail(where, ": a size is ", size.dump(), ", which is no whole number");
    values.shape.append(size.get<Index>());
  }
  for (const Json& element : data) values.data.push_back(number_from_json(element, where));
  if (Index(values.data.size()) != values.shape.numel())
    fail(where, ": shape ", values.shape, " does not hold ", values.data.size(), " values");
  for (double value : values.data)
    if (values.whole &&
        (value != std::floor(value) || std::fabs(value) > 0x7FFFFFFF || (dtype == "bool" && value != 0 && value != 1)))
      fail(where, ": ", value, " is no ", dtype);
  return values;
}

Named read_named(const Json& json, const char* key, const std::string& where) {
  const Json& members = json_member(json, key, where);
  if (!members.is_object()) fail(where, ": '", key, "' is not an object");
  Named named;
  for (const auto& [name, value] : members.items())
    named.emplace(name, read_values(value, text(where, ": ", key, ".", name)));
  return named;
}

}  // namespace

Tensor Values::floats(Device device) const {
  return Tensor::from(shape, std::vector<float>(data.begin(), data.end()), device);
}

Tensor Values::ints(Device device) const {
  if (!whole) fail("whole numbers are expected here, not f64");
  return Tensor::from_ints(shape, std::vector<std::int32_t>(data.begin(), data.end()), device);
}

double Values::norm() const {
  double squares = 0;
  for (double value : data) squares += value * value;
  return std::sqrt(squares);
}

Values Values::part(Index i) const {
  Values out;
  for (int axis = 1; axis < shape.rank(); ++axis) out.shape.append(shape[axis]);
  const Index n = out.shape.numel();
  if (i < 0 || i >= shape[0]) fail("there is no part ", i, " in shape ", shape);
  out.data.assign(data.begin() + i * n, data.begin() + (i + 1) * n);
  out.whole = whole;
  return out;
}

Case::Case(const Json& json, const std::string& file) {
  if (!json.is_object()) fail(file, ": a case is an object");
  name = json_get<std::string>(json, "name", file);
  const std::string where = file + ": " + name;
  op = json_get<std::string>(json, "op", where);
  params = json_member(json, "params", where);
  if (!params.is_object()) fail(where, ": 'params' is not an object");
  inputs = read_named(json, "inputs", where);
  outputs = read_named(json, "outputs", where);
  grads = read_named(json, "grads", where);
  if (json.contains("init")) init = read_named(json, "init", where);
  if (json.contains("final")) final = read_named(json, "final", where);
}

const Values& Case::member(const Named& all, const std::string& key) const {
  const auto found = all.find(key);
  if (found == all.end()) fail("there is no tensor '", key, "'");
  return found->second;
}

double Case::number(const char* key, double otherwise) const {
  return params.contains(key) ? number_from_json(params.at(key), text(name, ".", key)) : otherwise;
}
bool Case::flag(const char* key) const { return params.contains(key) && json_get<bool>(params, key, name); }
std::string Case::word(const char* key, const std::string& otherwise) const {
  return params.contains(key) ? json_get<std::string>(params, key, name) : otherwise;
}

void Verdict::add(const std::string& what, double error, double limit) {
  ++count_;
  const double ratio = std::isnan(error) ? std::numeric_limits<double>::infinity() : error / limit;
  if (ratio <= worst_) return;
  worst_ = ratio;
  error_ = error;
  limit_ = limit;
  what_ = what;
}

void Verdict::compare(const std::string& what, std::span<const double> ours, std::span<const double> reference,
                      double limit, double least) {
  if (ours.size() != reference.size()) return add(what + " has another shape", NAN, limit);
  double squares = 0, reference_squares = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool same = ours[i] == reference[i];  // also for infinities
    squares += same ? 0 : (ours[i] - reference[i]) * (ours[i] - reference[i]);
    if (std::isfinite(reference[i])) reference_squares += reference[i] * reference[i];
  }
  add(what, std::sqrt(squares) / std::fmax(std::sqrt(reference_squares), least), limit);
}

void Verdict::compare(const std::string& what, const Tensor& ours, const Values& reference, double limit,
                      double least) {
  if (!(ours.shape() == reference.shape))
    return add(text(what, " has shape ", ours.shape(), " instead of ", reference.shape), NAN, limit);
  const auto values = ours.to_vector();
  compare(what, std::vector<double>(values.begin(), values.end()), reference.data, limit, least);
}

void Verdict::compare(const std::string& what, double ours, double reference, double limit) {
  add(what, ours == reference ? 0 : std::fabs(ours - reference) / std::fabs(reference), limit);
}

}  // namespace flexformer::golden
