// A stack of pre-norm transformer blocks: what language models and classifiers have in common.
#pragma once
#include <vector>

#include "nn/attention.h"

namespace flexformer {

struct TransformerOptions {
  Index dim = 128, layers = 4;
  Index ffn = 0;      // inner size of the MLP; 0: 4 dim
  float dropout = 0;  // of what each branch adds to the stream, and of the embeddings
  AttentionOptions attention = {};
};

// One state per layer.
struct DecodeState {
  std::vector<AttentionState> layers;

  Index length() const { return layers.empty() ? 0 : layers[0].length; }  // tokens taken in
  Index bytes() const;
};

// h += attention(norm1(h));  h += mlp(norm2(h))
class Block {
 public:
  Block(const Scope& scope, const TransformerOptions& options, const Initialisation& init);

  Var forward(const Var& h, const AttentionMask& mask, const Pass& pass) const;  // [B,T,C] -> [B,T,C]
  Var step(const Var& h, AttentionState& state) const;                           // [B,1,C] -> [B,1,C]

  LayerNorm norm1;
  MultiHeadAttention attention;
  LayerNorm norm2;
  Mlp mlp;

 private:
  float dropout_;
};

// norm(block(.. block(h)))
class Transformer {
 public:
  Transformer(const Scope& scope, const TransformerOptions& options, const Initialisation& init);

  Var forward(const Var& h, const AttentionMask& mask, const Pass& pass) const;  // [B,T,C] -> [B,T,C]
  // One more token of the causal model: what forward() gives at its position. An empty state starts a sequence.
  Var step(const Var& h, DecodeState& state) const;  // [B,1,C] -> [B,1,C]

  std::vector<Block> blocks;
  LayerNorm norm;

 private:
  static std::vector<Block> make_blocks(const Scope& scope, const TransformerOptions& options,
                                        const Initialisation& init);
};

}  // namespace flexformer
