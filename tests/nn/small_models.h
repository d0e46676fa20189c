// Small models and inputs for the tests of nn/.
#pragma once
#include <cmath>
#include <string>

#include "nn/classifier.h"
#include "nn/language_model.h"

namespace flexformer::tests {

inline constexpr Index vocabulary = 17;

inline LanguageModelOptions small(const std::string& kind) {
  LanguageModelOptions options{.vocabulary = vocabulary, .block = 16};
  options.transformer = {.dim = 16, .layers = 2, .ffn = 32, .dropout = 0, .attention = {.kind = kind, .heads = 2}};
  return options;
}

// Shapes of published models; two heads of queries share keys and values in the first.
inline void like_llama(LanguageModelOptions& options) {
  options.transformer.norm = {NormKind::rms, 1e-6f};
  options.transformer.activation = Activation::swiglu;
  options.transformer.biases = options.head_bias = false;
  options.transformer.attention.kv_heads = 1;
  options.transformer.attention.rope_theta = 500;
}
inline void like_bert(LanguageModelOptions& options) {
  options.transformer.norm_first = false;
  options.transformer.norm.eps = 1e-12f;
  options.transformer.activation = Activation::gelu_erf;
  options.norm_embeddings = options.tie = true;
}

inline ClassifierOptions small_classifier(const std::string& kind) {
  ClassifierOptions options{.vocabulary = vocabulary, .classes = 3, .max_length = 16};
  options.transformer = small(kind).transformer;
  return options;
}

inline Tensor random_ids(Index B, Index T, std::uint64_t seed = 1) {
  Random random(seed);
  Tensor ids = Tensor::empty({B, T}, DType::i32);
  for (Index i = 0; i < B * T; ++i) ids.ints()[i] = std::int32_t(1 + random.below(vocabulary - 1));
  return ids;
}

inline bool same_numbers(const Tensor& a, const Tensor& b) { return a.to_vector() == b.to_vector(); }

// Root mean square of rows [from, to) of a matrix.
inline double rms(const Tensor& x, Index from, Index to) {
  const Index C = x.numel() / x.size(0);
  double sum = 0;
  for (Index i = from * C; i < to * C; ++i) sum += double(x.data()[i]) * x.data()[i];
  return std::sqrt(sum / double((to - from) * C));
}
inline double rms(const Tensor& x) { return rms(x, 0, x.size(0)); }

}  // namespace flexformer::tests
