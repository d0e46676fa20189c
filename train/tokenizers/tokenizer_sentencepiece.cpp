#include "train/tokenizers/tokenizer_sentencepiece.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"

namespace flexformer {
namespace {

constexpr std::array<const char*, 3> prefix_names = {"always", "first", "never"};

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

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceVocabulary vocabulary, bool lowercase,
                                               const std::string& source)
    : PublishedTokenizer(texts_of(vocabulary.pieces, vocabulary.special_ids), vocabulary.special_ids, lowercase,
                         vocabulary.rules, source),
      given_(std::move(vocabulary)) {
  byte_ids_.fill(-1);
  std::vector<ScoredMerges::Piece> pieces;
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    const std::string& piece = given_.pieces[std::size_t(id)];
    if (!std::isfinite(scores()[std::size_t(id)])) fail(source, ": the score of ", quote(piece), " is not a number");
    if (is_special(id) || is_added(id)) continue;
    const int byte = byte_of(piece);
    if (byte >= 0) {
      byte_ids_[std::size_t(byte)] = id;
      continue;
    }
    ids_.emplace(token(id), id);
    pieces.push_back({token(id), scores()[std::size_t(id)], id});
    blanks_begin_pieces_ = blanks_begin_pieces_ && token(id).find(' ', 1) == std::string::npos;
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] < 0)
      fail(source, ": the token ", byte_piece(byte),
           " is missing, so not every text has tokens; only vocabularies with ", "byte fallback can be read");
  start_ = special_id("<s>");
  std::vector<PairMerge> merges;
  for (const auto& [left, right] : given_.merges) {
    const std::int32_t made = piece_of(token(left) + token(right));
    if (made < 0)
      fail(source, ": merge ", merges.size(), " makes ", quote(token(left) + token(right)), ", which is no token");
    merges.push_back({left, right, made});
  }
  if (merges.empty())
    merges_ = std::make_unique<ScoredMerges>(pieces, byte_ids_);
  else
    pairs_ = std::make_unique<PairMerges>(byte_ids_, merges);
  given_.pieces.clear();
  given_.special_ids.clear();
  given_.rules = {};
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

bool SentencePieceTokenizer::gets_blank(const Stretch& stretch) const {
  if (given_.prefix == SentencePieceVocabulary::never || (given_.only_missing && stretch.text.starts_with(' ')))
    return false;
  return stretch.begins || (stretch.follows_name && given_.prefix == SentencePieceVocabulary::always);
}

std::size_t SentencePieceTokenizer::append_tokens(const Stretch& stretch, std::vector<std::int32_t>& ids) const {
  if (stretch.text.empty()) return 0;
  const std::size_t before = ids.size(), added = gets_blank(stretch) ? 1 : 0;
  if (stretch.begins && start_ >= 0 && given_.adds_start) ids.push_back(start_);
  const std::string with_blank = added ? std::string(" ").append(stretch.text) : std::string();
  const std::string_view text = added ? with_blank : stretch.text;
  const std::size_t done = pairs_ ? append_merged(text, stretch.last, ids) : merges_->append(text, stretch.last, ids);
  if (done > added) return done - added;
  ids.resize(before);  // the blank alone
  return 0;
}

std::size_t SentencePieceTokenizer::append_merged(std::string_view text, bool ends,
                                                  std::vector<std::int32_t>& ids) const {
  if (!ends) {  // no merge reaches over a blank that follows something else, if blanks begin pieces
    std::size_t cut = text.size();
    while (cut > 0 && !(cut < text.size() && text[cut] == ' ' && text[cut - 1] != ' ')) --cut;
    text = text.substr(0, blanks_begin_pieces_ ? cut : 0);
  }
  std::vector<std::int32_t> symbols;
  for (std::size_t at = 0, length; at < text.size(); at += length) {
    length = next_code_point(text, at).length;
    const std::int32_t id = piece_of(text.substr(at, length));
    if (id >= 0) symbols.push_back(id);
    for (std::size_t i = at; id < 0 && i < at + length; ++i)
      symbols.push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
  }
  pairs_->append(symbols, ids);
  return text.size();
}

