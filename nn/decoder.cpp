#include "nn/decoder.h"

#include <cmath>

#include "tensor/functors.h"

namespace flexformer {
namespace {

// From more rows on, blocks that fit the caches beat reading the matrix in place.
constexpr Index kFewRows = 16;

Index bytes_of(std::initializer_list<const Tensor*> tensors) {
  Index n = 0;
  for (const Tensor* tensor : tensors)
    if (tensor->defined()) n += tensor->numel() * size_of(tensor->dtype());
  return n;
}

const float* data_or_null(const Tensor& x) { return x.defined() ? x.data() : nullptr; }

// y [rows, C] = f(x), elementwise.
void apply(Device device, Unary op, Tensor& x) {
  launch(device, UnaryFwd{.y = x.values(), .x = x.values(), .n = x.numel(), .op = op, .a = 0});
}

}  // namespace

Index AttentionState::bytes() const { return bytes_of({&sums, &weight_sum, &max, &keys, &values}); }

Index DecodeState::bytes() const {
  Index n = 0;
  for (const AttentionState& layer : layers) n += layer.bytes();
  return n;
}

Decoder::Map Decoder::map_of(const Linear& linear, WeightFormat format) {
  if (!linear.weight.defined()) return {};
  Map map{Weights(linear.weight.value(), format), linear.bias.value()};
  weight_bytes_ += map.W.bytes();
  return map;
}

Decoder::Decoder(const LanguageModel& model, WeightFormat format)
    : options_(model.options()),
      device_(model.parameters().device()),
      kind_(&attention_kind(options_.transformer.attention.kind)),
      has_end_(model.has_end()),
      input_(model.input()),
      norm_(model.transformer().norm),
      adaptive_(model.adaptive()) {
  const MultiHeadAttention& first = model.transformer().blocks.at(0).attention;
  heads_ = first.heads, kv_heads_ = first.kv_heads, d_ = first.head_size;
  width_ = (heads_ + 2 * kv_heads_) * d_;
  for (const Block& block : model.transformer().blocks)
    layers_.push_back({block.norm1, block.norm2, map_of(block.attention.qkv, format),
                       map_of(block.attention.out, format), map_of(block.mlp.gate, format),
                       map_of(block.mlp.up, format), map_of(block.mlp.down, format), block.attention.feature_map()});
  if (!adaptive_) head_ = map_of(model.head(), format);
  for (const Parameter& parameter : model.parameters())  // tables of tokens, positions, and adaptive matrices
    if (parameter.decay && parameter.name.find("blocks.") == std::string::npos &&
        !parameter.var.same_as(model.head().weight) && !parameter.var.same_as(input_.token))
      weight_bytes_ += bytes_of({&parameter.var.value()});
  if (adaptive_) return;
  const bool tied = model.head().weight.same_as(input_.token);
  Weights token = tied ? head_.W : Weights(input_.token.value(), format);
  if (!tied) weight_bytes_ += token.bytes();
  if (format == WeightFormat::f32) return;
  if (device_ == Device::cpu) {
    packed_token_ = token;
    input_.token = Var();
  } else {
    const Weights here(input_.token.value().to(Device::cpu), format);
    input_.token = Var(here.unpacked(0, here.rows()).to(device_));
  }
}

void Decoder::set_rows(Index rows) {
  if (rows == rows_) return;
  const TransformerOptions& t = options_.transformer;
  const auto buffer = [&](Index width) { return Tensor::empty({rows, width}, activation_dtype(device_), device_); };
  const Index inner = t.ffn > 0 ? t.ffn : 4 * t.dim;
  h_ = buffer(t.dim), sum_ = buffer(t.dim), normed_ = buffer(t.dim), attended_ = buffer(t.dim);
  qkv_ = buffer(width_), inner_ = buffer(inner);
  gate_ = t.activation == Activation::swiglu ? buffer(inner) : Tensor();
  statistics_ = Tensor::empty({3, rows * (heads_ + kv_heads_)}, DType::f32, device_);
  rows_ = rows;
}

const Tensor& Decoder::feed(std::span<const std::int32_t> ids, DecodeState& state) {
  check("decode", !ids.empty(), "there is no token to take in");
  DecodeState* const states[] = {&state};
  if (state.length == 0) return forward(ids, states);
  for (std::size_t i = 0; i < ids.size(); ++i) forward(ids.subspan(i, 1), states);
  return logits_;
}

const Tensor& Decoder::step(std::span<const std::int32_t> ids, States states) {
  check("decode", ids.size() == states.size() && !ids.empty(), ids.size(), " tokens for ", states.size(), " sequences");
  return forward(ids, states);
}

const Tensor& Decoder::forward(std::span<const std::int32_t> ids, States states) {
  check("decode", !Tape::current(), "decoding gives no gradients; close the tape first");
  const Index R = Index(ids.size());
  const bool prompt = states.size() == 1 && R > 1;
  for (DecodeState* state : states) {
    if (state->length == 0 && state->layers.empty()) state->layers.resize(layers_.size());
    check("decode", state->layers.size() == layers_.size(), "the state has ", state->layers.size(),
          " layers, the model ", layers_.size());
    const Index end = state->length + (prompt ? R : 1);
    check("decode", !kind_->has_end || end <= options_.block, kind_->name, " has its end at ", options_.block,
          " tokens; start a new state from the last of them");
  }
  set_rows(R);
  embed(ids, states);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (options_.transformer.norm_first) {
      normalise(normed_.values(), h_.values(), layer.norm1, R);
      product(qkv_.values(), normed_.values(), layer.qkv, R);
      attend(layer, i, states);
      product(sum_.values(), attended_.values(), layer.out, R, h_.values());
      normalise(normed_.values(), sum_.values(), layer.norm2, R);
      mlp(layer, normed_, sum_, h_);
    } else {
      product(qkv_.values(), h_.values(), layer.qkv, R);
      attend(layer, i, states);
      product(sum_.values(), attended_.values(), layer.out, R, h_.values());
      normalise(normed_.values(), sum_.values(), layer.norm1, R);
      mlp(layer, normed_, normed_, sum_);
      normalise(h_.values(), sum_.values(), layer.norm2, R);
    }
  }
  for (DecodeState* state : states) state->length += prompt ? R : 1;

