// Ready vocabularies. GPT-2's files write each byte as one printable character (the space as "Ġ"), so that a token is a
// word without blanks; tokens are looked up as the files spell them and turned into bytes at the end.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_gpt2.h"
#include "train/tokenizers/tokenizer_sentencepiece.h"
#include "train/tokenizers/tokenizer_wordpiece.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;
using Spellings = std::pair<std::string, std::string>;  // the two parts of a merge

// What the files say, before anything of it is believed.
struct GivenVocabulary {
  std::string source, merges_source;
  Json tokens;                    // {"spelling": id}
  std::vector<Spellings> merges;  // by rank
  Gpt2Tokenizer::MergePlace place;
  std::unordered_map<std::string, std::int64_t> added = {};  // name -> id of tokens that stand outside of merging
};

// The bytes that a token's spelling stands for; nothing if it has another character. Printable characters of ASCII and
// Latin-1 stand for their own number; the remaining bytes, in their order, are U+0100, U+0101 and so on.
std::optional<std::string> spelled_bytes(std::string_view spelling) {
  static const std::unordered_map<std::uint32_t, char> byte_of = [] {
    std::unordered_map<std::uint32_t, char> bytes;
    std::uint32_t next = 0x100;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
      bytes.emplace(printable ? byte : next++, static_cast<char>(byte));
    }
    return bytes;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const CodePoint unit = next_code_point(spelling, at);
    const auto found = byte_of.find(unit.value);
    if (!unit.valid || found == byte_of.end()) return std::nullopt;
    bytes.push_back(found->second);
    at += unit.length;
  }
  return bytes;
}

bool looks_special(std::string_view name) {
  return name.size() > 2 &&
         ((name.front() == '<' && name.back() == '>') || (name.front() == '[' && name.back() == ']'));
}

// The spellings by id; ids must be 0, 1, 2, ... without a gap.
std::vector<std::string> by_id(const GivenVocabulary& given) {
  std::vector<std::pair<std::string, std::int64_t>> all;
  std::unordered_map<std::string, std::int64_t> only_added = given.added;
  for (const auto& [spelling, id] : given.tokens.items()) {
    if (!id.is_number_integer())
      fail(given.source, ": the id of ", quote(spelling), " is not a whole number but ", quote(dump_json(id)));
    const auto added = given.added.find(spelling);
    if (added != given.added.end() && added->second != id.get<std::int64_t>())
      fail(given.source, ": ", quote(spelling), " has the id ", added->second, " in added_tokens, but ", dump_json(id),
           " in model.vocab");
    all.emplace_back(spelling, id.get<std::int64_t>());
    only_added.erase(spelling);
  }
  all.insert(all.end(), only_added.begin(), only_added.end());
  std::vector<std::string> spellings(all.size());
  for (auto& [spelling, id] : all) {
    if (spelling.empty()) fail(given.source, ": the token of id ", id, " is empty");
    if (id < 0 || id >= std::ssize(spellings))
      fail(given.source, ": the id ", id, " of ", quote(spelling), " does not fit: ", all.size(),
           " tokens must have the ids 0 to ", all.size() - 1);
    std::string& place = spellings[static_cast<std::size_t>(id)];
    if (!place.empty())
      fail(given.source, ": ", quote(std::min(place, spelling)), " and ", quote(std::max(place, spelling)),
           " both have the id ", id);
    place = std::move(spelling);
  }
  return spellings;
}

