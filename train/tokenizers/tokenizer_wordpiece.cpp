// A stretch is cut into words at blanks and around marks, and each word into pieces.
#include "train/tokenizers/tokenizer_wordpiece.h"

#include <algorithm>

#include "tensor/error.h"
#include "train/util/unicode.h"

namespace flexformer {
namespace {

constexpr std::size_t max_word = 100;  // characters; longer words are "[UNK]"

// Symbols of ASCII count as marks even where Unicode does not call them punctuation, "$" and "^" for example.
bool is_mark(std::uint32_t c) {
  const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  return c < 0x80 ? c > ' ' && c < 0x7F && !letter_or_digit : bert_class(c) == BertClass::punctuation;
}

bool is_tail(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(const std::vector<std::string>& pieces, std::vector<std::int32_t> special_ids,
                                       TextRules rules, const std::string& source)
    : PublishedTokenizer(pieces, std::move(special_ids), false, std::move(rules), source), is_inner_(pieces.size(), 0) {
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    if (is_special(id)) continue;
    std::string& text = tokens_[std::size_t(id)];
    const bool inner = text.starts_with("##") && text.size() > 2;
    if (inner) text.erase(0, 2);
    is_inner_[std::size_t(id)] = inner;
    if (!(inner ? inner_ : starts_).emplace(text, id).second && !is_added(id))
      fail(source, ": the token ", quote(piece(id)), " stands there twice");
  }
  if (unknown_id() < 0) fail(source, ": the token '[UNK]' is missing");
}

std::string WordPieceTokenizer::piece(std::int32_t id) const {
  return (is_inner_[std::size_t(id)] ? "##" : "") + token(id);
}

void WordPieceTokenizer::cut_word(std::string_view text, std::size_t begin, std::size_t end,
                                  std::vector<Cut>& cuts) const {
  const std::size_t before = cuts.size();
  const std::string_view word = text.substr(begin, end - begin);
  const auto characters = std::size_t(std::ranges::count_if(word, [](char byte) { return !is_tail(byte); }));
  for (std::size_t at = 0, stop; at < word.size() && characters <= max_word; at = stop) {
    const Ids& ids = at == 0 ? starts_ : inner_;
    auto found = ids.end();
    for (stop = word.size(); stop > at; --stop) {
      if (stop < word.size() && is_tail(word[stop])) continue;
      if ((found = ids.find(word.substr(at, stop - at))) != ids.end()) break;
    }
    if (found == ids.end()) break;
    cuts.push_back({found->second, begin + stop});
  }
  if (cuts.size() > before && cuts.back().end == end) return;
  cuts.resize(before);
  cuts.push_back({unknown_id(), end});
}

std::vector<WordPieceTokenizer::Cut> WordPieceTokenizer::cut(std::string_view text) const {
  std::vector<Cut> cuts;
  std::size_t begin = 0;
  const auto finish = [&](std::size_t end) {
    if (end > begin) cut_word(text, begin, end, cuts);
  };
  for (std::size_t at = 0, next; at < text.size(); at = next) {
    const CodePoint unit = next_code_point(text, at);
    next = at + unit.length;
    const bool blank = unit.valid && char_class(unit.value) == CharClass::space;
    if (!blank && !(unit.valid && is_mark(unit.value))) continue;
    finish(at);
    begin = at;
    if (!blank) finish(next);
    begin = next;
  }
  finish(text.size());
  return cuts;
}

std::size_t WordPieceTokenizer::append_tokens(const Stretch& stretch, std::vector<std::int32_t>& ids) const {
  // No word reaches over a blank.
  const std::size_t blank = stretch.text.find_last_of(" \n");
  const std::size_t end = stretch.last ? stretch.text.size() : blank == stretch.text.npos ? 0 : blank + 1;
  for (const Cut& piece : cut(stretch.text.substr(0, end))) ids.push_back(piece.id);
  return end;
}

std::vector<std::size_t> WordPieceTokenizer::ends_of(const Stretch& stretch, std::span<const std::int32_t> ids) const {
  std::vector<std::size_t> ends;
  for (const Cut& piece : cut(stretch.text))
    if (ends.size() < ids.size()) ends.push_back(piece.end);
  return ends;
}

bool WordPieceTokenizer::space_between(std::int32_t, std::int32_t right) const {
  return !is_inner_[std::size_t(right)];
}

void WordPieceTokenizer::add_to_json(Json& json) const {
  const bool fold = rules_.normalizer.has(TextNormalizer::Step::strip_accents);
  json["fold"] = fold;
  json["pieces"] = Json::array();
  for (std::int32_t id = 0; id < vocab_size(); ++id)
    json["pieces"].push_back(is_special(id) ? Json() : json_bytes(piece(id)));
  add_rules_to_json(json);
  if (rules_.normalizer == TextNormalizer::bert(true, true, fold, fold)) json.erase("normalizer");
  if (rules_.normalizer.empty()) json["normalizer"] = Json::array();
  if (rules_.parse_specials) json["parse_specials"] = true;
}

std::unique_ptr<Tokenizer> WordPieceTokenizer::from_json(const Json& json, const std::vector<std::string>& specials,
                                                         bool, const std::string& source) {
  std::vector<std::int32_t> special_ids;
  const std::vector<std::string> pieces = tokens_by_id(json, "pieces", specials, special_ids, source);
  TextRules rules = rules_from_json(json, std::ssize(pieces), source);
  const bool fold = json_get<bool>(json, "fold", source);
  if (!json.contains("normalizer")) rules.normalizer = TextNormalizer::bert(true, true, fold, fold);
  return std::make_unique<WordPieceTokenizer>(pieces, std::move(special_ids), std::move(rules), source);
}

}  // namespace flexformer