  // Of a prompt, the last token alone is asked what follows.
  const Index answers = prompt ? 1 : R, first = (R - answers) * options_.transformer.dim;
  ValuesIn last = h_.values().from(first);
  if (norm_) {
    normalise(normed_.values(), last, *norm_, answers);
    last = normed_.values();
  }
  Tensor floats;  // probabilities are wanted in float
  if (last.dtype != DType::f32 || adaptive_) {
    floats = Tensor::empty({answers, options_.transformer.dim}, DType::f32, device_);
    launch(device_, SumFwd{.y = {floats.values()}, .x = last, .outer = floats.numel(), .n = 1, .inner = 1, .scale = 1});
    last = floats.values();
  }
  if (adaptive_) {
    logits_ = adaptive_->log_probabilities(Var(floats)).value();
    return logits_;
  }
  if (!logits_.defined() || logits_.size(0) != answers)
    logits_ = Tensor::empty({answers, options_.vocabulary}, DType::f32, device_);
  product(logits_.values(), last, head_, answers);
  return logits_;
}

void Decoder::embed(std::span<const std::int32_t> ids, States states) {
  const Index R = Index(ids.size()), C = options_.transformer.dim, V = options_.vocabulary;
  for (const std::int32_t id : ids) check("decode", id >= 0 && id < V, "id ", id, " is outside the vocabulary of ", V);
  if (adaptive_) {
    const Var rows = input_.adaptive->forward(Tensor::from_ints({R}, ids));
    launch(device_,
           SumFwd{.y = {h_.values()}, .x = rows.value().values(), .outer = R * C, .n = 1, .inner = 1, .scale = 1});
  } else if (packed_token_.defined()) {
    for (Index r = 0; r < R; ++r) {
      const Tensor row = packed_token_.unpacked(ids[std::size_t(r)], 1);
      std::copy_n(row.data(), C, h_.data() + r * C);
    }
  } else {
    const Tensor there = device_ == Device::cpu ? Tensor() : Tensor::from_ints({R}, ids).to(device_);
    launch(device_, EmbeddingFwd{.y = h_.values(),
                                 .table = input_.token.value().values(),
                                 .ids = there.defined() ? there.ints() : ids.data(),
                                 .R = R,
                                 .C = C,
                                 .V = V});
  }
  if (options_.position == Position::learned || options_.position == Position::sinusoidal) {
    const Index rows = R / Index(states.size());
    for (std::size_t s = 0; s < states.size(); ++s) {
      const Var positions = input_.positions(states[s]->length, rows);
      launch(device_, SumFwd{.y = {h_.values().from(Index(s) * C), true},
                             .x = positions.value().values(),
                             .outer = rows * C,
                             .n = 1,
                             .inner = 1,
                             .scale = 1});
    }
  }
  if (!input_.norm) return;
  normalise(sum_.values(), h_.values(), *input_.norm, R);
  std::swap(h_, sum_);
}

