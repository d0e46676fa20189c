// What every tokenizer must keep to when a text comes in pieces.
#pragma once
#include <doctest/doctest.h>

#include "tensor/random.h"
#include "train/text/tokenized_text.h"
#include "train/util/utf8.h"

namespace flexformer::tests {

// Words, runs of white space of all kinds, marks, emoji, parts of characters and stray bytes, in any order.
inline std::string hostile_text(Random& random, std::size_t size) {
  static const char* const parts[] = {" ",
                                      "  ",
                                      "\n",
                                      "\n\n",
                                      "\r\n",
                                      "\t",
                                      "      ",
                                      "\xC2\xA0",
                                      "\xE3\x80\x80",
                                      "the",
                                      "Don't",
                                      "well-known",
                                      "1,000.5",
                                      "x_1",
                                      "É",
                                      "naïve",
                                      "'s",
                                      "'",
                                      "''re",
                                      "<unk>",
                                      "<un",
                                      "...",
                                      "\xF0\x9F\x98\x80",
                                      "\xF0\x9F",
                                      "\x80\x80\x80\x80\x80",
                                      "\xFF",
                                      "\xE2\x80\x94",
                                      "<|endoftext|>",
                                      "<|endof",
                                      "-",
                                      "日本語。",
                                      "a",
                                      "Abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuv"};
  std::string out;
  while (out.size() < size) out += parts[random.below(std::size(parts))];
  return out;
}

// Pieces of any size give the ids and the figures of the whole text.
inline void check_pieces(const Tokenizer& tokenizer, const std::string& text) {
  CAPTURE(tokenizer.name());
  CAPTURE(printable(text));
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  const auto covered = [&](std::size_t count) { return tokenizer.covered_bytes(text, ids, count); };
  const std::size_t share = ids.size() / 10 >= 2 ? ids.size() / 10 : 0, kept = ids.size() - share;
  const auto boundary = std::size_t(covered(kept));
  for (Index size : {1, 2, 3, 7, 16, 17, 40, 1000}) {
    CAPTURE(size);
    TextSource source(text, "text");
    const auto [tokens, figures] = tokenize(source, tokenizer, {.piece_bytes = size});
    CHECK(tokens.ids() == ids);
    CHECK(figures.tokens == std::ssize(ids));
    CHECK(figures.bytes == std::ssize(text));
    CHECK(figures.hash == fnv1a64(text));
    CHECK(figures.kept == Index(kept));
    CHECK(figures.kept_bytes == Index(boundary));
    CHECK(figures.kept_hash == fnv1a64(text.substr(0, boundary)));
    if (!ids.empty()) CHECK(figures.first_bytes == covered(1));
    if (share == 0) continue;
    CHECK(figures.rest_first_bytes == covered(kept + 1) - Index(boundary));
    CHECK(figures.rest_hash == fnv1a64(text.substr(boundary)));
  }
}

}  // namespace flexformer::tests
