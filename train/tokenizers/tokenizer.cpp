// What all tokenizers share, the two simplest kinds, and the factory.
#include "train/tokenizers/tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"
#include "train/tokenizers/tokenizer_sentencepiece.h"
#include "train/tokenizers/tokenizer_wordpiece.h"
#include "train/util/files.h"

namespace flexformer {
namespace {

constexpr std::int64_t format_version = 1;
constexpr std::size_t max_token_bytes = 256;
constexpr std::uint32_t stray_byte_base = 0x110000;  // one past the last code point

std::uint32_t char_key(const CodePoint& unit) { return unit.valid ? unit.value : stray_byte_base + unit.value; }

// Where the last character begins that may not be complete yet: no continuation byte, or one behind three others, since
// a character has no more. 0 if there is no such place.
std::size_t settled_units(const TextPart& part) {
  if (part.last) return part.text.size();
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(part.text[at]) & 0xC0) == 0x80; };
  for (std::size_t at = part.text.size(); at-- > 0;)
    if (!continues(at) || (at >= 3 && continues(at - 1) && continues(at - 2) && continues(at - 3))) return at;
  return 0;
}

std::vector<std::string> with_bytes(std::vector<std::string> specials) {
  for (int byte = 0; byte < 256; ++byte) specials.emplace_back(1, static_cast<char>(byte));
  return specials;
}

std::vector<std::string> strings_from_json(const Json& array, const std::string& source) {
  if (!array.is_array()) fail(source, ": expected an array of tokens, found ", array.type_name());
  std::vector<std::string> strings;
  for (const Json& element : array) strings.push_back(bytes_from_json(element, source));
  return strings;
}

std::vector<IdPair> merges_from_json(const Json& array, std::int64_t first_id, const std::string& source) {
  if (!array.is_array()) fail(source, ": expected an array of merges, found ", array.type_name());
  std::vector<IdPair> merges;
  std::vector<std::size_t> lengths(static_cast<std::size_t>(first_id), 1);  // of the tokens, in bytes
  for (const Json& element : array) {
    const auto id_at = [&](std::size_t at) {
      const bool is_pair = element.is_array() && element.size() == 2;
      const std::int64_t id = is_pair && element[at].is_number_integer() ? element[at].get<std::int64_t>() : -1;
      if (id < 0 || id >= first_id + std::ssize(merges))
        fail(source, ": merge ", merges.size(), " is not a pair of earlier ids: ", quote(dump_json(element)));
      return static_cast<std::int32_t>(id);
    };
    const auto [left, right] = merges.emplace_back(id_at(0), id_at(1));
    lengths.push_back(lengths[static_cast<std::size_t>(left)] + lengths[static_cast<std::size_t>(right)]);
    // Training never makes such tokens, and a chain of doublings in a damaged file would fill the memory.
    if (lengths.back() > max_token_bytes) fail(source, ": merge ", merges.size() - 1, " makes too long a token");
  }
  return merges;
}

// The tokens of a char or word vocabulary, specials in front; each may stand there once.
std::vector<std::string> table_from_json(const Json& json, std::vector<std::string> specials,
                                         const std::string& source) {
  for (std::string& token : strings_from_json(json_member(json, "tokens", source), source)) {
    if (token.empty()) fail(source, ": a token is empty");
    specials.push_back(std::move(token));
  }
  std::set<std::string_view> seen;
  for (const std::string& token : specials)
    if (!seen.insert(token).second) fail(source, ": the token ", quote(token), " stands there twice");
  return specials;
}

}  // namespace

