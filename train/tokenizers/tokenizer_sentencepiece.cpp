#include "train/tokenizers/tokenizer_sentencepiece.h"

#include <algorithm>
#include <charconv>
#include <cmath>

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

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceVocabulary vocabulary, bool lowercase, bool parse_specials,
                                               const std::string& source)
    : Tokenizer(texts_of(vocabulary.pieces, vocabulary.special_ids), vocabulary.special_ids, lowercase),
      scores_(std::move(vocabulary.scores)),
      parse_specials_(parse_specials) {
  byte_ids_.fill(-1);
  std::vector<ScoredMerges::Piece> pieces;
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    const std::string& piece = vocabulary.pieces[std::size_t(id)];
    if (!std::isfinite(scores_[std::size_t(id)])) fail(source, ": the score of ", quote(piece), " is not a number");
    if (is_special(id)) continue;
    const int byte = byte_of(piece);
    if (byte >= 0)
      byte_ids_[std::size_t(byte)] = id;
    else
      pieces.push_back({token(id), scores_[std::size_t(id)], id});
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] < 0)
      fail(source, ": the token ", byte_piece(byte),
           " is missing, so not every text has tokens; only vocabularies with ", "byte fallback can be read");
  merges_ = std::make_unique<ScoredMerges>(pieces, byte_ids_);
  start_ = special_id("<s>");
  if (parse_specials_)
    for (const std::int32_t id : special_ids_) longest_special_ = std::max(longest_special_, token(id).size());
}

std::string SentencePieceTokenizer::piece(std::int32_t id) const {
  const std::string& bytes = token(id);
  const bool is_byte = bytes.size() == 1 && byte_ids_[static_cast<unsigned char>(bytes[0])] == id;
  return is_byte ? byte_piece(static_cast<unsigned char>(bytes[0])) : bytes;
}

std::size_t SentencePieceTokenizer::append_stretch(std::string_view text, bool begins, bool ends,
                                                   std::vector<std::int32_t>& ids) const {
  if (!begins || text.empty()) return merges_->append(text, ends, ids);
  const std::size_t before = ids.size(), done = merges_->append(std::string(" ").append(text), ends, ids);
  if (done > 1) return done - 1;
  ids.resize(before);  // the blank alone
  return 0;
}

std::size_t SentencePieceTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  const std::string_view text = part.text;
  const std::size_t before = ids.size(),
                    limit = text.size() - (part.last ? 0 : std::min(text.size(), longest_special_));
  const auto next_special = [&](std::size_t from) {
    return parse_specials_ ? find_special(text, from, limit) : std::pair(limit, -1);
  };
  if (part.first && !text.empty() && start_ >= 0 && next_special(0).first > 0) ids.push_back(start_);
  bool begins = part.first, follows_name = false;
  std::size_t from = 0, name = 0;
  for (;;) {
    const auto [at, special] = next_special(std::min(from, limit));
    const bool ends = special >= 0 || part.last;
    if (at > from) {
      const std::size_t done = append_stretch(text.substr(from, at - from), begins, ends, ids);
      from += done;
      if (done > 0) begins = follows_name = false;
    }
    if (special < 0) break;
    ids.push_back(special);
    name = from;
    from += token(special).size();
    begins = follows_name = true;
  }
  if (part.last || !(from == 0 || follows_name)) return from;
  // What follows a name, or the beginning, must be seen together with it.
  follows_name ? ids.pop_back() : ids.resize(before);
  return name;
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
  // Only at its beginning a text gets a blank, and it may be long ago that it began.
  std::vector<std::int32_t> again;
  encode_settled({.text = text}, again);
  bool starts = std::ranges::equal(ids.first(count), std::span(again).first(std::min(count, again.size())));
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool special = is_special(ids[i]);
    const bool added = i == 0 && starts && ids[i] == start_ && !(parse_specials_ && text.starts_with(token(start_)));
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