std::unique_ptr<Tokenizer> build(const GivenVocabulary& given, const TokenizerOptions& options) {
  if (given.merges.empty()) fail(given.merges_source, ": there are no merges");
  Gpt2Vocabulary vocabulary;
  vocabulary.tokens = by_id(given);
  std::unordered_set<std::string> made;
  for (const auto& [left, right] : given.merges) made.insert(left + right);
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    std::string& token = vocabulary.tokens[i];
    const auto id = static_cast<std::int32_t>(i);
    std::optional<std::string> bytes = spelled_bytes(token);
    if (bytes && (bytes->size() == 1 || made.contains(token))) {
      ids.emplace(std::move(token), id);
      token = std::move(*bytes);
    } else if (given.added.contains(token) || looks_special(token)) {
      vocabulary.special_ids.push_back(id);
    } else {
      fail(given.source, ": no merge of ", given.merges_source, " makes the token ", quote(token), " (id ", id,
           "); do the two belong together?");
    }
  }
  const auto id_of = [&](const std::string& part) {
    const auto found = ids.find(part);
    if (found != ids.end()) return found->second;
    fail(given.place(vocabulary.merges.size()), ": ", quote(part), " is not a token of ", given.source);
  };
  for (const auto& [left, right] : given.merges) vocabulary.merges.emplace_back(id_of(left), id_of(right));
  for (const std::string& special : options.specials) {
    const auto has_name = [&](std::int32_t id) { return vocabulary.tokens[static_cast<std::size_t>(id)] == special; };
    if (std::ranges::any_of(vocabulary.special_ids, has_name)) continue;
    vocabulary.special_ids.push_back(static_cast<std::int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(special);
  }
  return std::make_unique<Gpt2Tokenizer>(std::move(vocabulary), options.lowercase, options.parse_specials, given.source,
                                         given.place);
}

// Each pair may stand there once.
void check_repeats(const GivenVocabulary& given) {
  std::unordered_map<std::string, std::size_t> seen;
  for (std::size_t n = 0; n < given.merges.size(); ++n) {
    const auto& [left, right] = given.merges[n];
    const auto [first, is_new] = seen.emplace(left + " " + right, n);
    if (!is_new)
      fail(given.place(n), ": the merge ", quote(first->first), " stands already at ", given.place(first->second));
  }
}

// Appends "left right". The blank of a text is spelled "Ġ", so parts have none.
void add_merge(GivenVocabulary& given, std::string_view merge) {
  const std::size_t blank = merge.find(' ');
  if (blank == merge.npos || blank == 0 || blank + 1 == merge.size() || merge.find(' ', blank + 1) != merge.npos)
    fail(given.place(given.merges.size()), ": expected two tokens with one blank between them, found ", quote(merge));
  given.merges.emplace_back(merge.substr(0, blank), merge.substr(blank + 1));
}

GivenVocabulary read_two_files(const fs::path& vocabulary, const fs::path& merges) {
  GivenVocabulary given{vocabulary.string(), merges.string(), read_json(vocabulary), {}, {}};
  if (!given.tokens.is_object())
    fail(given.source, ": expected an object of tokens and their ids, found ", given.tokens.type_name());
  const std::string content = read_text_file(merges);
  std::string_view rest = content;
  rest = rest.substr(0, rest.find_last_not_of("\r\n") + 1);
  const std::size_t first_line = rest.starts_with("#version") ? 2 : 1;
  given.place = [=](std::size_t n) { return text(merges.string(), ":", first_line + n); };
  for (std::size_t line_number = 1; !rest.empty(); ++line_number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number >= first_line) add_merge(given, line);
  }
  return given;
}

// What follows is for Hugging Face's tokenizer.json.
Json member_or(const Json& object, const char* key, const Json& other) {
  return object.is_object() && object.contains(key) ? object[key] : other;
}

// Whether object[key] is there and says something: not null, false, "" or 0.
bool says(const Json& object, const char* key) {
  const Json value = member_or(object, key, nullptr);
  return value != nullptr && value != false && value != "" && value != 0;
}

