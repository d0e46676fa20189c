// Parameters: the named, ordered list of what a model learns, and Scope, through which modules put theirs on it. A
// module is built from a Scope and keeps the Vars it asked for; nothing has to be registered, and nothing is found by
// reflection.
//
//   Parameters parameters;
//   Random random(seed);
//   Scope root(parameters, random);
//   Scope head = root.sub("head");
//   Var weight = head.parameter("weight", {10, 64}, Init::normal(0.02f), {.decay = true});  // is called head.weight
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/var.h"

namespace flexformer {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

struct Parameter {
  std::string name;
  Var var;
  bool decay;   // weight decay applies: matrices and tables, never biases, norms or kernel parameters
  bool kernel;  // belongs to the attention kernel (w1, w2, tau): has a learning rate of its own
};

class Parameters {
 public:
  // A model works where its parameters are: everything else that it makes goes there too.
  explicit Parameters(Device device = Device::cpu) : device_(device) {}
  Device device() const { return device_; }

  // Throws Error if the name is taken. A parameter used in two places (a tied head) is added once.
  Var add(Parameter parameter);
  // Throws Error if there is no such name.
  const Parameter& operator[](const std::string& name) const;
  bool has(const std::string& name) const { return find(name) != nullptr; }

  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  Index size() const { return Index(list_.size()); }

  Index count() const;           // how many numbers are learned: frozen parameters do not count
  void clear_grads() const;      // forgets all gradients: the next backward pass starts from nothing
  NamedTensors tensors() const;  // names and values, in order; the tensors share the parameters' memory

 private:
  const Parameter* find(const std::string& name) const;
  Device device_;
  std::vector<Parameter> list_;
};

// How a tensor starts.
struct Init {
  enum class Kind { constant, normal, xavier } kind;
  float value;  // constant: the value; normal: the standard deviation

  static Init constant(float value) { return {Kind::constant, value}; }
  static Init normal(float deviation) { return {Kind::normal, deviation}; }
  // Uniform in +-sqrt(6 / (in + out)), so that a matrix [out, in] keeps the size of signals and gradients alike
  // (Glorot and Bengio, 2010).
  static Init xavier() { return {Kind::xavier, 0}; }
};

struct ParameterTraits {
  bool decay = false, kernel = false, trainable = true;
};

class Scope {
 public:
  Scope(Parameters& parameters, Random& random) : parameters_(&parameters), random_(&random) {}

  Scope sub(const std::string& name) const;

  // A new parameter of this scope. Every call takes one stream of random numbers, whatever `init` is, so that the start
  // of a parameter depends on the seed and on its place in the order of creation alone.
  Var parameter(const std::string& name, const Shape& shape, Init init, ParameterTraits traits = {}) const;
  // The same with a value made by the caller, who draws it by draw(). Values are drawn and changed on the host, and
  // move to the parameters' device when they are complete.
  Var parameter(const std::string& name, const Tensor& value, ParameterTraits traits = {}) const;
  Tensor draw(const Shape& shape, Init init) const;

 private:
  Parameters* parameters_;
  Random* random_;
  std::string prefix_;
};

class MultiHeadAttention;
struct AttentionMask;

// What one forward pass is for. In training, dropout draws its masks from `random` and, if there is one, the number in
// `step` (see dropout() in ops.h); everything that a resumed run needs to draw the same masks is these two.
struct Pass {
  bool training = false;
  bool only_observe = false;  // with an observer: layers attend as they always do
  Random* random = nullptr;
  Tensor step = {};  // i32 [1] on the model's device
  // Where set, every layer first shows the observer its projection [B,T,3C]. Unless it is there to look on only, all
  // layers then attend by softmax, whatever their kind: how a kernel learns from a teacher that reads the same queries
  // and keys.
  using Observer =
      std::function<void(const MultiHeadAttention& layer, const Var& projected, const AttentionMask& mask)>;
  const Observer* observer = nullptr;
};

}  // namespace flexformer
