// Decoder language model: embedding, causal transformer, output layer. It reads whole sequences; decoder.h goes on from
// them token by token.
#pragma once
#include "nn/input_embedding.h"
#include "nn/transformer.h"

namespace flexformer {

struct LanguageModelOptions {
  TransformerOptions transformer = {};
  Index vocabulary = 256;
  AdaptiveOptions adaptive = {};  // needs ids in order of falling frequency
  Index block = 128;              // context length that the model is trained for
  Position position = Position::learned;
  bool sinusoidal_start = true;  // of learned positions, see InputOptions
  bool tie = false;              // the output layer's matrix is the token embedding; adaptive: all matrices of both
  bool head_bias = true;         // of the output layer; adaptive ones have none
  bool norm_embeddings = false;  // a norm behind the embeddings
};

class LanguageModel {
 public:
  LanguageModel(const LanguageModelOptions& options, Random& random, Device device = Device::cpu);
  LanguageModel(const LanguageModel&) = delete;  // a copy would share its weights
  LanguageModel& operator=(const LanguageModel&) = delete;

  // Ids and targets are best kept on the host, see ops.h.

  // Logits of the next token (adaptive: log-probabilities) at every position: ids i32 [B,T] -> [B,T,V]. Those at t
  // depend on ids 0 .. t alone.
  Var forward(const Tensor& ids, const Pass& pass = {}) const;
  // Mean cross-entropy in nats, targets i32 [B,T]; targets of -100 do not count.
  Var loss(const Tensor& ids, const Tensor& targets, const Pass& pass, const CrossEntropyOptions& options = {}) const;

  // Whether sequences end at options().block, because positions or the kind of attention do.
  bool has_end() const;

  const Parameters& parameters() const { return parameters_; }
  const LanguageModelOptions& options() const { return options_; }
  const InputEmbedding& input() const { return input_; }
  const Transformer& transformer() const { return transformer_; }
  const Linear& head() const { return head_; }  // empty where the next one stands for it
  const std::optional<AdaptiveSoftmax>& adaptive() const { return adaptive_; }

 private:
  Var hidden(const Tensor& ids, const Pass& pass) const;  // [B,T,dim], what the head reads
  Var logits(const Var& h) const;

  LanguageModelOptions options_;
  Parameters parameters_;
  InputEmbedding input_;
  Transformer transformer_;
  Linear head_;
  std::optional<AdaptiveSoftmax> adaptive_;
};

}  // namespace flexformer
