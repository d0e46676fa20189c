// The model.* keys of the trainers, and the models they describe.
#pragma once
#include "nn/classifier.h"
#include "nn/language_model.h"
#include "train/training/run_folder.h"

namespace flexformer {

// Declares the keys that both trainers have.
void add_model_options(Options& options, Index layers, Index heads, Index dim, Index ffn, double dropout);

// Those that only train_lm, and only train_classifier has.
void add_language_model_options(Options& options);
void add_classifier_model_options(Options& options);

// The longest sequence a model of these options is made for: model.position_rows, or train.block or data.max_length.
// Throws UsageError if the context is longer than the learned position table.
Index longest_context(const Options& options);

// For a run that starts from another's weights: keys that were not given and shape the model (model.*, the context
// length, data.frame) take that run's values.
void inherit_model_options(Options& options, const RunFolder& initial);

// Writes the defaults that depend on the kind of attention (model.floor, model.tie_qk_init, train.kernel_lr) into the
// options, so that config.json holds what is used. `language`: language models keep a larger floor and learn their
// kernels at 5 times the base rate (docs/math.md, "The floor").
void settle_model_options(Options& options, bool language);

// Throws UsageError where sizes do not fit each other, naming the keys.
LanguageModelOptions language_model_options(const Options& options, Index vocabulary);
ClassifierOptions classifier_options(const Options& options, const Tokenizer& tokenizer, Index classes);

// Numbers in the token table, or in those of all bands.
double token_parameters(const LanguageModelOptions& options);
double token_parameters(const ClassifierOptions& options);

// How many numbers a model of these options has at least: the matrices of its blocks, and what its tokens and, where
// they are learned, its positions begin as.
template <class ModelOptions> double least_parameters(const ModelOptions& m, Index positions) {
  const TransformerOptions& t = m.transformer;
  const double dim = double(t.dim), ffn = double(t.ffn ? t.ffn : 4 * t.dim);
  const double kv_share = t.attention.kv_heads ? double(t.attention.kv_heads) / double(t.attention.heads) : 1;
  return double(t.layers) * ((2 + 2 * kv_share) * dim * dim + 2 * dim * ffn) + token_parameters(m) +
         dim * double(m.position == Position::learned ? positions : 0);
}

// Bytes that training takes at its peak, roughly: parameters with gradient and two moments, and the activations of one
// micro-batch of `tokens` tokens, `outputs` of which reach the output layer of `width` columns.
Index training_bytes(const TransformerOptions& options, Index parameters, Index tokens, Index outputs, Index width);
// Rows of logits that a language model has at a time: see linear_cross_entropy().
Index logit_rows(Index tokens, Index width);
// What the system could still give this process; the largest number where that cannot be found out.
Index available_bytes();
// Throws Error, naming the keys to lower, if `needed` bytes are more than there are.
void check_memory(Index needed, Device device);

}  // namespace flexformer