std::vector<std::string> tokens_by_id(const Json& json, const char* key, const std::vector<std::string>& specials,
                                      std::vector<std::int32_t>& special_ids, const std::string& source) {
  std::vector<std::string> tokens;
  const Json& array = json_member(json, key, source);
  if (!array.is_array()) fail(source, ": expected an array of tokens, found ", array.type_name());
  for (const Json& element : array) {
    if (element.is_null() && special_ids.size() == specials.size())
      fail(source, ": '", key, "' has more places for special tokens (null) than 'specials' has names, which is ",
           specials.size());
    if (element.is_null()) special_ids.push_back(static_cast<std::int32_t>(tokens.size()));
    tokens.push_back(element.is_null() ? specials[special_ids.size() - 1] : bytes_from_json(element, source));
    if (tokens.back().empty()) fail(source, ": a token is empty");
  }
  if (special_ids.size() < specials.size())
    fail(source, ": '", key, "' has no place (null) for the special token ", quote(specials[special_ids.size()]));
  return tokens;
}

Tokenizer::Tokenizer(std::vector<std::string> tokens, std::int64_t special_count, bool lowercase)
    : Tokenizer(std::move(tokens), std::vector<std::int32_t>(static_cast<std::size_t>(special_count)), lowercase) {
  std::iota(special_ids_.begin(), special_ids_.end(), 0);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  encode_part({.text = text}, ids);
  return ids;
}

std::size_t Tokenizer::encode_part(const TextPart& part, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  return cut_folded(part, folding_, [&](const TextPart& folded) {
    ids.resize(before);
    return encode_settled(folded, ids);
  });
}

const std::string& Tokenizer::token(std::int32_t id) const {
  if (id < 0 || id >= vocab_size())
    fail("token id ", id, " is outside the vocabulary of the ", name(), " tokenizer, 0 to ", vocab_size() - 1);
  return tokens_[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode_next(std::int32_t previous, std::int32_t id) const {
  const std::string& bytes = token(id);
  return previous >= 0 && space_between(previous, id) ? " " + bytes : bytes;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  std::int32_t previous = -1;
  for (const std::int32_t id : ids) {
    text += decode_next(previous, id);
    previous = id;
  }
  return text;
}

std::int64_t Tokenizer::token_bytes(std::int32_t id) const {
  const std::string& bytes = token(id);
  return is_special(id) ? 0 : static_cast<std::int64_t>(bytes.size());
}

std::int64_t Tokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                      std::size_t count) const {
  if (count >= ids.size()) return static_cast<std::int64_t>(text.size());
  const FoldedText folded({.text = text}, folding_);
  std::size_t bytes = 0;
  for (const std::int32_t id : ids.first(count)) {
    // An unknown character stands for as many bytes as the text has there.
    bytes += is_special(id) ? next_code_point(folded.text(), bytes).length : static_cast<std::size_t>(token_bytes(id));
  }
  return static_cast<std::int64_t>(folded.original(bytes));
}

bool Tokenizer::is_special(std::int32_t id) const { return std::ranges::binary_search(special_ids_, id); }

bool Tokenizer::mostly_unknown(std::span<const std::int32_t> ids) const {
  const std::int32_t unknown = unknown_id();
  if (unknown < 0) return false;
  const auto many = std::ranges::count(ids, unknown);
  const auto known = std::ranges::count_if(ids, [&](std::int32_t id) { return !is_special(id); });
  return many > known;
}

std::int32_t Tokenizer::special_id(std::string_view special) const {
  static constexpr std::array<std::array<std::string_view, 3>, 4> aliases = {
      {{"<pad>", "[PAD]"}, {"<unk>", "[UNK]"}, {"<sep>", "[SEP]", "</s>"}, {"<cls>", "[CLS]", "<s>"}}};
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::find_if(special_ids_, [&](std::int32_t id) { return token(id) == name; });
    return found == special_ids_.end() ? -1 : *found;
  };
  std::int32_t id = find(special);
  for (const auto& names : aliases)
    for (std::size_t i = 1; id < 0 && special == names[0] && i < names.size(); ++i) id = find(names[i]);
  return id;
}

std::int32_t Tokenizer::start_id() const {
  std::int32_t first = -1;
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    if (is_special(id)) continue;
    if (token(id) == "\n") return id;
    if (first < 0) first = id;
  }
  return std::max(first, 0);
}

