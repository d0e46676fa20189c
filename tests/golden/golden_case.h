// A golden file's cases: named tensors computed elsewhere in double precision, read strictly, and the comparison of our
// float32 results with them.
//
// A file is {"about", "cases": [case, ..]}; a case has name, op, inputs, params, outputs, grads and, for training runs,
// init and final. A tensor is {"dtype": "f64"|"i64"|"bool", "shape": [..], "data": [..]}, row-major.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "train/util/json_file.h"

namespace flexformer::golden {

struct Values {
  Shape shape;
  std::vector<double> data;
  bool whole = false;  // i64 or bool

  Tensor floats(Device device) const;
  Tensor ints(Device device = Device::cpu) const;
  double norm() const;
  Values part(Index i) const;  // element i of the first axis
};
using Named = std::map<std::string, Values>;

struct Case {
  std::string name, op;
  Device device = Device::cpu;  // where to compute
  Json params;
  Named inputs, outputs, grads, init, final;

  // Throws Error naming the file, the case and the member for anything that is not as described above.
  Case(const Json& json, const std::string& file);

  bool has_input(const char* key) const { return inputs.count(key) > 0; }
  const Values& input(const std::string& key) const { return member(inputs, key); }
  const Values& output(const std::string& key) const { return member(outputs, key); }
  double number(const char* key, double otherwise) const;
  bool flag(const char* key) const;
  std::string word(const char* key, const std::string& otherwise = "") const;
  bool has_param(const char* key) const { return params.contains(key); }

 private:
  const Values& member(const Named& all, const std::string& key) const;
};

// Collects comparisons and remembers the one that is furthest beyond, or closest to, its limit.
class Verdict {
 public:
  // |ours - reference| / max(|reference|, least) with Euclidean norms; NaN and a wrong shape never pass.
  void compare(const std::string& what, const Tensor& ours, const Values& reference, double limit, double least = 1e-3);
  void compare(const std::string& what, std::span<const double> ours, std::span<const double> reference, double limit,
               double least = 1e-3);
  // |ours - reference| / |reference|
  void compare(const std::string& what, double ours, double reference, double limit);
  void add(const std::string& what, double error, double limit);

  bool passed() const { return count_ > 0 && worst_ <= 1; }
  Index count() const { return count_; }
  double error() const { return error_; }
  double limit() const { return limit_; }
  const std::string& what() const { return what_; }

 private:
  Index count_ = 0;
  double worst_ = -1, error_ = 0, limit_ = 0;
  std::string what_ = "nothing was compared";
};

}  // namespace flexformer::golden
