// The language model; its members are built in the order of parameters().
#include "nn/language_model.h"

namespace flexformer {
namespace {

LanguageModelOptions resolved(LanguageModelOptions options) {
  AttentionOptions& attention = options.transformer.attention;
  if (attention.floor < 0) attention.floor = attention_kind(attention.kind).language_floor;
  attention.rope = options.position == Position::rope;
  attention.max_length = options.block;
  return options;
}

Initialisation start_of(const LanguageModelOptions& options) {
  return Initialisation::gpt(options.transformer.dim, options.transformer.layers);
}

InputOptions input_of(const LanguageModelOptions& options) {
  return {.vocabulary = options.vocabulary,
          .adaptive = options.adaptive,
          .block = options.block,
          .position = options.position,
          .norm_embeddings = options.norm_embeddings,
          .norm = options.transformer.norm,
          .sinusoidal_start = options.sinusoidal_start,
          .dropout = options.transformer.dropout};
}

Linear make_head(const Scope& scope, const LanguageModelOptions& options, const Var& token) {
  if (!options.adaptive.cutoffs.empty()) return {};
  if (options.tie) return Linear(scope, token, options.head_bias);
  return Linear(scope, options.transformer.dim, options.vocabulary, start_of(options).matrix, options.head_bias);
}

std::optional<AdaptiveSoftmax> make_adaptive(const Scope& scope, const LanguageModelOptions& options,
                                             const InputEmbedding& input) {
  if (options.adaptive.cutoffs.empty()) return {};
  return AdaptiveSoftmax(scope, options.vocabulary, options.transformer.dim, options.adaptive, start_of(options).matrix,
                         options.tie ? &*input.adaptive : nullptr);
}

}  // namespace

LanguageModel::LanguageModel(const LanguageModelOptions& options, Random& random, Device device)
    : options_(resolved(options)),
      parameters_(device),
      input_(Scope(parameters_, random), options.transformer.dim, input_of(options), start_of(options)),
      transformer_(Scope(parameters_, random), options_.transformer, start_of(options)),
      head_(make_head(Scope(parameters_, random).sub("head"), options, input_.token)),
      adaptive_(make_adaptive(Scope(parameters_, random).sub("head"), options, input_)) {}

bool LanguageModel::has_end() const {
  return options_.position == Position::learned || attention_kind(options_.transformer.attention.kind).has_end;
}

Var LanguageModel::hidden(const Tensor& ids, const Pass& pass) const {
  return transformer_.forward(input_.forward(ids, 0, pass), {.causal = true, .key_mask = {}}, pass);
}

Var LanguageModel::logits(const Var& h) const {
  const Var x = cast(h, DType::f32);  // probabilities are wanted in float
  return adaptive_ ? adaptive_->log_probabilities(x) : head_.forward(x);
}

Var LanguageModel::forward(const Tensor& ids, const Pass& pass) const { return logits(hidden(ids, pass)); }

Var LanguageModel::loss(const Tensor& ids, const Tensor& targets, const Pass& pass,
                        const CrossEntropyOptions& options) const {
  const Var h = hidden(ids, pass);
  if (adaptive_) return adaptive_->loss(h, targets, options);
  return linear_cross_entropy(h, head_.weight, head_.bias, targets, options);
}

}  // namespace flexformer
