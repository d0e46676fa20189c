// Joining goes through a queue of candidate pairs, best first. A pair whose parts have changed since it was queued is
// recognised by its text's length and thrown away.
#include "train/tokenizers/tokenizer_sentencepiece.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <queue>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"

namespace flexformer {
namespace {

// The byte that "<0x0A>" stands for, or -1.
int byte_of(std::string_view piece) {
  int byte = -1;
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  return error == std::errc() && end == piece.data() + 5 ? byte : -1;
}

std::string byte_piece(unsigned byte) {
  constexpr const char* digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
}

// The pieces as text: byte tokens become their byte.
std::vector<std::string> texts_of(std::vector<std::string> pieces, const std::vector<std::int32_t>& special_ids) {
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const int byte = byte_of(pieces[id]);
    if (byte >= 0 && !std::ranges::binary_search(special_ids, std::int32_t(id)))
      pieces[id] = std::string(1, static_cast<char>(byte));
  }
  return pieces;
}

}  // namespace

// Two neighbours that make a piece: where the left one starts, and how long both are together.
struct SentencePieceTokenizer::Candidate {
  float score;
  std::size_t at, length;
  std::int32_t id;
  bool operator<(const Candidate& other) const { return score != other.score ? score < other.score : at > other.at; }
};

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceVocabulary vocabulary, bool lowercase, bool parse_specials,
                                               const std::string& source)
    : Tokenizer(texts_of(vocabulary.pieces, vocabulary.special_ids), vocabulary.special_ids, lowercase),
      scores_(std::move(vocabulary.scores)),
      parse_specials_(parse_specials) {
  byte_ids_.fill(-1);
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    const std::string& piece = vocabulary.pieces[std::size_t(id)];
    if (!std::isfinite(scores_[std::size_t(id)])) fail(source, ": the score of ", quote(piece), " is not a number");
    if (is_special(id)) continue;
    const int byte = byte_of(piece);
    if (byte >= 0)
      byte_ids_[std::size_t(byte)] = id;
    else
      ids_.emplace(token(id), id);
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] < 0)
      fail(source, ": the token ", byte_piece(byte),
           " is missing, so not every text has tokens; only vocabularies with ", "byte fallback can be read");
  start_ = special_id("<s>");
}

std::string SentencePieceTokenizer::piece(std::int32_t id) const {
  const std::string& bytes = token(id);
  const bool is_byte = bytes.size() == 1 && byte_ids_[static_cast<unsigned char>(bytes[0])] == id;
  return is_byte ? byte_piece(static_cast<unsigned char>(bytes[0])) : bytes;
}

std::int32_t SentencePieceTokenizer::piece_of(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

std::size_t SentencePieceTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  const std::string_view text = part.text;
  if (!part.last || text.empty()) return 0;
  const auto next_special = [&](std::size_t from) {
    return parse_specials_ ? find_special(text, from, text.size()) : std::pair(text.size(), -1);
  };
  if (start_ >= 0 && next_special(0).first > 0) ids.push_back(start_);
  for (std::size_t from = 0; from < text.size();) {
    const auto [at, special] = next_special(from);
    append_text(text.substr(from, at - from), ids);
    if (special >= 0) ids.push_back(special);
    from = at + (special >= 0 ? token(special).size() : 0);
  }
  return text.size();
}

void SentencePieceTokenizer::append_text(std::string_view given, std::vector<std::int32_t>& ids) const {
  if (given.empty()) return;
  std::string text(1, ' ');
  text += given;
  // Parts are known by where they start: their length (0: no part starts here), token, and the start of the one before.
  std::vector<std::size_t> length(text.size() + 1, 0), before(text.size() + 1, text.npos);
  std::vector<std::int32_t> token_at(text.size(), -1);
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::size_t at) {  // this part and the next
    const std::size_t next = at + length[at];
    if (next >= text.size() || token_at[at] < 0 || token_at[next] < 0) return;
    const std::size_t joined = length[at] + length[next];
    const std::int32_t id = piece_of(std::string_view(text).substr(at, joined));
    if (id >= 0) queue.push({scores_[std::size_t(id)], at, joined, id});
  };
  for (std::size_t at = 0; at < text.size(); at += length[at]) {
    length[at] = next_code_point(text, at).length;
    before[at + length[at]] = at;
    token_at[at] = piece_of(std::string_view(text).substr(at, length[at]));
  }
  for (std::size_t at = 0; at < text.size(); at += length[at]) consider(at);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const std::size_t middle = best.at + length[best.at], end = best.at + best.length;
    if (length[best.at] == 0 || middle >= end || middle + length[middle] != end) continue;
    length[middle] = 0;
    length[best.at] = best.length;
    token_at[best.at] = best.id;
    before[end] = best.at;
    if (before[best.at] != text.npos) consider(before[best.at]);
    consider(best.at);
  }
  for (std::size_t at = 0; at < text.size(); at += length[at]) {
    if (token_at[at] >= 0)
      ids.push_back(token_at[at]);
    else
      for (std::size_t i = at; i < at + length[at]; ++i) ids.push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
  }
}

std::string SentencePieceTokenizer::decode_next(std::int32_t previous, std::int32_t id) const {
  const std::string& bytes = token(id);
  const bool starts = previous < 0 || is_special(previous);
  if (previous < 0 && id == start_) return "";
  return starts && !is_special(id) && bytes.starts_with(' ') ? bytes.substr(1) : bytes;
}

std::int64_t SentencePieceTokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                                   std::size_t count) const {
  if (count >= ids.size()) return std::ssize(text);
  std::int64_t bytes = 0;
  bool starts = true;
  for (std::size_t i = 0; i < count; ++i) {
    const bool special = is_special(ids[i]);
    const bool added = i == 0 && ids[i] == start_ && !(parse_specials_ && text.starts_with(token(start_)));
    if (!added) bytes += std::ssize(token(ids[i])) - (starts && !special ? 1 : 0);  // without the blank in front
    starts = special;
  }
  return bytes;
}

void SentencePieceTokenizer::add_to_json(Json& json) const {
  if (parse_specials_) json["parse_specials"] = true;  // else left out: the hash of older files stays as it was
  json["pieces"] = Json::array();
  for (std::int32_t id = 0; id < vocab_size(); ++id)
    json["pieces"].push_back(is_special(id) ? Json() : json_bytes(piece(id)));
  json["scores"] = scores_;
}

std::unique_ptr<Tokenizer> SentencePieceTokenizer::from_json(const Json& json, const std::vector<std::string>& specials,
                                                             bool lowercase, const std::string& source) {
  SentencePieceVocabulary vocabulary;
  vocabulary.pieces = tokens_by_id(json, "pieces", specials, vocabulary.special_ids, source);
  const Json& scores = json_member(json, "scores", source);
  if (!scores.is_array() || scores.size() != vocabulary.pieces.size())
    fail(source, ": expected as many 'scores' as 'pieces', which are ", vocabulary.pieces.size());
  for (const Json& score : scores) vocabulary.scores.push_back(float(number_from_json(score, source)));
  const bool parse_specials = json.contains("parse_specials") && json_get<bool>(json, "parse_specials", source);
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), lowercase, parse_specials, source);
}

}  // namespace flexformer