Json Tokenizer::to_json() const {
  Json json = {{"format_version", format_version}, {"name", name()}, {"lowercase", folding_.lowercase}};
  if (folding_.unicode) json["unicode"] = true;  // left out by older programs, which did without
  if (folding_.nfc) json["normalize"] = "nfc";
  json["specials"] = Json::array();
  for (const std::int32_t id : special_ids_) json["specials"].push_back(json_bytes(token(id)));
  add_to_json(json);
  return json;
}

std::uint64_t Tokenizer::hash() const {
  std::call_once(hashed_, [this] { hash_ = fnv1a64(dump_json(to_json())); });
  return hash_;
}

std::string Tokenizer::fingerprint() const { return flexformer::fingerprint(hash()); }

namespace {

std::unique_ptr<Tokenizer> read_kind(const Json& json, const std::string& source) {
  const auto version = json_get<std::int64_t>(json, "format_version", source);
  if (version != format_version)
    fail(source, ": tokenizer format ", version, " is not known; this program reads ", format_version);
  const auto name = json_get<std::string>(json, "name", source);
  const bool lowercase = json_get<bool>(json, "lowercase", source);
  std::vector<std::string> specials = strings_from_json(json_member(json, "specials", source), source);
  const std::int64_t special_count = std::ssize(specials);
  if (name == "byte") return std::make_unique<ByteTokenizer>(std::move(specials), lowercase);
  if (name == "bpe") {
    auto merges = merges_from_json(json_member(json, "merges", source), special_count + 256, source);
    return std::make_unique<BpeTokenizer>(std::move(specials), lowercase, std::move(merges));
  }
  if (name == "sentencepiece") return SentencePieceTokenizer::from_json(json, specials, lowercase, source);
  if (name == "wordpiece") return WordPieceTokenizer::from_json(json, specials, lowercase, source);
  if (name == "gpt2") return Gpt2Tokenizer::from_json(json, specials, lowercase, source);
  if (name != "char" && name != "word") fail(source, ": unknown kind of tokenizer ", quote(name));
  std::vector<std::string> tokens = table_from_json(json, std::move(specials), source);
  if (name == "char") {
    for (std::size_t id = static_cast<std::size_t>(special_count); id < tokens.size(); ++id)
      if (next_code_point(tokens[id], 0).length != tokens[id].size())
        fail(source, ": the token ", quote(tokens[id]), " is not one character");
    return std::make_unique<CharTokenizer>(std::move(tokens), special_count, lowercase);
  }
  const auto specials_end = tokens.begin() + special_count;
  if (std::find(tokens.begin(), specials_end, "<unk>") == specials_end)
    fail(source, ": a word tokenizer needs the special token '<unk>'");
  const bool keep_newlines = json_get<bool>(json, "keep_newlines", source);
  const bool split_punctuation = json_get<bool>(json, "split_punctuation", source);
  return std::make_unique<WordTokenizer>(std::move(tokens), special_count, lowercase, keep_newlines, split_punctuation);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_json(const Json& json, const std::string& source) {
  std::unique_ptr<Tokenizer> read = read_kind(json, source);
  read->folding_.unicode = json.contains("unicode") && json_get<bool>(json, "unicode", source);
  read->folding_.drop_soft_hyphens = read->folding_.unicode && read->name() == "word";
  if (json.contains("normalize")) {
    const auto form = json_get<std::string>(json, "normalize", source);
    if (form != "nfc") fail(source, ": normalize = ", quote(form), " is not known; there is nfc");
    read->folding_.nfc = true;
  }
  return read;
}

ByteTokenizer::ByteTokenizer(std::vector<std::string> specials, bool lowercase)
    : Tokenizer(with_bytes(specials), std::ssize(specials), lowercase) {}

std::size_t ByteTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  // Only changing case looks at more than one byte at a time.
  std::string_view text = part.text;
  if (folding_.lowercase) text = text.substr(0, settled_units(part));
  const auto first = static_cast<std::int32_t>(special_count());
  for (const char byte : text) ids.push_back(first + static_cast<unsigned char>(byte));
  return text.size();
}

CharTokenizer::CharTokenizer(std::vector<std::string> tokens, std::int64_t special_count, bool lowercase)
    : Tokenizer(std::move(tokens), special_count, lowercase) {
  for (auto id = static_cast<std::int32_t>(special_count); id < vocab_size(); ++id)
    ids_.emplace(char_key(next_code_point(token(id), 0)), id);
}

std::size_t CharTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  const std::string_view text = part.text.substr(0, settled_units(part));
  ids.reserve(ids.size() + text.size());
  const std::int32_t unknown = unknown_id();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    const auto found = ids_.find(char_key(unit));
    if (found == ids_.end() && unknown < 0)
      fail("the character ", describe(unit, text.substr(at, unit.length)), " in line ",
           part.first_line + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'),
           " does not occur in the text the char tokenizer was made from; leave it out or train with it, or use the "
           "byte tokenizer, which takes any text");
    ids.push_back(found == ids_.end() ? unknown : found->second);
    at += unit.length;
  }
  return text.size();
}

