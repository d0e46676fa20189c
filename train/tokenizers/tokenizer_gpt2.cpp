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

namespace {

// Gpt2Scanner between the numbers of a text, each of which is a piece, or each digit of it.
class DigitScanner {
 public:
  DigitScanner(std::string_view text, Digits digits) : text_(text), digits_(digits), words_({}) {}

  bool next(std::string_view& piece) {
    if (words_.next(piece)) return true;
    start_ += words_.position();
    words_ = Gpt2Scanner({});
    const std::size_t number = end_of(start_, true);
    if (number > start_) {
      const std::size_t end = digits_ == Digits::single ? start_ + unit_at(text_, start_).length : number;
      piece = text_.substr(start_, end - start_);
      start_ = end;
      return true;
    }
    words_ = Gpt2Scanner(text_.substr(start_, end_of(start_, false) - start_));
    return words_.next(piece);
  }
  std::size_t position() const { return start_ + words_.position(); }

 private:
  std::size_t end_of(std::size_t at, bool numbers) const {
    while (at < text_.size() && (unit_at(text_, at).kind == CharClass::number) == numbers)
      at += unit_at(text_, at).length;
    return at;
  }

  std::string_view text_;
  Digits digits_;
  std::size_t start_ = 0;  // of what words_ scans, or of what comes next
  Gpt2Scanner words_;
};

constexpr std::array<const char*, 3> digit_names = {"with_blank", "single", "run"};

}  // namespace

Gpt2Tokenizer::Gpt2Tokenizer(Gpt2Vocabulary vocabulary, bool lowercase, const std::string& source,
                             const MergePlace& place)
    : PublishedTokenizer(std::move(vocabulary.tokens), std::move(vocabulary.special_ids), lowercase,
                         std::move(vocabulary.rules), source),
      merges_(std::move(vocabulary.merges)),
      digits_(vocabulary.digits),
      prefix_space_(vocabulary.prefix_space) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (const bool added : {false, true})  // an added token may have the bytes of another
    for (std::int32_t id = 0; id < vocab_size(); ++id)
      if (!is_special(id) && is_added(id) == added && !ids.emplace(token(id), id).second && !added)
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
}

bool Gpt2Tokenizer::gets_blank(const Stretch& stretch) const {
  return prefix_space_ && (stretch.begins || stretch.follows_name) && !stretch.text.starts_with(' ');
}

std::size_t Gpt2Tokenizer::append_tokens(const Stretch& stretch, std::vector<std::int32_t>& ids) const {
  const std::string with_blank = gets_blank(stretch) ? " " + std::string(stretch.text) : std::string();
  const TextPart part{.text = with_blank.empty() ? stretch.text : with_blank, .last = stretch.last};
  std::size_t done = 0;
  const auto append = [&](auto scanner) {
    PartScanner pieces(std::move(scanner), part);
    cached_merges_->append(pieces, ids);
    done = pieces.done();
  };
  digits_ == Digits::with_blank ? append(Gpt2Scanner(part.text)) : append(DigitScanner(part.text, digits_));
  return done - std::min<std::size_t>(done, with_blank.empty() ? 0 : 1);
}

std::vector<std::size_t> Gpt2Tokenizer::ends_of(const Stretch& stretch, std::span<const std::int32_t> ids) const {
  std::vector<std::size_t> ends = PublishedTokenizer::ends_of(stretch, ids);
  if (!gets_blank(stretch)) return ends;
  std::size_t at = 0;
  for (std::size_t i = 0; i < ends.size(); ++i)
    ends[i] = std::min((at += token(ids[i]).size()) - 1, stretch.text.size());
  return ends;
}

std::string Gpt2Tokenizer::decode_next(std::int32_t previous, std::int32_t id) const {
  const std::string& bytes = token(id);
  const bool added = prefix_space_ && previous < 0 && !is_special(id) && bytes.starts_with(' ');
  return added ? bytes.substr(1) : bytes;
}

std::int64_t Gpt2Tokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                          std::size_t count) const {
  if (prefix_space_ || !rules_.normalizer.empty() || !rules_.added.empty())
    return PublishedTokenizer::covered_bytes(text, ids, count);
  if (count >= ids.size()) return std::ssize(text);
  std::int64_t bytes = 0;
  for (const std::int32_t id : ids.first(count)) bytes += std::ssize(token(id));
  return bytes;
}

void Gpt2Tokenizer::add_to_json(Json& json) const {
  json["parse_specials"] = rules_.parse_specials;
  json["tokens"] = Json::array();
  for (std::int32_t id = 0; id < vocab_size(); ++id)
    json["tokens"].push_back(is_special(id) ? Json() : json_bytes(token(id)));
  json["merges"] = Json::array();
  for (const auto& [left, right] : merges_) json["merges"].push_back({left, right});
  add_rules_to_json(json);
  if (digits_ != Digits::with_blank) json["digits"] = digit_names[std::size_t(digits_)];
  if (prefix_space_) json["prefix_space"] = true;
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
  json_get<bool>(json, "parse_specials", source);
  vocabulary.rules = rules_from_json(json, std::ssize(vocabulary.tokens), source);
  if (json.contains("digits")) {
    const auto found = std::ranges::find(digit_names, json_get<std::string>(json, "digits", source));
    if (found == digit_names.end()) fail(source, ": digits = ", quote(dump_json(json["digits"])), " is not known");
    vocabulary.digits = Digits(found - digit_names.begin());
  }
  vocabulary.prefix_space = json.contains("prefix_space") && json_get<bool>(json, "prefix_space", source);
  return std::make_unique<Gpt2Tokenizer>(std::move(vocabulary), lowercase, source,
                                         [&](std::size_t n) { return text(source, ": merge ", n); });
}

}  // namespace flexformer
