// Attention is a projection, an op and a projection.
#include "nn/attention.h"

#include <cmath>

namespace flexformer {

QkNorm qk_norm_from(const std::string& name) {
  if (name == "none") return QkNorm::none;
  if (name == "l2") return QkNorm::l2;
  if (name == "rms") return QkNorm::rms;
  fail("there is no norm of q and k called '", name, "'; there are none, l2, rms");
}

Initialisation Initialisation::gpt(Index dim, Index layers) {
  const Init small = Init::normal(0.02f);
  return {.query_key = Init::normal(1 / std::sqrt(float(dim))),
          .value = small,
          .matrix = small,
          .residual = Init::normal(0.02f / std::sqrt(2.0f * float(layers))),
          .embedding = small};
}

Initialisation Initialisation::xavier() {
  return {.query_key = Init::xavier(),
          .value = Init::xavier(),
          .matrix = Init::xavier(),
          .residual = Init::xavier(),
          .embedding = Init::normal(0.02f)};
}

namespace {

Index head_size_of(Index dim, Index heads) {
  check("attention", heads > 0 && dim % heads == 0, "dim ", dim, " cannot be split into ", heads,
        " heads; choose a number of heads that divides dim");
  return dim / heads;
}

Index kv_heads_of(Index heads, Index kv_heads) {
  check("attention", kv_heads >= 0 && (kv_heads == 0 || heads % kv_heads == 0), heads,
        " heads of queries cannot share ", kv_heads, " heads of keys and values; choose a number that divides ", heads);
  return kv_heads == 0 ? heads : kv_heads;
}

// [dim + 2 kv_dim, dim]. All three are drawn even where W_k is then a copy of W_q (of each group's first head): W_v
// must not depend on that.
Var qkv_weight(const Scope& scope, Index dim, Index kv_heads, Index kv_dim, bool tied, const Initialisation& init) {
  const Var q(scope.draw({dim, dim}, init.query_key)), k(scope.draw({kv_dim, dim}, init.query_key));
  const Var v(scope.draw({kv_dim, dim}, init.value));
  const auto first_of_groups = [&] {
    const Var groups = reshape(q, {kv_heads, dim / kv_dim, kv_dim / kv_heads, dim});
    return reshape(slice(groups, 1, 0, 1), {kv_dim, dim});
  };
  return scope.parameter("weight", concat({q, tied ? first_of_groups() : k, v}, 0).value(), {.decay = true});
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const Scope& scope, Index dim, const AttentionOptions& options,
                                       const Initialisation& init)
    : kind(&attention_kind(options.kind)),
      heads(options.heads),
      head_size(head_size_of(dim, heads)),
      kv_heads(kv_heads_of(heads, options.kv_heads)),
      max_length(options.max_length),
      floor(options.floor),
      qkv(scope.sub("qkv"),
          qkv_weight(scope.sub("qkv"), dim, kv_heads, kv_heads * head_size, options.tie_qk_init.value_or(kind->ties_qk),
                     init),
          options.biases),
      out(scope.sub("out"), dim, dim, init.residual, options.biases),
      qk_norm_(options.qk_norm),
      rope_(options.rope),
      rope_theta_(options.rope_theta) {
  check("attention", floor >= 0 && floor <= 1, "the floor of the denominator must be in [0, 1], got ", floor);
  check("attention", !rope_ || head_size % 2 == 0, "rotary positions turn pairs of channels, but the head size is ",
        head_size, "; make dim / heads even or choose other positions");
  check("attention", !kind->has_end || max_length > 0, kind->name, " needs to know the longest sequence, max_length");
  const MapSize size{heads, options.features > 0 ? options.features : head_size, head_size, options.omega_scale};
  const int sets = kind->is_linear ? weight_sets(kind->features) : 0;
  const ParameterTraits traits{.kernel = true, .trainable = kind->learns_map};
  if (sets >= 1) w1 = scope.parameter("w1", kind->start(scope, size), traits);
  if (sets >= 2) w2 = scope.parameter("w2", kind->start(scope, size), traits);
  if (kind->has_tau)
    tau = scope.parameter("tau", {heads}, Init::constant(std::log(2 * std::sqrt(float(head_size)))),
                          {.kernel = true, .trainable = kind->learns_tau || options.train_tau});
}

Var MultiHeadAttention::normalise(const Var& packed) const {
  const Index B = packed.size(0), T = packed.size(1), C = heads * head_size;
  const Var qk = reshape(slice(packed, 2, 0, 2 * C), {B, T, 2 * heads, head_size});
  const Var normalised = qk_norm_ == QkNorm::l2 ? l2_normalize(qk) : rms_norm(qk, Var());
  return concat({reshape(normalised, {B, T, 2 * C}), slice(packed, 2, 2 * C, 3 * C)}, 2);
}

Var MultiHeadAttention::repeat_kv(const Var& projected) const {
  const Index B = projected.size(0), T = projected.size(1), C = heads * head_size, kv = kv_heads * head_size;
  const Var shared = reshape(slice(projected, 2, C, C + 2 * kv), {B * T, 2 * kv_heads, 1, head_size});
  const Var repeated = expand(shared, {B * T, 2 * kv_heads, heads / kv_heads, head_size});
  return concat({slice(projected, 2, 0, C), reshape(repeated, {B, T, 2 * C})}, 2);
}

Var MultiHeadAttention::project(const Var& x, Index position) const {
  Var y = qkv.forward(x);
  if (kv_heads != heads) y = repeat_kv(y);
  if (rope_) y = rope(y, heads, position, rope_theta_);
  return qk_norm_ == QkNorm::none ? y : normalise(y);
}

Var MultiHeadAttention::heads_of(const Var& projected, Index part) const {
  const Index B = projected.size(0), T = projected.size(1), C = heads * head_size;
  return permute(reshape(slice(projected, 2, part * C, (part + 1) * C), {B, T, heads, head_size}), {0, 2, 1, 3});
}

Var MultiHeadAttention::forward(const Var& x, const AttentionMask& mask, const Var& residual, const Pass& pass) const {
  const Var projected = project(x);
  if (pass.observer) (*pass.observer)(*this, cast(projected, DType::f32), mask);
  return out.forward(kind->is_linear && (!pass.observer || pass.only_observe)
                         ? linear_self_attention(projected, heads, feature_map(), mask, floor)
                         : softmax_self_attention(projected, heads, mask),
                     residual);
}

}  // namespace flexformer
