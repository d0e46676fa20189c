// Construction of the small modules: names, shapes and starts of their parameters.
#include "nn/layers.h"

namespace flexformer {

Linear::Linear(const Scope& scope, Index in, Index out, Init init)
    : weight(scope.parameter("weight", {out, in}, init, {.decay = true})),
      bias(scope.parameter("bias", {out}, Init::constant(0))) {}

Linear::Linear(const Scope& scope, Var shared_weight)
    : weight(std::move(shared_weight)), bias(scope.parameter("bias", {weight.size(0)}, Init::constant(0))) {}

LayerNorm::LayerNorm(const Scope& scope, Index dim)
    : weight(scope.parameter("weight", {dim}, Init::constant(1))),
      bias(scope.parameter("bias", {dim}, Init::constant(0))) {}

Mlp::Mlp(const Scope& scope, Index dim, Index inner, Init init, Init residual)
    : up(scope.sub("up"), dim, inner, init), down(scope.sub("down"), inner, dim, residual) {}

Var dropout(const Var& x, float p, const Pass& pass) {
  if (!pass.training || p == 0) return x;
  check("dropout", pass.random != nullptr, "training with dropout ", p, " needs Pass::random");
  return dropout(x, p, pass.random->next());
}

}  // namespace flexformer
