// Pre-norm blocks, and the older post-norm ones (Xiong et al., "On layer normalization in the transformer
// architecture", 2020).
#include "nn/transformer.h"

namespace flexformer {

namespace {
AttentionOptions attention_of(const TransformerOptions& options) {
  AttentionOptions attention = options.attention;
  attention.biases = options.biases;
  return attention;
}
}  // namespace

Block::Block(const Scope& scope, const TransformerOptions& options, const Initialisation& init)
    : norm1(scope.sub("norm1"), options.dim, options.norm),
      attention(scope.sub("attn"), options.dim, attention_of(options), init),
      norm2(scope.sub("norm2"), options.dim, options.norm),
      mlp(scope.sub("mlp"), options.dim, options.ffn > 0 ? options.ffn : 4 * options.dim, init.matrix, init.residual,
          {options.activation, options.biases}),
      dropout_(options.dropout),
      norm_first_(options.norm_first) {}

Var Block::forward(const Var& x, const AttentionMask& mask, const Pass& pass) const {
  if (!norm_first_) {
    const Var h =
        norm1.forward(add_layer(x, dropout_, pass, [&](const Var& r) { return attention.forward(x, mask, r, pass); }));
    return norm2.forward(add_layer(h, dropout_, pass, [&](const Var& r) { return mlp.forward(h, r); }));
  }
  const Var h =
      add_layer(x, dropout_, pass, [&](const Var& r) { return attention.forward(norm1.forward(x), mask, r, pass); });
  return add_layer(h, dropout_, pass, [&](const Var& r) { return mlp.forward(norm2.forward(h), r); });
}

std::vector<Block> Transformer::make_blocks(const Scope& scope, const TransformerOptions& options,
                                            const Initialisation& init) {
  std::vector<Block> blocks;
  for (Index i = 0; i < options.layers; ++i) blocks.emplace_back(scope.sub(text("blocks.", i)), options, init);
  return blocks;
}

Transformer::Transformer(const Scope& scope, const TransformerOptions& options, const Initialisation& init)
    : blocks(make_blocks(scope, options, init)) {
  if (options.norm_first) norm.emplace(scope.sub("norm"), options.dim, options.norm);
}

Var Transformer::forward(const Var& x, const AttentionMask& mask, const Pass& pass) const {
  Var h = x;
  for (const Block& block : blocks) h = block.forward(h, mask, pass);
  return finish(h);
}

}  // namespace flexformer
