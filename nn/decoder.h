// A language model as it is decoded: the formulas of LanguageModel::forward(), launched kernel by kernel on buffers
// that every token uses again, without tape or Vars. A prompt goes through in one pass, several sequences are decoded
// side by side, and products read each weight once (FewRows), in the format asked for.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "nn/language_model.h"

namespace flexformer {

// What one layer remembers of the tokens of one sequence. A linear kind's size does not depend on how many they were.
struct AttentionState {
  Tensor sums, weight_sum, max;  // linear kinds: [H,M,d+1] [H] [H], see LinearAttentionStep
  Tensor keys, values;           // softmax: [kv_heads,capacity,d] each, the rows of the tokens so far filled
  Index bytes() const;
};

// One sequence; a default one is empty.
struct DecodeState {
  std::vector<AttentionState> layers;
  Index length = 0;  // tokens taken in
  Index bytes() const;
};

class Decoder {
 public:
  // f32 weights are the model's own memory: what it learns later shows. Other formats are rounded copies of all
  // matrices but those of model.adaptive, and the model may go. Throws Error where these hold a number that is not
  // finite.
  explicit Decoder(const LanguageModel& model, WeightFormat weights = WeightFormat::f32);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Takes tokens in and gives the logits (adaptive: log-probabilities) [1,V] of the next, which lie in a buffer until
  // the next call. Tokens that begin a sequence go through in one pass. Throws Error for an id outside the vocabulary,
  // a sequence that passes the model's end, and under an open tape.
  const Tensor& feed(std::span<const std::int32_t> ids, DecodeState& state);
  // One more token of each sequence -> [B,V]. A row does not depend on the other sequences, to the last bit.
  const Tensor& step(std::span<const std::int32_t> ids, std::span<DecodeState* const> states);

  const LanguageModelOptions& options() const { return options_; }
  bool has_end() const { return has_end_; }
  Device device() const { return device_; }
  Index weight_bytes() const { return weight_bytes_; }  // of all matrices and tables

 private:
  struct Map {  // y = x W^T + b
    Weights W;
    Tensor bias;
  };
  struct Layer {
    Norm norm1, norm2;
    Map qkv, out, gate, up, down;
    FeatureMapVars map;
  };
  using States = std::span<DecodeState* const>;

  Map map_of(const Linear& linear, WeightFormat format);
  // R = ids.size() rows: the beginning of one sequence, or a token of each of several.
  const Tensor& forward(std::span<const std::int32_t> ids, States states);
  void set_rows(Index rows);
  void embed(std::span<const std::int32_t> ids, States states);
  void attend(const Layer& layer, std::size_t number, States states);
  void turn(Index row, Index rows, Index position);
  Tensor repeat_kv(Index row, Index rows) const;
  void prompt_attention(const Layer& layer, AttentionState& state);
  void linear_step(const Layer& layer, AttentionState& state, Index row, Index position);
  void softmax_step(AttentionState& state, Index row, Index length);
  void append(AttentionState& state, Index row, Index rows, Index length) const;
  void start_sums(const Layer& layer, AttentionState& state) const;
  void mlp(const Layer& layer, const Tensor& x, const Tensor& residual, Tensor& y);
  void normalise(ValuesOut y, ValuesIn x, const Norm& norm, Index rows);
  void product(ValuesOut y, ValuesIn x, const Map& map, Index rows, ValuesIn residual = nullptr) const;
  FeatureMap kernel_map(const Layer& layer) const;

  LanguageModelOptions options_;
  Device device_;
  const AttentionKind* kind_;
  Index heads_, kv_heads_, d_, width_;  // width_: of a row of qkv
  bool has_end_;
  InputEmbedding input_;  // without its token table where that is packed_token_
  Weights packed_token_;
  std::vector<Layer> layers_;
  std::optional<Norm> norm_;
  Map head_;
  std::optional<AdaptiveSoftmax> adaptive_;
  Index weight_bytes_ = 0;

  Index rows_ = -1;  // of the buffers
  Tensor h_, sum_, normed_, qkv_, attended_, inner_, gate_, statistics_, logits_;
};

// Replaces the model's weights by those that a Decoder of this format multiplies with, so that a loss can be measured.
void round_weights(const LanguageModel& model, WeightFormat format);

}  // namespace flexformer
