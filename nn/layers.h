// The small modules: linear map, table, norm, MLP, dropout. Each keeps its parameters as public Vars.
#pragma once
#include "autograd/ops.h"
#include "nn/module.h"

namespace flexformer {

// y = x W^T + b.  x [.., in], W [out, in], b [out] -> y [.., out].
class Linear {
 public:
  Linear(const Scope& scope, Index in, Index out, Init init);
  // With a weight made elsewhere: an output layer tied to the embedding, or a matrix started in parts.
  Linear(const Scope& scope, Var shared_weight);

  Var forward(const Var& x) const { return linear(x, weight, bias); }

  Var weight, bias;
};

// y = (x - mean) / sqrt(var + 1e-5) * weight + bias over the last axis.
class LayerNorm {
 public:
  LayerNorm(const Scope& scope, Index dim);

  Var forward(const Var& x) const { return layer_norm(x, weight, bias); }

  Var weight, bias;
};

// y = W2 gelu(W1 x + b1) + b2, gelu in its tanh form.
class Mlp {
 public:
  // `init` is for W1, `residual` for W2, which writes into the residual stream.
  Mlp(const Scope& scope, Index dim, Index inner, Init init, Init residual);

  Var forward(const Var& x) const { return down.forward(gelu(up.forward(x))); }

  Linear up, down;
};

// x with each element dropped with probability p and the rest scaled by 1 / (1 - p), in training; x itself otherwise.
Var dropout(const Var& x, float p, const Pass& pass);

}  // namespace flexformer
