// A text as tokens, with what training needs to know of its bytes. All figures come from one pass over the text and a
// second one over its last tenth, and are small: a token file keeps them, so that the text need not be read again.
#pragma once
#include <functional>

#include "train/text/token_row.h"
#include "train/tokenizers/tokenizer.h"
#include "train/util/files.h"

namespace flexformer {

constexpr Index min_validation_tokens = 2;  // the first one is only read

struct TextFigures {
  Index tokens = 0, bytes = 0;
  Index first_bytes = 0;           // that the first token covers
  std::uint64_t hash = kFnvStart;  // fnv1a64() of the text
  // The same if the last tenth of the tokens is split off; kept = tokens if the text is too short to share.
  Index kept = 0, kept_bytes = 0;
  Index rest_first_bytes = 0;  // that the first token behind covers
  std::uint64_t kept_hash = kFnvStart, rest_hash = kFnvStart;
};

struct TokenizedText {
  TokenRow tokens;
  TextFigures figures;
};

// Tokenises a text piece by piece; `sink` gets the ids, in order. The byte counts add up to the size of the text.
// Throws Error, naming the text, for what the tokenizer refuses, and Stopped as for_each_part() does.
TextFigures tokenize(TextSource& text, const Tokenizer& tokenizer, const PieceReading& reading,
                     const std::function<void(std::span<const std::int32_t>)>& sink);
// The same into memory.
TokenizedText tokenize(TextSource& text, const Tokenizer& tokenizer, const PieceReading& reading = {});

}  // namespace flexformer