void CharTokenizer::add_to_json(Json& json) const {
  json["tokens"] = Json::array();
  for (const std::string& token : std::span(tokens_).subspan(special_ids_.size()))
    json["tokens"].push_back(json_bytes(token));
}

std::unique_ptr<Tokenizer> train_char(std::span<TextSource> texts, const TokenizerOptions& options,
                                      const PieceReading& reading) {
  std::map<std::uint32_t, std::string> seen;
  for (TextSource& text : texts)
    for_each_part(text, reading, "collecting the characters of", [&](const TextPart& part) {
      return cut_folded(part, options.folding(), [&](const TextPart& folded) {
        const std::size_t end = settled_units(folded);
        std::uint32_t previous = UINT32_MAX;
        for (std::size_t at = 0; at < end;) {
          const CodePoint unit = next_code_point(folded.text, at);
          const std::uint32_t key = char_key(unit);
          if (key != previous && !seen.contains(key)) seen.emplace(key, folded.text.substr(at, unit.length));
          previous = key;
          at += unit.length;
        }
        return end;
      });
    });
  if (seen.empty()) fail("a char tokenizer cannot be made: the training text is empty");
  std::vector<std::string> tokens = options.specials;
  for (const auto& [key, bytes] : seen) tokens.push_back(bytes);
  return std::make_unique<CharTokenizer>(std::move(tokens), std::ssize(options.specials), options.lowercase);
}

const std::vector<std::string>& tokenizer_names() {
  static const std::vector<std::string> names{"byte", "char", "word", "bpe"};
  return names;
}

bool is_tokenizer_name(std::string_view name) {
  return std::ranges::find(tokenizer_names(), name) != tokenizer_names().end();
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::span<TextSource> texts,
                                          const TokenizerOptions& options, const PieceReading& reading) {
  if (!is_tokenizer_name(name)) return load_vocabulary(name, options);
  std::unique_ptr<Tokenizer> made;
  if (name == "byte") made = std::make_unique<ByteTokenizer>(options.specials, options.lowercase);
  if (name == "char") made = train_char(texts, options, reading);
  if (name == "word") made = train_word(texts, options, reading);
  if (name == "bpe") made = train_bpe(texts, options, reading);
  made->folding_ = options.folding(name == "word");
  return made;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::span<const std::string_view> texts,
                                          const TokenizerOptions& options) {
  std::vector<TextSource> sources;
  for (const std::string_view text : texts) sources.emplace_back(text, "the text");
  return make_tokenizer(name, sources, options);
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string_view text,
                                          const TokenizerOptions& options) {
  return make_tokenizer(name, std::span(&text, 1), options);
}

}  // namespace flexformer