void Decoder::attend(const Layer& layer, std::size_t number, States states) {
  if (states.size() == 1 && rows_ > 1) {
    turn(0, rows_, 0);
    return prompt_attention(layer, states[0]->layers[number]);
  }
  const profile::Op op("attention_step");
  for (std::size_t s = 0; s < states.size(); ++s) {
    AttentionState& state = states[s]->layers[number];
    const Index length = states[s]->length;
    turn(Index(s), 1, length);
    kind_->is_linear ? linear_step(layer, state, Index(s), length) : softmax_step(state, Index(s), length);
  }
}

void Decoder::mlp(const Layer& layer, const Tensor& x, const Tensor& residual, Tensor& y) {
  product(inner_.values(), x.values(), layer.up, rows_);
  switch (options_.transformer.activation) {
    case Activation::gelu:
      apply(device_, Unary::gelu_tanh, inner_);
      break;
    case Activation::gelu_erf:
      apply(device_, Unary::gelu_erf, inner_);
      break;
    case Activation::relu:
      apply(device_, Unary::relu, inner_);
      break;
    case Activation::swiglu:
      product(gate_.values(), x.values(), layer.gate, rows_);
      apply(device_, Unary::silu, gate_);
      const Index n = inner_.numel();
      launch(device_, BinaryFwd{.y = inner_.values(),
                                .a = gate_.values(),
                                .b = inner_.values(),
                                .shape = {{1, 1, 1, n}, {0, 0, 0, 1}, {0, 0, 0, 1}},
                                .op = Binary::mul});
  }
  product(y.values(), inner_.values(), layer.down, rows_, residual.values());
}

void Decoder::normalise(ValuesOut y, ValuesIn x, const Norm& norm, Index rows) {
  const NormOptions& options = options_.transformer.norm;
  const Index C = options_.transformer.dim;
  float* statistics = statistics_.data();
  if (options.kind == NormKind::layer)
    launch(device_, LayerNormFwd{.y = y,
                                 .mean = statistics,
                                 .mean_low = statistics + rows,
                                 .rstd = statistics + 2 * rows,
                                 .x = x,
                                 .gamma = norm.weight.value().data(),
                                 .beta = norm.bias.value().data(),
                                 .R = rows,
                                 .C = C,
                                 .eps = options.eps});
  else
    launch(device_, RmsNormFwd{.y = y,
                               .rstd = statistics,
                               .x = x,
                               .gamma = norm.weight.value().data(),
                               .R = rows,
                               .C = C,
                               .eps = options.eps});
}

void Decoder::product(ValuesOut y, ValuesIn x, const Map& map, Index rows, ValuesIn residual) const {
  const WeightsIn W = map.W.in();
  const float* bias = data_or_null(map.bias);
  const Index O = map.W.rows(), I = map.W.columns();
  if (W.format == WeightFormat::f32 && (rows > kFewRows || device_ != Device::cpu))
    launch(device_, Gemm{.c = {y},
                         .a = x,
                         .b = reinterpret_cast<const float*>(W.p),
                         .bias = bias,
                         .M = rows,
                         .N = O,
                         .K = I,
                         .a_row = I,
                         .a_col = 1,
                         .b_row = 1,
                         .b_col = I,
                         .c_row = O,
                         .bf16 = precision() == Precision::bf16,
                         .residual = residual});
  else
    launch(device_, FewRows{.y = y, .x = x, .W = W, .bias = bias, .residual = residual, .R = rows, .O = O, .I = I});
}

void round_weights(const LanguageModel& model, WeightFormat format) {
  const auto round = [&](const Var& weight) {
    if (!weight.defined()) return;
    Tensor matrix = weight.value();
    const Weights rounded(matrix.to(Device::cpu), format);
    matrix.copy_from(rounded.unpacked(0, rounded.rows()));
  };
  if (format == WeightFormat::f32) return;
  for (const Block& block : model.transformer().blocks)
    for (const Linear* map :
         {&block.attention.qkv, &block.attention.out, &block.mlp.gate, &block.mlp.up, &block.mlp.down})
      round(map->weight);
  if (model.adaptive()) return;
  round(model.input().token);
  if (!model.head().weight.same_as(model.input().token)) round(model.head().weight);
}

}  // namespace flexformer
