// Encoder classifier: embedding, transformer in which every token sees every other, pooling, output layer. One token is
// padding: nobody attends to it and it is not pooled, so a text's result does not depend on what it is batched with.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "nn/input_embedding.h"
#include "nn/transformer.h"

namespace flexformer {

// What stands for a text: the mean of its tokens, or the first one.
enum class Pool { mean, cls };
Pool pool_from(const std::string& name);  // throws Error for any other name

struct ClassifierOptions {
  TransformerOptions transformer = {};
  Index vocabulary = 0, classes = 2;
  Index max_length = 512;  // rows of the learned position table
  Position position = Position::learned;
  bool sinusoidal_start = false;  // of learned positions, see InputOptions
  Pool pool = Pool::mean;
  bool two_tower = false;    // compares two texts, encoded by the same weights
  bool xavier_start = true;  // of all matrices; else as in language models
  std::int32_t padding = 0;  // the token that fills up short texts
  // As in BERT and RoBERTa:
  Index position_offset = 0;     // see InputOptions
  bool norm_embeddings = false;  // a norm behind the embeddings
  Index token_types = 0;         // rows of a table of token types; 0: none
  std::int32_t separator = -1;   // a token's type is the number of separators before it, as far as there are types
  bool pooler = false;           // what stands for a text goes through tanh(W x + b) before the output layer,
  bool pooler_relu = false;      // or, as in DistilBERT, through max(0, W x + b)
};

class Classifier {
 public:
  Classifier(const ClassifierOptions& options, Random& random, Device device = Device::cpu);
  Classifier(const Classifier&) = delete;  // a copy would share its weights
  Classifier& operator=(const Classifier&) = delete;

  // ids i32 [B,T], padded at the end and best kept on the host -> logits [B,classes]. A text of padding alone is
  // encoded as zeros.
  Var forward(const Tensor& ids, const Pass& pass = {}) const;
  // The two-tower model: u and v are the texts' encodings, the output layer sees [u, v, |u - v|, u v].
  Var forward(const Tensor& ids_a, const Tensor& ids_b, const Pass& pass = {}) const;
  // The pooled encoding [B,C].
  Var encode(const Tensor& ids, const Pass& pass = {}) const { return encode(inputs(ids), pass); }

  // The same in two parts. What the model reads of texts is made from ids on the host: four tensors of one text, eight
  // of two. They are the ids; which of them are tokens, i32 [B,T], undefined where all are, which is faster; their
  // weights in the mean [B,1,T], undefined with Pool::cls; their types i32 [B,T], undefined without a table of types.
  std::vector<Tensor> inputs(const Tensor& ids) const;
  std::vector<Tensor> inputs(const Tensor& ids_a, const Tensor& ids_b) const;
  Var forward(std::span<const Tensor> inputs, const Pass& pass = {}) const;
  Var encode(std::span<const Tensor> inputs, const Pass& pass = {}) const;

  const Parameters& parameters() const { return parameters_; }
  const ClassifierOptions& options() const { return options_; }
  const Transformer& transformer() const { return transformer_; }

 private:
  ClassifierOptions options_;
  Parameters parameters_;
  InputEmbedding input_;
  Transformer transformer_;
  Linear pooler_, head_;
};

}  // namespace flexformer
