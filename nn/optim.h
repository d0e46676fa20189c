// Optimisers: AdamW, Adam and SGD over a model's parameters, with clipping by the global norm. A step either changes
// all parameters or, when a gradient is not finite, none.
#pragma once
#include <string>
#include <vector>

#include "nn/module.h"

namespace flexformer {

enum class OptimizerKind { adamw, adam, sgd };
OptimizerKind optimizer_from(const std::string& name);  // throws Error for any other name

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;  // Adam and AdamW
  float momentum = 0.9f;                            // SGD
  bool nesterov = false;                            // SGD
  // AdamW: every step takes lr * weight_decay of the parameter away; Adam, SGD: weight_decay * p is added to its
  // gradient (L2). Applies to matrices and tables only (Parameter::decay), or to all parameters with decay_all.
  float weight_decay = 0.01f;
  bool decay_all = false;
  float kernel_lr = 1;  // factor on the learning rate of kernel parameters
};

// The sum of squares of x. No square of a float is too large for a double: the sum is finite exactly if all elements
// are, and only it crosses from a GPU to the host.
double squared_norm(const Tensor& x);

struct NonFiniteGradient : Error {
  std::string parameter;  // the first one whose gradient is not finite
  explicit NonFiniteGradient(const std::string& name)
      : Error("the gradient of '" + name + "' is not finite; no parameter was changed"), parameter(name) {}
};

class Optimizer {
 public:
  // `parameters` must outlive this object. Parameters that are frozen now get no state and are never changed.
  Optimizer(const Parameters& parameters, const OptimizerOptions& options);

  // One step with the gradients as they are; a parameter without a gradient stays as it is. With clip > 0, gradients
  // are scaled by min(1, clip / (norm + 1e-6)), norm = the square root of the sum of all squares. Returns that norm,
  // before scaling; on a GPU this is where the host waits. Throws NonFiniteGradient, having changed nothing.
  double step(double lr, double clip = 0);

  // Its three parts. The numbers of the step go to the device; the device gets all of its work, which depends on
  // nothing that the host does not know beforehand and can be captured; the host waits, and learns how it went.
  void prepare(double lr);
  void launch_step(double clip = 0);
  double finish();

  Index steps() const { return steps_.ints()[0]; }
  // Everything to be saved and loaded, sharing the optimiser's memory: "optimizer.steps" i32 [1], "optimizer.m.NAME"
  // and, for Adam and AdamW, "optimizer.v.NAME".
  NamedTensors state() const;

 private:
  struct Slot {
    Parameter parameter;
    Tensor m, v;
  };
  void adam_step(Slot& slot) const;
  void sgd_step(Slot& slot) const;
  bool changes(const Slot& slot) const { return slot.parameter.var.requires_grad() && slot.parameter.var.has_grad(); }
  const StepNumbers* numbers_of(const Slot& slot) const;

  OptimizerOptions options_;
  std::vector<Slot> slots_;
  Tensor steps_;
  // On the parameters' device: StepNumbers [2] of a step, for kernel parameters the second; the scale of its gradients
  // [1]; the sums of their squares, double [slots].
  Tensor numbers_, scale_, squares_;
};

}  // namespace flexformer
