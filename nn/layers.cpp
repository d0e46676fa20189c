// Construction of the small modules: names, shapes and starts of their parameters.
#include "nn/layers.h"

namespace flexformer {

Linear::Linear(const Scope& scope, Index in, Index out, Init init, bool has_bias)
    : Linear(scope, scope.parameter("weight", {out, in}, init, {.decay = true}), has_bias) {}

Linear::Linear(const Scope& scope, Var shared_weight, bool has_bias) : weight(std::move(shared_weight)) {
  if (has_bias) bias = scope.parameter("bias", {weight.size(0)}, Init::constant(0));
}

NormKind norm_kind_from(const std::string& name) {
  if (name == "layer") return NormKind::layer;
  if (name == "rms") return NormKind::rms;
  fail("there is no norm called '", name, "'; there are layer, rms");
}

Norm::Norm(const Scope& scope, Index dim, const NormOptions& options)
    : weight(scope.parameter("weight", {dim}, Init::constant(1))), options_(options) {
  if (options.kind == NormKind::layer) bias = scope.parameter("bias", {dim}, Init::constant(0));
}

Activation activation_from(const std::string& name) {
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_erf") return Activation::gelu_erf;
  if (name == "relu") return Activation::relu;
  if (name == "swiglu") return Activation::swiglu;
  fail("there is no activation called '", name, "'; there are gelu, gelu_erf, relu, swiglu");
}

Mlp::Mlp(const Scope& scope, Index dim, Index inner, Init init, Init residual, const MlpOptions& options)
    : activation_(options.activation) {
  if (activation_ == Activation::swiglu) gate = Linear(scope.sub("gate"), dim, inner, init, options.biases);
  up = Linear(scope.sub("up"), dim, inner, init, options.biases);
  down = Linear(scope.sub("down"), inner, dim, residual, options.biases);
}

Var Mlp::forward(const Var& x, const Var& residual) const {
  switch (activation_) {
    case Activation::gelu:
      return mlp(x, up.weight, up.bias, down.weight, down.bias, residual);
    case Activation::gelu_erf:
      return down.forward(gelu_erf(up.forward(x)), residual);
    case Activation::relu:
      return down.forward(relu(up.forward(x)), residual);
    case Activation::swiglu:
      break;
  }
  return down.forward(silu(gate.forward(x)) * up.forward(x), residual);
}

Var dropout(const Var& x, float p, const Pass& pass) {
  if (!pass.training || p == 0) return x;
  check("dropout", pass.random != nullptr, "training with dropout ", p, " needs Pass::random");
  return dropout(x, p, pass.random->next(), pass.step);
}

}  // namespace flexformer
