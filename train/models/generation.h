// Text from a language model, token by token: sampling, and a generator that keeps going past the trained context.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "nn/decoder.h"

namespace flexformer {

struct SamplingOptions {
  double temperature = 0.8;  // logits are divided by it; 0: always the most probable token
  Index top_k = 0;           // only the k most probable tokens; 0: all
  double top_p = 1;          // only the most probable tokens that together reach this probability
};

// A token drawn from softmax(logits / temperature) as cut by top_k and top_p; `uniform` in [0, 1) decides. Tokens of
// equal probability are ordered by their number, so that the same seed gives the same text; where top_k or top_p ends
// among them, those of lower number are kept. Takes a time linear in the vocabulary. Throws Error for logits that are
// NaN or all infinite.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform);

// One text that a model continues.
class Generator {
 public:
  // Several generators may share a decoder, which must outlive them.
  Generator(Decoder& decoder, const SamplingOptions& options, std::uint64_t seed);
  // With a decoder of its own, of the model's own weights.
  Generator(const LanguageModel& model, const SamplingOptions& options, std::uint64_t seed);

  // Takes tokens in; those that begin a text go through the model in one pass. Learned positions and cosformer end at
  // the trained block: there the state starts anew from the last half of a block. Otherwise it goes on for ever.
  void feed(std::span<const std::int32_t> ids);
  void feed(std::int32_t id) { feed(std::span(&id, 1)); }
  // Draws the next token and takes it in. At least one token must have been fed.
  std::int32_t next();
  // The same for several texts of one decoder, side by side. Each gets the token that next() would give it alone.
  static std::vector<std::int32_t> next(std::span<Generator* const> texts);

  Index state_bytes() const { return state_.bytes(); }

 private:
  // Makes room for one more token where the model has an end.
  void restart_if_full();
  void keep(const Tensor& logits, Index row);

  std::unique_ptr<Decoder> own_;
  Decoder& decoder_;
  SamplingOptions options_;
  Random random_;
  DecodeState state_;
  std::vector<std::int32_t> recent_;  // the tokens of the current state, where they may be needed again
  std::vector<float> logits_;
};

}  // namespace flexformer
