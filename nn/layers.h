// The small modules: linear map, table, norm, MLP, dropout. Each keeps its parameters as public Vars.
#pragma once
#include <string>

#include "autograd/ops.h"
#include "nn/module.h"

namespace flexformer {

// y = x W^T + b (+ residual).  x [.., in], W [out, in], b [out] -> y [.., out].
class Linear {
 public:
  Linear() = default;  // of a module that has none
  Linear(const Scope& scope, Index in, Index out, Init init, bool has_bias = true);
  // With a weight made elsewhere: an output layer tied to the embedding, or a matrix started in parts.
  Linear(const Scope& scope, Var shared_weight, bool has_bias = true);

  Var forward(const Var& x, const Var& residual = Var()) const { return linear(x, weight, bias, residual); }

  Var weight, bias;  // no bias: undefined
};

enum class NormKind { layer, rms };
NormKind norm_kind_from(const std::string& name);  // throws Error for any other name

struct NormOptions {
  NormKind kind = NormKind::layer;
  float eps = 1e-5f;
};

// Over the last axis, [.., dim] -> [.., dim]:
//   layer  y = (x - mean) / sqrt(var + eps) * weight + bias
//   rms    y = x / sqrt(mean(x^2) + eps) * weight
class Norm {
 public:
  Norm(const Scope& scope, Index dim, const NormOptions& options = {});

  Var forward(const Var& x) const {
    return options_.kind == NormKind::layer ? layer_norm(x, weight, bias, options_.eps)
                                            : rms_norm(x, weight, options_.eps);
  }

  Var weight, bias;  // rms: no bias

 private:
  NormOptions options_;
};

// What stands between the two maps of an MLP: gelu in its tanh form, x Phi(x), max(x, 0), or the gate of SwiGLU.
enum class Activation { gelu, gelu_erf, relu, swiglu };
Activation activation_from(const std::string& name);  // throws Error for any other name

struct MlpOptions {
  Activation activation = Activation::gelu;
  bool biases = true;
};

// y = W2 f(W1 x + b1) + b2 (+ residual); with SwiGLU y = W2 (silu(W3 x + b3) * (W1 x + b1)) + b2 (+ residual)
// (Shazeer, "GLU variants improve transformer", 2020).
class Mlp {
 public:
  // `init` is for W1 and W3, `residual` for W2, which writes into the residual stream.
  Mlp(const Scope& scope, Index dim, Index inner, Init init, Init residual, const MlpOptions& options = {});

  Var forward(const Var& x, const Var& residual = Var()) const;

  Linear gate, up, down;  // W3 (of SwiGLU alone), W1, W2

 private:
  Activation activation_;
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
