// A stack of transformer blocks, normed before or after each branch: what language models and classifiers have in
// common.
#pragma once
#include <optional>
#include <vector>

#include "nn/attention.h"

namespace flexformer {

struct TransformerOptions {
  Index dim = 128, layers = 4;
  Index ffn = 0;      // inner size of the MLP; 0: 4 dim
  float dropout = 0;  // of what each branch adds to the stream, and of the embeddings
  NormOptions norm = {};
  bool norm_first = true;  // pre-norm blocks with a norm behind the last; false: post-norm, as in BERT
  Activation activation = Activation::gelu;
  bool biases = true;  // of the linear maps in the blocks
  AttentionOptions attention = {};
};

// norm_first:  h += attention(norm1(h));  h += mlp(norm2(h))
// else:        h = norm1(h + attention(h));  h = norm2(h + mlp(h))
class Block {
 public:
  Block(const Scope& scope, const TransformerOptions& options, const Initialisation& init);

  Var forward(const Var& h, const AttentionMask& mask, const Pass& pass) const;  // [B,T,C] -> [B,T,C]

  Norm norm1;
  MultiHeadAttention attention;
  Norm norm2;
  Mlp mlp;

 private:
  float dropout_;
  bool norm_first_;
};

// norm(block(.. block(h))); post-norm blocks end with a norm already, so there it is left out.
class Transformer {
 public:
  Transformer(const Scope& scope, const TransformerOptions& options, const Initialisation& init);

  Var forward(const Var& h, const AttentionMask& mask, const Pass& pass) const;  // [B,T,C] -> [B,T,C]

  std::vector<Block> blocks;
  std::optional<Norm> norm;

 private:
  Var finish(const Var& h) const { return norm ? norm->forward(h) : h; }
  static std::vector<Block> make_blocks(const Scope& scope, const TransformerOptions& options,
                                        const Initialisation& init);
};

}  // namespace flexformer
