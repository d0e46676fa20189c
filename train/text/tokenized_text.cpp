// Where a token ends in bytes only the tokenizer can say, and it has to see the tokens before it. So the first pass
// marks every piece, and a place within a piece is found by tokenising that piece again.
#include "train/text/tokenized_text.h"

#include <algorithm>

#include "tensor/error.h"

namespace flexformer {
namespace {

constexpr Index validation_share = 10;  // one token in ten

// Where a piece begins.
struct Mark {
  Index tokens, bytes;  // before it
  std::uint64_t hash;   // of those bytes
};

std::uint64_t hash_bytes(TextSource& text, Index from, Index end, std::uint64_t hash, Index piece_bytes) {
  for (; from < end; from += std::min(piece_bytes, end - from))
    hash = fnv1a64(text.view(from, std::min(piece_bytes, end - from)), hash);
  return hash;
}

// The piece that holds token number `count`, counted from 1.
const Mark& piece_of(const std::vector<Mark>& marks, Index count) {
  return *std::prev(std::ranges::lower_bound(marks, count, {}, &Mark::tokens));
}

// Bytes that the first `count` tokens of the text cover, count > 0.
Index covered_bytes(TextSource& text, const Tokenizer& tokenizer, const std::vector<Mark>& marks, Index count) {
  if (count >= marks.back().tokens) return text.size();
  const Mark* piece = &piece_of(marks, count);
  const Index end = piece[1].bytes;
  if (count == piece[1].tokens) return end;
  TextPart part;
  std::vector<std::int32_t> ids;
  // What decides where a token ends is near; only where marks are heaped upon a character is it farther away.
  for (Index ahead = Index(tokenizer.lookahead()); Index(ids.size()) <= count - piece->tokens; ahead *= 2) {
    const Index seen = end + ahead;
    part = {
        .text = text.view(piece->bytes, seen - piece->bytes), .last = seen >= text.size(), .first = piece->bytes == 0};
    ids.clear();
    tokenizer.encode_part(part, ids);
    if (part.last) break;
  }
  return piece->bytes + tokenizer.covered_bytes(part.text, ids, std::size_t(count - piece->tokens));
}

}  // namespace

TextFigures tokenize(TextSource& text, const Tokenizer& tokenizer, const PieceReading& reading,
                     const std::function<void(std::span<const std::int32_t>)>& sink) {
  TextFigures figures;
  std::vector<Mark> marks = {{0, 0, kFnvStart}};  // the last one is the end of the text
  std::vector<std::int32_t> ids;
  for_each_part(text, reading, "tokenising", [&](const TextPart& part) {
    ids.clear();
    std::size_t done = 0;
    try {
      done = tokenizer.encode_part(part, ids);
    } catch (const Error& error) {
      fail(text.name(), ": ", error.what());
    }
    if (done == 0) return done;
    const Mark& before = marks.back();
    marks.push_back(
        {before.tokens + std::ssize(ids), before.bytes + Index(done), fnv1a64(part.text.substr(0, done), before.hash)});
    sink(ids);
    return done;
  });
  text.check_unchanged();
  figures.tokens = figures.kept = marks.back().tokens;
  figures.bytes = figures.kept_bytes = text.size();
  figures.hash = figures.kept_hash = marks.back().hash;
  if (figures.tokens == 0) return figures;
  figures.first_bytes = covered_bytes(text, tokenizer, marks, 1);
  const Index share = figures.tokens / validation_share;
  if (share < min_validation_tokens) return figures;
  figures.kept -= share;
  figures.kept_bytes = covered_bytes(text, tokenizer, marks, figures.kept);
  figures.rest_first_bytes = covered_bytes(text, tokenizer, marks, figures.kept + 1) - figures.kept_bytes;
  const Mark& piece = piece_of(marks, figures.kept);
  figures.kept_hash = hash_bytes(text, piece.bytes, figures.kept_bytes, piece.hash, reading.piece_bytes);
  figures.rest_hash = hash_bytes(text, figures.kept_bytes, figures.bytes, kFnvStart, reading.piece_bytes);
  return figures;
}

TokenizedText tokenize(TextSource& text, const Tokenizer& tokenizer, const PieceReading& reading) {
  const auto bytes = std::make_shared<std::string>();
  TokenizedText result;
  const Index vocab = tokenizer.vocab_size();
  result.figures = tokenize(text, tokenizer, reading,
                            [&](std::span<const std::int32_t> ids) { TokenRow::append_bytes(ids, vocab, *bytes); });
  result.tokens = {bytes, bytes->data(), std::size_t(result.figures.tokens), vocab, text.name()};
  return result;
}

}  // namespace flexformer