// What would make other ids than GPT-2's rules do is refused.
void check_supported(const Json& json, const Json& model, const std::string& source) {
  const auto refuse = [&](const std::string& what, const Json& value) {
    fail(source, ": ", what, " ", quote(dump_json(value)),
         " is not supported; only byte-level BPE that cuts texts as GPT-2 does can be read");
  };
  if (const Json type = member_or(model, "type", "BPE"); type != "BPE") refuse("model.type", type);
  for (const char* key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"})
    if (says(model, key)) refuse(text("model.", key), model[key]);
  if (says(json, "normalizer")) refuse("normalizer", json["normalizer"]);
  const Json cutter = member_or(json, "pre_tokenizer", nullptr);
  if (member_or(cutter, "type", nullptr) != "ByteLevel" || says(cutter, "add_prefix_space") ||
      member_or(cutter, "use_regex", true) != true)
    refuse("pre_tokenizer", cutter);
}

GivenVocabulary from_hugging_face(const Json& json, const std::string& source) {
  const Json& model = json_member(json, "model", source);
  const Json& merges = json_member(model, "merges", source + ": model");
  GivenVocabulary given{source, source, json_member(model, "vocab", source + ": model"), {}, {}};
  check_supported(json, model, source);
  if (!given.tokens.is_object() || !merges.is_array())
    fail(source, ": expected model.vocab to be an object and model.merges an array");
  given.place = [source](std::size_t n) { return text(source, ": model.merges[", n, "]"); };
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      given.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    else
      add_merge(given, merge.is_string() ? merge.get<std::string>() : dump_json(merge));
  }
  for (const Json& token : member_or(json, "added_tokens", Json::array()))
    if (!given.added
             .emplace(json_get<std::string>(token, "content", source + ": added_tokens"),
                      json_get<std::int64_t>(token, "id", source + ": added_tokens"))
             .second)
      fail(source, ": added_tokens has ", quote(dump_json(token["content"])), " twice");
  return given;
}

std::unique_ptr<Tokenizer> load_json(const fs::path& path, const TokenizerOptions& options) {
  const std::string source = path.string();
  const Json json = read_json(path);
  if (json.is_object() && json.contains("format_version")) {
    std::unique_ptr<Tokenizer> tokenizer = Tokenizer::from_json(json, source);
    for (const std::string& special : options.specials)
      if (tokenizer->special_id(special) < 0)
        fail(source, ": the special token ", quote(special),
             " is missing, which this model needs; use the tokenizer of ", "a run of the same kind");
    return tokenizer;
  }
  if (!json.is_object() || !json.contains("model"))
    fail(source, " is no tokenizer.json: neither 'format_version' nor 'model' stands there; for vocab.json and ",
         "merges.txt give their folder");
  const GivenVocabulary given = from_hugging_face(json, source);
  check_repeats(given);
  return build(given, options);
}

}  // namespace

std::unique_ptr<Tokenizer> load_vocabulary(const std::string& path, const TokenizerOptions& options) {
  const fs::path given = path;
  std::error_code error;
  if (!fs::exists(given, error))
    fail("unknown tokenizer ", quote(path), "; there are byte, char, word and bpe, and no file or folder of this name");
  if (!fs::is_directory(given, error)) {
    if (is_sentencepiece_file(given)) return load_sentencepiece(given, options);
    return given.extension() == ".txt" ? load_wordpiece(given, options) : load_json(given, options);
  }
  // WordPiece's and sentencepiece's vocabularies have files of their own beside their tokenizer.json.
  const bool other_kind = fs::exists(given / "vocab.txt", error) || fs::exists(given / "tokenizer.model", error);
  if (!other_kind && fs::exists(given / "tokenizer.json", error)) return load_json(given / "tokenizer.json", options);
  for (const auto& [tokens, merges] : {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")}) {
    if (!fs::exists(given / tokens, error) && !fs::exists(given / merges, error)) continue;
    const GivenVocabulary vocabulary = read_two_files(given / tokens, given / merges);
    check_repeats(vocabulary);
    return build(vocabulary, options);
  }
  if (fs::exists(given / "vocab.txt", error)) return load_wordpiece(given / "vocab.txt", options);
  for (const char* name : {"tokenizer.model", "tokenizer.bin"})
    if (fs::exists(given / name, error)) return load_sentencepiece(given / name, options);
  fail(path, " holds no vocabulary: neither tokenizer.json, nor vocab.json with merges.txt, nor encoder.json with ",
       "vocab.bpe, nor vocab.txt, tokenizer.model or tokenizer.bin");
}

}  // namespace flexformer
