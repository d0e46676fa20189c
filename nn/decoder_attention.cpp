// Attention of a model that decodes: what a prompt leaves behind, and one more token.
#include <cmath>
#include <limits>
#include <utility>

#include "nn/decoder.h"

namespace flexformer {
namespace {

// Of a cache: the capacity doubled until the tokens fit.
Index rows_for(Index tokens, Index capacity) {
  for (capacity = std::max<Index>(64, capacity); capacity < tokens; capacity *= 2) {
  }
  return capacity;
}

}  // namespace

// Rotates and normalises queries and keys as they lie in qkv.
void Decoder::turn(Index row, Index rows, Index position) {
  const AttentionOptions& attention = options_.transformer.attention;
  const ValuesOut x = qkv_.values().from(row * width_);
  if (attention.rope)
    launch(device_, Rope{.y = {x},
                         .x = x,
                         .B = 1,
                         .T = rows,
                         .H = heads_,
                         .kv_heads = kv_heads_,
                         .d = d_,
                         .position = position,
                         .base = attention.rope_theta,
                         .sign = 1});
  if (attention.qk_norm == QkNorm::none) return;
  const Index turned = (heads_ + kv_heads_) * d_;
  Tensor qk = Tensor::empty({rows, turned}, qkv_.dtype(), device_);
  const auto copy = [&](ValuesOut y, Index y_row, ValuesIn from, Index x_row) {
    launch(device_, StridedCopy{.y = {y},
                                .x = from,
                                .size = {1, 1, rows, turned},
                                .y_stride = {0, 0, y_row, 1},
                                .x_stride = {0, 0, x_row, 1}});
  };
  copy(qk.values(), turned, x, width_);
  const Var heads(qk.reshape({rows * (heads_ + kv_heads_), d_}));
  const Var normal = attention.qk_norm == QkNorm::l2 ? l2_normalize(heads) : rms_norm(heads, Var());
  copy(x, width_, normal.value().values(), turned);
}

// [1,rows,3C]: q | k | v with each head of k and v as often as heads of q share it.
Tensor Decoder::repeat_kv(Index row, Index rows) const {
  const Index C = heads_ * d_, share = heads_ / kv_heads_;
  Tensor all = Tensor::empty({1, rows, 3 * C}, qkv_.dtype(), device_);
  const ValuesIn x = qkv_.values().from(row * width_);
  launch(device_, StridedCopy{.y = {all.values()},
                              .x = x,
                              .size = {1, 1, rows, C},
                              .y_stride = {0, 0, 3 * C, 1},
                              .x_stride = {0, 0, width_, 1}});
  launch(device_, StridedCopy{.y = {all.values().from(C)},
                              .x = x.from(C),
                              .size = {rows, 2 * kv_heads_, share, d_},
                              .y_stride = {3 * C, share * d_, d_, 1},
                              .x_stride = {width_, d_, 0, 1}});
  return all;
}

FeatureMap Decoder::kernel_map(const Layer& layer) const {
  return {.kind = kind_->features,
          .n = layer.map.w1.defined() ? layer.map.w1.size(1) : 0,
          .w1 = data_or_null(layer.map.w1),
          .w2 = data_or_null(layer.map.w2),
          .tau = data_or_null(layer.map.tau),
          .max_length = layer.map.max_length};
}

void Decoder::start_sums(const Layer& layer, AttentionState& state) const {
  const Index M = feature_count(kind_->features, kernel_map(layer).n, d_);
  state.sums = Tensor::zeros({heads_, M, d_ + 1}, DType::f32, device_);
  state.weight_sum = Tensor::zeros({heads_}, DType::f32, device_);
  state.max = Tensor::full({heads_}, -std::numeric_limits<float>::infinity(), device_);
}

void Decoder::prompt_attention(const Layer& layer, AttentionState& state) {
  const Index T = rows_, C = heads_ * d_;
  const Tensor packed = kv_heads_ == heads_ ? qkv_.reshape({1, T, 3 * C}) : repeat_kv(0, T);
  const AttentionMask causal{.causal = true, .key_mask = {}};
  if (!kind_->is_linear) {
    append(state, 0, T, 0);
    attended_ = softmax_self_attention(Var(packed), heads_, causal).value().reshape({T, C});
    return;
  }
  attended_ = linear_self_attention(Var(packed), heads_, layer.map, causal, options_.transformer.attention.floor)
                  .value()
                  .reshape({T, C});
  start_sums(layer, state);
  launch(device_, LinearAttentionState{.state = state.sums.data(),
                                       .weight_sum = state.weight_sum.data(),
                                       .max = state.max.data(),
                                       .k = {packed.values().from(C), 0, 3 * C, d_},
                                       .v = {packed.values().from(2 * C), 0, 3 * C, d_},
                                       .map = kernel_map(layer),
                                       .B = 1,
                                       .H = heads_,
                                       .N = T,
                                       .d = d_,
                                       .dv = d_});
}

void Decoder::linear_step(const Layer& layer, AttentionState& state, Index row, Index position) {
  if (!state.sums.defined()) start_sums(layer, state);
  const Index C = heads_ * d_;
  const Tensor repeated = kv_heads_ == heads_ ? Tensor() : repeat_kv(row, 1);
  const ValuesIn q = repeated.defined() ? repeated.values() : ValuesIn(qkv_.values().from(row * width_));
  launch(device_, LinearAttentionStep{.out = attended_.values().from(row * C),
                                      .state = state.sums.data(),
                                      .weight_sum = state.weight_sum.data(),
                                      .max = state.max.data(),
                                      .q = q,
                                      .k = q.from(C),
                                      .v = q.from(2 * C),
                                      .map = kernel_map(layer),
                                      .B = 1,
                                      .H = heads_,
                                      .d = d_,
                                      .dv = d_,
                                      .floor = options_.transformer.attention.floor,
                                      .position = position});
}

void Decoder::softmax_step(AttentionState& state, Index row, Index length) {
  append(state, row, 1, length);
  launch(device_, SoftmaxAttentionStep{.out = attended_.values().from(row * heads_ * d_),
                                       .q = qkv_.values().from(row * width_),
                                       .keys = state.keys.values(),
                                       .values = state.values.values(),
                                       .B = 1,
                                       .H = heads_,
                                       .kv_heads = kv_heads_,
                                       .d = d_,
                                       .dv = d_,
                                       .length = length + 1,
                                       .capacity = state.keys.size(1),
                                       .scale = 1 / std::sqrt(float(d_))});
}

// Puts the keys and values of rows of qkv behind the `length` that are there. A full cache doubles, so that a token's
// share of the copying is constant.
void Decoder::append(AttentionState& state, Index row, Index rows, Index length) const {
  const Index before = state.keys.defined() ? state.keys.size(1) : 0, capacity = rows_for(length + rows, before);
  for (int value = 0; value < 2; ++value) {
    Tensor& cache = value ? state.values : state.keys;
    if (capacity > before) {
      const Tensor old = std::exchange(cache, Tensor::empty({kv_heads_, capacity, d_}, qkv_.dtype(), device_));
      if (length > 0)
        launch(device_, StridedCopy{.y = {cache.values()},
                                    .x = old.values(),
                                    .size = {1, kv_heads_, length, d_},
                                    .y_stride = {0, capacity * d_, d_, 1},
                                    .x_stride = {0, before * d_, d_, 1}});
    }
    launch(device_, StridedCopy{.y = {cache.values().from(length * d_)},
                                .x = qkv_.values().from(row * width_ + (heads_ + value * kv_heads_) * d_),
                                .size = {1, kv_heads_, rows, d_},
                                .y_stride = {0, capacity * d_, d_, 1},
                                .x_stride = {0, d_, width_, 1}});
  }
}

}  // namespace flexformer
