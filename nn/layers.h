// The small modules: linear map, table, norm, MLP, dropout. Each keeps its parameters as public Vars.
#pragma once
#include "autograd/ops.h"
#include "nn/module.h"

namespace flexformer {

// y = x W^T + b (+ residual).  x [.., in], W [out, in], b [out] -> y [.., out].
class Linear {
 public:
  Linear(const Scope& scope, Index in, Index out, Init init);
  // With a weight made elsewhere: an output layer tied to the embedding, or a matrix started in parts.
  Linear(const Scope& scope, Var shared_weight);

  Var forward(const Var& x, const Var& residual = Var()) const { return linear(x, weight, bias, residual); }

  Var weight, bias;
};

// y = (x - mean) / sqrt(var + 1e-5) * weight + bias over the last axis.
class LayerNorm {
 public:
  LayerNorm(const Scope& scope, Index dim);

  Var forward(const Var& x) const { return layer_norm(x, weight, bias); }

  Var weight, bias;
};

// y = W2 gelu(W1 x + b1) + b2 (+ residual), gelu in its tanh form.
class Mlp {
 public:
  // `init` is for W1, `residual` for W2, which writes into the residual stream.
  Mlp(const Scope& scope, Index dim, Index inner, Init init, Init residual);

  Var forward(const Var& x, const Var& residual = Var()) const {
    return mlp(x, up.weight, up.bias, down.weight, down.bias, residual);
  }

  Linear up, down;
};

// x with each element dropped with probability p and the rest scaled by 1 / (1 - p), in training; x itself otherwise.
Var dropout(const Var& x, float p, const Pass& pass);

// residual + dropout(layer(..)), where layer(r) computes its output and adds r unless that is undefined: without
// dropout the sum is made where the output is.
template <class Layer> Var add_layer(const Var& residual, float p, const Pass& pass, const Layer& layer) {
  if (!pass.training || p == 0) return layer(residual);
  return residual + dropout(layer(Var()), p, pass);
}

}  // namespace flexformer
