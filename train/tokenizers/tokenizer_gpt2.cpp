// Cutting texts as GPT-2 does, and its tokenizer. In its file tokens are listed by id, with null in the places of the
// special tokens.
#include "train/tokenizers/tokenizer_gpt2.h"

#include <algorithm>
#include <unordered_map>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"
#include "train/util/unicode.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

struct Unit {
  CharClass kind;
  std::size_t length;  // bytes
};

Unit unit_at(std::string_view text, std::size_t at) {
  static const std::array<CharClass, 128> ascii = [] {
    std::array<CharClass, 128> classes;
    for (std::uint32_t c = 0; c < 128; ++c) classes[c] = char_class(c);
    return classes;
  }();
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {ascii[byte], 1};
  const CodePoint unit = next_code_point(text, at);
  return {unit.valid ? char_class(unit.value) : CharClass::other, unit.length};
}

// The length of the 's, 't, 're, 've, 'm, 'll or 'd at the start of `text`, or 0.
std::size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  if (std::string_view("stmd").find(text[1]) != std::string_view::npos) return 2;
  const std::string_view ending = text.substr(1, 2);
  return ending == "re" || ending == "ve" || ending == "ll" ? 3 : 0;
}

}  // namespace

bool Gpt2Scanner::next(std::string_view& piece) {
  if (at_ == text_.size()) return false;
  const std::size_t start = at_;
  at_ += contraction(text_.substr(at_));
  if (at_ == start) take_run();
  piece = text_.substr(start, at_ - start);
  return true;
}

// Characters of one class, with one blank before them; or white space.
void Gpt2Scanner::take_run() {
  Unit unit = unit_at(text_, at_);
  if (text_[at_] == ' ' && at_ + 1 < text_.size()) {
    const Unit second = unit_at(text_, at_ + 1);
    if (second.kind != CharClass::space) ++at_, unit = second;
  }
  const CharClass kind = unit.kind;
  const std::size_t first = at_;
  std::size_t last = at_;  // where the last character of the run begins
  do {
    last = at_;
    at_ += unit.length;
  } while (at_ < text_.size() && (unit = unit_at(text_, at_)).kind == kind);
  // \s+(?!\S): the white space just before anything else is left for the next piece, unless it stands alone.
  if (kind == CharClass::space && at_ < text_.size() && last > first) at_ = last;
}

Gpt2Tokenizer::Gpt2Tokenizer(Gpt2Vocabulary vocabulary, bool lowercase, bool parse_specials, const std::string& source,
                             const MergePlace& place)
    : Tokenizer(std::move(vocabulary.tokens), std::move(vocabulary.special_ids), lowercase),
      merges_(std::move(vocabulary.merges)),
      parse_specials_(parse_specials) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::int32_t id = 0; id < vocab_size(); ++id)
    if (!is_special(id) && !ids.emplace(token(id), id).second)
      fail(source, ": the token ", quote(token(id)), " stands there twice");
  std::array<std::int32_t, 256> byte_ids;
  for (std::size_t byte = 0; byte < byte_ids.size(); ++byte) {
    const char bytes = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&bytes, 1));
    if (found == ids.end()) fail(source, ": no token stands for the byte ", byte, " alone, so not every text has ids");
    byte_ids[byte] = found->second;
  }
  std::vector<PairMerge> merges;
  for (const auto& [left, right] : merges_) {
    const auto found = ids.find(token(left) + token(right));
    if (found == ids.end())
      fail(place(merges.size()), ": the merge makes ", quote(token(left) + token(right)), ", which is not a token of ",
           source);
    merges.push_back({left, right, found->second});
  }
  cached_merges_ = std::make_unique<CachedMerges>(byte_ids, merges);
  for (const std::int32_t id : special_ids_)
    if (parse_specials_) longest_special_ = std::max(longest_special_, token(id).size());
}

// What lies between two special tokens is a text of its own, and what is behind the last one ends where the name of
// another may begin.
std::size_t Gpt2Tokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  const std::string_view text = part.text;
  const std::size_t unsettled = part.last ? 0 : longest_special_;
  std::size_t from = 0, end = text.size() - std::min(text.size(), unsettled);
  while (parse_specials_ && from < end) {
    const auto [at, special] = find_special(text, from, end);
    if (special < 0) break;
    Gpt2Scanner before(text.substr(from, at - from));
    cached_merges_->append(before, ids);
    ids.push_back(special);
    from = at + token(special).size();
  }
  const TextPart rest{.text = text.substr(from, std::max(end, from) - from), .last = part.last};
  PartScanner scanner(Gpt2Scanner(rest.text), rest);
  cached_merges_->append(scanner, ids);
  return from + scanner.done();
}

std::int64_t Gpt2Tokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                          std::size_t count) const {
  if (count >= ids.size()) return std::ssize(text);
  std::int64_t bytes = 0;
  for (const std::int32_t id : ids.first(count)) bytes += std::ssize(token(id));
  return bytes;
}

void Gpt2Tokenizer::add_to_json(Json& json) const {
  json["parse_specials"] = parse_specials_;
  json["tokens"] = Json::array();
  for (std::int32_t id = 0; id < vocab_size(); ++id)
    json["tokens"].push_back(is_special(id) ? Json() : json_bytes(token(id)));
  json["merges"] = Json::array();
  for (const auto& [left, right] : merges_) json["merges"].push_back({left, right});
}

std::unique_ptr<Tokenizer> Gpt2Tokenizer::from_json(const Json& json, const std::vector<std::string>& specials,
                                                    bool lowercase, const std::string& source) {
  Gpt2Vocabulary vocabulary;
  vocabulary.tokens = tokens_by_id(json, "tokens", specials, vocabulary.special_ids, source);
  const Json& merges = json_member(json, "merges", source);
  if (!merges.is_array()) fail(source, ": expected an array of merges, found ", merges.type_name());
  const auto is_id = [&](const Json& id) { return id.is_number_integer() && id >= 0 && id < vocabulary.tokens.size(); };
  for (const Json& element : merges) {
    if (!element.is_array() || element.size() != 2 || !is_id(element[0]) || !is_id(element[1]))
      fail(source, ": merge ", vocabulary.merges.size(), " is not a pair of ids: ", quote(dump_json(element)));
    vocabulary.merges.emplace_back(element[0].get<std::int32_t>(), element[1].get<std::int32_t>());
  }
  const bool parse_specials = json_get<bool>(json, "parse_specials", source);
  return std::make_unique<Gpt2Tokenizer>(std::move(vocabulary), lowercase, parse_specials, source,
                                         [&](std::size_t n) { return text(source, ": merge ", n); });
}

}  // namespace flexformer