std::string SentencePieceTokenizer::decode_next(std::int32_t previous, std::int32_t id) const {
  const std::string& bytes = token(id);
  if (previous < 0 && id == start_) return "";
  const bool is_name = previous >= 0 && (is_special(previous) || is_added(previous));
  const bool starts = previous < 0 || (previous == start_ && given_.prefix == SentencePieceVocabulary::first) ||
                      (is_name && given_.prefix == SentencePieceVocabulary::always);
  const bool has_blank = starts && given_.prefix != SentencePieceVocabulary::never && !is_special(id) &&
                         !is_added(id) && bytes.starts_with(' ');
  return has_blank ? bytes.substr(1) : bytes;
}

std::vector<std::size_t> SentencePieceTokenizer::ends_of(const Stretch& stretch,
                                                         std::span<const std::int32_t> ids) const {
  std::vector<std::size_t> ends;
  const std::size_t blank = gets_blank(stretch) ? 1 : 0;
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    if (!(ends.empty() && stretch.begins && id == start_ && given_.adds_start)) at += token(id).size();
    ends.push_back(at - std::min(at, blank));
  }
  return ends;
}

void SentencePieceTokenizer::add_to_json(Json& json) const {
  if (rules_.parse_specials) json["parse_specials"] = true;  // else left out: the hash of older files stays as it was
  json["pieces"] = Json::array();
  for (std::int32_t id = 0; id < vocab_size(); ++id)
    json["pieces"].push_back(is_special(id) ? Json() : json_bytes(piece(id)));
  json["scores"] = scores();
  if (pairs_) json["merges"] = given_.merges;
  if (given_.prefix != SentencePieceVocabulary::always) json["prefix"] = prefix_names[given_.prefix];
  if (given_.only_missing) json["prefix_only_missing"] = true;
  if (!given_.adds_start) json["adds_start"] = false;
  add_rules_to_json(json);
}

std::unique_ptr<Tokenizer> SentencePieceTokenizer::from_json(const Json& json, const std::vector<std::string>& specials,
                                                             bool lowercase, const std::string& source) {
  SentencePieceVocabulary vocabulary;
  vocabulary.pieces = tokens_by_id(json, "pieces", specials, vocabulary.special_ids, source);
  const auto count = std::ssize(vocabulary.pieces);
  const Json& scores = json_member(json, "scores", source);
  if (!scores.is_array() || std::ssize(scores) != count)
    fail(source, ": expected as many 'scores' as 'pieces', which are ", count);
  for (const Json& score : scores) vocabulary.scores.push_back(float(number_from_json(score, source)));
  const auto flag = [&](const char* key, bool other) {
    return json.contains(key) ? json_get<bool>(json, key, source) : other;
  };
  const auto is_id = [&](const Json& id) { return id.is_number_integer() && id >= 0 && id < count; };
  for (const Json& pair : json.value("merges", Json::array())) {
    if (!pair.is_array() || pair.size() != 2 || !is_id(pair[0]) || !is_id(pair[1]))
      fail(source, ": a merge is not a pair of ids: ", quote(dump_json(pair)));
    vocabulary.merges.emplace_back(pair[0].get<std::int32_t>(), pair[1].get<std::int32_t>());
  }
  if (json.contains("prefix")) {
    const auto found = std::ranges::find(prefix_names, json_get<std::string>(json, "prefix", source));
    if (found == prefix_names.end()) fail(source, ": prefix = ", quote(dump_json(json["prefix"])), " is not known");
    vocabulary.prefix = SentencePieceVocabulary::Prefix(found - prefix_names.begin());
  }
  vocabulary.only_missing = flag("prefix_only_missing", false);
  vocabulary.adds_start = flag("adds_start", true);
  vocabulary.rules = rules_from_json(json, count, source);
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), lowercase, source);
}

}  // namespace flexformer
