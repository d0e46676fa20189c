// Attention over whole sequences is a projection, an op and a projection; decoding keeps, per layer, either the sums
// over all keys so far (linear kinds) or the keys and values themselves (softmax).
#include "nn/attention.h"

#include <cmath>
#include <limits>

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

Index AttentionState::bytes() const {
  Index n = 0;
  for (const Tensor* tensor : {&sums, &weight_sum, &max, &keys, &values})
    if (tensor->defined()) n += tensor->numel() * size_of(tensor->dtype());
  return n;
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

void check_batch(Index state, Index token) {
  check("decode", state == token, "the state is of ", state, " sequences, this token of ", token);
}

// Copies rows [B,H,count,d] between a cache [B,H,capacity,d] and another, or a single token's [B,H,d].
void copy_rows(Tensor& to, Index to_row, const Tensor& from, Index count) {
  const Index B = to.size(0), H = to.size(1), d = to.size(3);
  const Index to_head = to.size(2) * d, from_head = from.numel() / (B * H);
  launch(to.device(), StridedCopy{.y = {to.values().from(to_row * d), false},
                                  .x = from.values(),
                                  .size = {B, H, count, d},
                                  .y_stride = {H * to_head, to_head, d, 1},
                                  .x_stride = {H * from_head, from_head, d, 1}});
}

// Appends one token to a cache of keys or values. A full cache doubles, so a token's share of the copying is constant.
void append_row(Tensor& cache, Index length, const Tensor& row, Index H, Index d) {
  constexpr Index first_capacity = 64;
  if (!cache.defined()) cache = Tensor::empty({row.size(0), H, first_capacity, d}, row.dtype(), row.device());
  if (length == cache.size(2)) {
    Tensor larger = Tensor::empty(cache.shape().with(2, 2 * length), cache.dtype(), cache.device());
    copy_rows(larger, 0, cache, length);
    cache = larger;
  }
  copy_rows(cache, length, row, 1);
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

Var MultiHeadAttention::step(const Var& x, AttentionState& state, const Var& residual) const {
  check("decode", !Tape::current(), "decoding gives no gradients; close the tape first");
  const Index B = x.size(0), C = heads * head_size;
  check("decode", x.shape() == Shape({B, 1, C}), "one token [B,1,", C, "] at a time, got ", x.shape());
  const Var projected = project(x, state.length);
  const auto part = [&](int i) { return slice(projected, 2, i * C, (i + 1) * C).value(); };
  const Tensor q = part(0), k = part(1), v = part(2);
  Tensor y = Tensor::empty({B, 1, C}, x.dtype(), x.device());
  {
    const profile::Op op("attention_step");
    kind->is_linear ? linear_step(y, q, k, v, state) : softmax_step(y, q, k, v, state);
  }
  ++state.length;
  return out.forward(Var(y), residual);
}

void MultiHeadAttention::linear_step(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v,
                                     AttentionState& state) const {
  check("decode", !kind->has_end || state.length < max_length, kind->name, " has its end at ", max_length,
        " tokens; start a new state from the last of them");
  const Index B = y.size(0), n = w1.defined() ? w1.size(1) : 0;
  if (!state.sums.defined()) {
    const Index M = feature_count(kind->features, n, head_size);
    state.sums = Tensor::zeros({B, heads, M, head_size + 1}, DType::f32, y.device());
    state.weight_sum = Tensor::zeros({B, heads}, DType::f32, y.device());
    state.max = Tensor::full({B, heads}, -std::numeric_limits<float>::infinity(), y.device());
  }
  check_batch(state.sums.size(0), B);
  launch(y.device(), LinearAttentionStep{.out = y.values(),
                                         .state = state.sums.data(),
                                         .weight_sum = state.weight_sum.data(),
                                         .max = state.max.data(),
                                         .q = q.values(),
                                         .k = k.values(),
                                         .v = v.values(),
                                         .map = {.kind = kind->features,
                                                 .n = n,
                                                 .w1 = data_or_null(w1),
                                                 .w2 = data_or_null(w2),
                                                 .tau = data_or_null(tau),
                                                 .max_length = max_length},
                                         .B = B,
                                         .H = heads,
                                         .d = head_size,
                                         .dv = head_size,
                                         .floor = floor,
                                         .position = state.length});
}

void MultiHeadAttention::softmax_step(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v,
                                      AttentionState& state) const {
  const Index B = y.size(0);
  if (state.keys.defined()) check_batch(state.keys.size(0), B);
  append_row(state.keys, state.length, k, heads, head_size);
  append_row(state.values, state.length, v, heads, head_size);
  launch(y.device(), SoftmaxAttentionStep{.out = y.values(),
                                          .q = q.values(),
                                          .keys = state.keys.values(),
                                          .values = state.values.values(),
                                          .B = B,
                                          .H = heads,
                                          .d = head_size,
                                          .dv = head_size,
                                          .length = state.length + 1,
                                          .capacity = state.keys.size(2),
                                          .scale = 1 / std::sqrt(float(head_size))});
}

}  // namespace flexformer
