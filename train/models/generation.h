// Text from a language model, token by token: sampling, and a generator that keeps going past the trained context.
#pragma once
#include <span>
#include <vector>

#include "nn/language_model.h"

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

class Generator {
 public:
  Generator(const LanguageModel& model, const SamplingOptions& options, std::uint64_t seed);

  // Takes a token in. Learned positions and cosformer end at the trained block: there the state starts anew from the
  // last half of a block. Otherwise it goes on for ever.
  void feed(std::int32_t id);
  // Draws the next token and takes it in. At least one token must have been fed.
  std::int32_t next();

  Index state_bytes() const { return state_.bytes(); }

 private:
  void step(std::int32_t id);

  const LanguageModel& model_;
  SamplingOptions options_;
  Random random_;
  DecodeState state_;
  std::vector<std::int32_t> recent_;  // the tokens of the current state, where they may be needed again
  std::vector<float> logits_;
};

}  // namespace flexformer
