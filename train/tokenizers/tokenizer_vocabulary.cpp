// Ready vocabularies. GPT-2's files write each byte as one printable character (the space as "Ġ"), so that a token is a
// word without blanks; tokens are looked up as the files spell them and turned into bytes at the end.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_gpt2.h"
#include "train/tokenizers/tokenizer_hugging_face.h"
#include "train/tokenizers/tokenizer_kinds.h"
#include "train/tokenizers/tokenizer_names.h"
#include "train/tokenizers/tokenizer_sentencepiece.h"
#include "train/tokenizers/tokenizer_wordpiece.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;
constexpr std::array bert_classes = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"};

void note(const TokenizerOptions& options, std::string line) {
  if (options.report) options.report->notes.push_back(std::move(line));
}

// What the files say, before anything of it is believed.
struct GivenVocabulary {
  std::string source, merges_source;
  Json tokens;                    // {"spelling": id}
  std::vector<Spellings> merges;  // by rank
  Gpt2Tokenizer::MergePlace place;
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

// The spellings by id; ids must be 0, 1, 2, ... where no name of `names` fills a gap.
std::vector<std::string> by_id(const GivenVocabulary& given, const TokenNames& names) {
  std::vector<std::pair<std::string, std::int64_t>> all;
  std::int64_t most = -1;
  for (const auto& [spelling, id] : given.tokens.items()) {
    if (!id.is_number_integer())
      fail(given.source, ": the id of ", quote(spelling), " is not a whole number but ", quote(dump_json(id)));
    all.emplace_back(spelling, id.get<std::int64_t>());
    most = std::max(most, all.back().second);
  }
  const auto room = std::int64_t(all.size() + names.all().size());
  std::vector<std::string> spellings(std::size_t(std::clamp<std::int64_t>(most + 1, 0, room)));
  for (auto& [spelling, id] : all) {
    if (spelling.empty()) fail(given.source, ": the token of id ", id, " is empty");
    if (id < 0 || id >= room)
      fail(given.source, ": the id ", id, " of ", quote(spelling), " does not fit: ", room,
           " tokens must have the ids 0 to ", room - 1);
    std::string& place = spellings[static_cast<std::size_t>(id)];
    if (!place.empty())
      fail(given.source, ": ", quote(std::min(place, spelling)), " and ", quote(std::max(place, spelling)),
           " both have the id ", id);
    place = std::move(spelling);
  }
  for (std::size_t id = 0; id < spellings.size(); ++id)
    if (spellings[id].empty() &&
        std::ranges::none_of(names.all(), [&](const auto& name) { return name.second.id == std::int64_t(id); }))
      fail(given.source, ": no token has the id ", id, "; ", all.size(), " tokens must have the ids 0 to ",
           all.size() - 1);
  return spellings;
}

std::unique_ptr<Tokenizer> build_gpt2(const GivenVocabulary& given, const TokenNames& names, Gpt2Vocabulary vocabulary,
                                      const TokenizerOptions& options) {
  if (given.merges.empty()) fail(given.merges_source, ": there are no merges");
  std::unordered_set<std::string> made;
  for (const auto& [left, right] : given.merges) made.insert(left + right);
  const auto is_reachable = [&](const std::string& token) {
    const std::optional<std::string> bytes = spelled_bytes(token);
    return bytes && (bytes->size() == 1 || made.contains(token));
  };
  TokenTable table = named_tokens(by_id(given, names), names, is_reachable, looks_special, {}, given.source, options);
  std::ptrdiff_t unmade = 0;
  for (const auto& [token, id] : given.tokens.items()) unmade += !is_reachable(token) && !looks_special(token);
  if (10 * unmade > std::ssize(given.tokens))
    fail(given.source, ": ", unmade, " of ", given.tokens.size(), " tokens are made by no merge of ",
         given.merges_source, "; do the two belong together?");
  const auto is_special = [&](std::int32_t id) { return std::ranges::binary_search(table.special_ids, id); };
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::size_t i = 0; i < table.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    std::string& token = table.tokens[i];
    const bool is_added = std::ranges::find(table.added, id, &AddedToken::id) != table.added.end();
    if (is_special(id) || (is_added && !is_reachable(token))) continue;
    std::optional<std::string> bytes = spelled_bytes(token);
    if (!bytes) {  // a name for people: no text makes it
      table.special_ids.insert(std::ranges::lower_bound(table.special_ids, id), id);
      continue;
    }
    ids.emplace(std::move(token), id);
    token = std::move(*bytes);
  }
  const auto id_of = [&](const std::string& part) {
    const auto found = ids.find(part);
    if (found != ids.end()) return found->second;
    fail(given.place(vocabulary.merges.size()), ": ", quote(part), " is not a token of ", given.source);
  };
  for (const auto& [left, right] : given.merges) vocabulary.merges.emplace_back(id_of(left), id_of(right));
  vocabulary.tokens = std::move(table.tokens);
  vocabulary.special_ids = std::move(table.special_ids);
  vocabulary.rules.added = std::move(table.added);
  vocabulary.rules.parse_specials = options.parse_specials;
  return std::make_unique<Gpt2Tokenizer>(std::move(vocabulary), options.lowercase, given.source, given.place);
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
    if (line_number >= first_line) add_merge(given.merges, line, given.place(given.merges.size()));
  }
  return given;
}

// WordPiece's pieces, of vocab.txt or of a tokenizer.json.
std::unique_ptr<Tokenizer> build_wordpiece(std::vector<std::string> pieces, const TokenNames& names,
                                           TextNormalizer normalizer, const std::string& source,
                                           const TokenizerOptions& options) {
  const auto has_brackets = [](const std::string& name) {
    return name.size() > 2 && name.front() == '[' && name.back() == ']';
  };
  TokenizerOptions with_names = options;
  std::erase_if(with_names.specials, [&](const std::string& special) {
    std::string bert = text("[", special.substr(1, special.size() - 2), "]");
    return std::ranges::any_of(pieces, [&](const std::string& piece) { return lowercase(piece) == bert; });
  });
  TokenTable table = named_tokens(
      std::move(pieces), names, [&](const std::string& name) { return !has_brackets(name); }, has_brackets, {}, source,
      with_names);
  TextRules rules{std::move(normalizer), std::move(table.added), options.parse_specials};
  return std::make_unique<WordPieceTokenizer>(table.tokens, std::move(table.special_ids), std::move(rules), source);
}

std::unique_ptr<Tokenizer> load_wordpiece(const fs::path& path, const TokenNames& names,
                                          const TokenizerOptions& options) {
  const std::string source = path.string(), content = read_text_file(path);
  std::vector<std::string> pieces;
  std::string capital;
  std::string_view rest = content;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) fail(source, ":", pieces.size() + 1, ": this line has no token");
    if (capital.empty() && !line.starts_with('[') && lowercase(line) != line) capital = line;
    pieces.emplace_back(line);
  }
  names.refuse("do_basic_tokenize", false, "texts are always cut at blanks and marks first");
  const std::string kind = names.setting("tokenizer_class");
  if (!kind.empty() && std::ranges::none_of(bert_classes, [&](const char* known) {
        return kind == known || kind == text(known, "Fast");
      }))
    fail(names.config_source(), ": tokenizer_class = ", quote(kind),
         " is not supported for a vocab.txt; it takes BertTokenizer, ", "DistilBertTokenizer, ElectraTokenizer");
  bool lower = options.lowercase || capital.empty();
  if (const auto said = names.flag("do_lower_case"))
    lower = options.lowercase || *said;
  else if (!kind.empty())
    lower = true, note(options, text("do_lower_case is not given: texts are lower-cased, as ", kind, " does"));
  else
    note(options, text("no file says whether texts are lower-cased; by the vocabulary ",
                       capital.empty() ? "without capitals they are" : "they are not: it holds " + quote(capital)));
  return build_wordpiece(std::move(pieces), names,
                         TextNormalizer::bert(true, names.flag("tokenize_chinese_chars").value_or(true),
                                              names.flag("strip_accents").value_or(lower), lower),
                         source, options);
}

std::unique_ptr<Tokenizer> build_pieces(SentencePieceVocabulary vocabulary, const TokenNames& names,
                                        const std::string& source, const TokenizerOptions& options) {
  const auto yes = [](const std::string&) { return true; };
  TokenTable table =
      named_tokens(std::move(vocabulary.pieces), names, yes, yes, vocabulary.special_ids, source, options);
  vocabulary.pieces = std::move(table.tokens);
  vocabulary.special_ids = std::move(table.special_ids);
  vocabulary.scores.resize(vocabulary.pieces.size(), 0);
  vocabulary.rules.added = std::move(table.added);
  vocabulary.rules.parse_specials = options.parse_specials;
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), options.lowercase, source);
}

std::unique_ptr<Tokenizer> load_pieces(const fs::path& path, const TokenNames& names, const TokenizerOptions& options) {
  SentencePieceVocabulary vocabulary = read_sentencepiece(path);
  using Vocabulary = SentencePieceVocabulary;
  names.refuse("add_eos_token", true, "nothing stands behind a text");
  vocabulary.adds_start = names.flag("add_bos_token").value_or(true);
  if (names.flag("legacy") == false && vocabulary.prefix == Vocabulary::always) vocabulary.prefix = Vocabulary::first;
  if (names.flag("add_prefix_space") == false) vocabulary.prefix = Vocabulary::never;
  return build_pieces(std::move(vocabulary), names, path.string(), options);
}

// What write_tokenizer_files() made of our bpe and byte: special tokens, the 256 bytes, and what each merge makes.
std::unique_ptr<Tokenizer> build_own(const HuggingFaceTokenizer& found, const GivenVocabulary& given,
                                     const TokenNames& names, const TokenizerOptions& options) {
  const auto reachable = [](const std::string&) { return true; };
  const TokenTable table = named_tokens(by_id(given, names), names, reachable, reachable, {}, given.source, options);
  const std::size_t specials = table.special_ids.size(), bytes = specials + 256;
  std::unordered_map<std::string, std::int32_t> ids;
  bool fits = table.added.empty() && table.tokens.size() == bytes + given.merges.size();
  for (std::size_t id = 0; fits && id < table.tokens.size(); ++id) {
    ids.emplace(table.tokens[id], std::int32_t(id));
    if (id < specials) fits = table.special_ids[id] == std::int32_t(id);
    if (id >= specials && id < bytes) fits = spelled_bytes(table.tokens[id]) == std::string(1, char(id - specials));
    if (id >= bytes) fits = table.tokens[id] == given.merges[id - bytes].first + given.merges[id - bytes].second;
  }
  std::vector<IdPair> merges;
  for (const auto& [left, right] : given.merges) {
    fits = fits && ids.contains(left) && ids.contains(right);
    if (fits) merges.emplace_back(ids[left], ids[right]);
  }
  const bool lower =
      found.normalizer == TextNormalizer(std::vector<TextNormalizer::Step>{{TextNormalizer::Step::lowercase}});
  if (!fits || !(lower || found.normalizer.empty()))
    fail(given.source,
         ": a vocabulary that cuts texts as bpe does must hold special tokens, the 256 bytes and what each ",
         "merge makes, in this order, and no normalizer but Lowercase");
  std::vector<std::string> names_of(table.tokens.begin(), table.tokens.begin() + std::ptrdiff_t(specials));
  if (found.kind != "bpe") return std::make_unique<ByteTokenizer>(std::move(names_of), lower || options.lowercase);
  return std::make_unique<BpeTokenizer>(std::move(names_of), lower || options.lowercase, std::move(merges));
}

std::unique_ptr<Tokenizer> load_hugging_face(const Json& json, const TokenNames& names, const std::string& source,
                                             const TokenizerOptions& options) {
  const HuggingFaceTokenizer found = read_hugging_face(json, source);
  if (options.report) {
    options.report->single = found.single;
    options.report->pair = found.pair;
  }
  if (found.kind == "wordpiece") {
    names.agree("do_lower_case", found.normalizer.has(TextNormalizer::Step::lowercase), source + "'s normalizer");
    names.agree("strip_accents",
                found.normalizer.has(TextNormalizer::Step::strip_accents) ||
                    found.normalizer.has(TextNormalizer::Step::strip_marks),
                source + "'s normalizer");
    names.agree("tokenize_chinese_chars", found.normalizer.has(TextNormalizer::Step::space_chinese),
                source + "'s normalizer");
    GivenVocabulary given{source, source, found.vocabulary, {}, {}};
    return build_wordpiece(by_id(given, names), names, found.normalizer, source, options);
  }
  GivenVocabulary given{source, source, found.vocabulary, found.merges,
                        [source](std::size_t n) { return text(source, ": model.merges[", n, "]"); }};
  check_repeats(given);
  if (found.kind == "bpe" || (found.kind == "gpt2" && found.merges.empty()))
    return build_own(found, given, names, options);
  if (found.kind == "gpt2") {
    names.agree("add_prefix_space", found.prefix_space, source + "'s pre_tokenizer");
    Gpt2Vocabulary vocabulary;
    vocabulary.rules.normalizer = found.normalizer;
    vocabulary.digits = found.digits;
    vocabulary.prefix_space = found.prefix_space;
    return build_gpt2(given, names, std::move(vocabulary), options);
  }
  names.agree("add_bos_token", found.single.front() != "$A", source + "'s post_processor");
  names.agree("add_eos_token", found.single.back() != "$A", source + "'s post_processor");
  // There the normalizer puts a blank before such a name too, and then finds it only where one stands.
  if (found.prefix == SentencePieceVocabulary::always && !found.only_missing)
    for (const auto& [name, token] : names.all())
      if (token.normalized.value_or(false))
        fail(token.source, ": normalized = true of ", quote(name),
             " is not supported where the normalizer prepends a space");
  SentencePieceVocabulary vocabulary = found.pieces(by_id(given, names), source);
  vocabulary.rules.normalizer = found.normalizer;
  return build_pieces(std::move(vocabulary), names, source, options);
}

// One file of a vocabulary, or two that belong together.
std::unique_ptr<Tokenizer> load_file(const fs::path& path, TokenNames names, const TokenizerOptions& options) {
  const std::string source = path.string(), file = path.filename().string();
  if (is_sentencepiece_file(path)) return load_pieces(path, names, options);
  if (path.extension() == ".txt") return load_wordpiece(path, names, options);
  if (file == "vocab.json" || file == "encoder.json") {
    const GivenVocabulary given =
        read_two_files(path, path.parent_path() / (file == "vocab.json" ? "merges.txt" : "vocab.bpe"));
    check_repeats(given);
    names.refuse("add_bos_token", true, "nothing stands in front of a text");
    Gpt2Vocabulary vocabulary;
    vocabulary.prefix_space = names.flag("add_prefix_space").value_or(false);
    return build_gpt2(given, names, std::move(vocabulary), options);
  }
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
  return load_hugging_face(json, names, source, options);
}

}  // namespace

std::unique_ptr<Tokenizer> load_vocabulary(const std::string& path, const TokenizerOptions& options) {
  const fs::path given = path;
  std::error_code error;
  if (!fs::exists(given, error))
    fail("unknown tokenizer ", quote(path), "; there are byte, char, word and bpe, and no file or folder of this name");
  VocabularyReport ignored, &report = options.report ? *options.report : ignored;
  const bool is_folder = fs::is_directory(given, error);
  std::vector<fs::path> found;
  if (!is_folder) found.push_back(given);
  for (const char* name :
       {"tokenizer.json", "vocab.json", "encoder.json", "vocab.txt", "tokenizer.model", "tokenizer.bin"})
    if (is_folder && fs::exists(given / name, error)) found.push_back(given / name);
  for (const auto& [first, second] : {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")})
    if (is_folder && found.empty() && fs::exists(given / second, error)) found.push_back(given / first);
  if (found.empty())
    fail(path, " holds no vocabulary: neither tokenizer.json, nor vocab.json with merges.txt, nor encoder.json with ",
         "vocab.bpe, nor vocab.txt, tokenizer.model or tokenizer.bin");
  TokenNames names;
  const std::string first_source = found[0].string();
  if (found[0].extension() == ".json" && fs::exists(found[0], error)) {
    const Json json = read_json(found[0]);
    const Json& added = json.is_object() && json.contains("added_tokens") ? json["added_tokens"] : Json();
    if (added.is_array())
      for (const Json& token : added) names.add(token, first_source + ": added_tokens");
    if (json.is_object() && json.contains("format_version")) found.resize(1);
  }
  if (is_folder) names.read_folder(given, report);
  std::unique_ptr<Tokenizer> tokenizer;
  for (const fs::path& file : found) {
    // llama2.c's copy of a sentencepiece model, and a vocab.json beside a vocab.txt, are other files of other programs.
    const std::string name = file.filename().string();
    // Ours are spelled as GPT-2's there, but cut texts in another way, which only tokenizer.json can say.
    if (tokenizer && (tokenizer->name() == "bpe" || tokenizer->name() == "byte")) continue;
    if (tokenizer && (name == "tokenizer.bin" || (name == "encoder.json"))) continue;
    TokenizerOptions quiet = options;
    if (tokenizer) quiet.report = nullptr;
    std::unique_ptr<Tokenizer> read = load_file(file, names, quiet);
    report.files.push_back(name);
    if (name == "vocab.json") report.files.push_back("merges.txt");
    if (name == "encoder.json") report.files.push_back("vocab.bpe");
    if (tokenizer)
      check_agree(*tokenizer, first_source, *read, file.string());
    else
      tokenizer = std::move(read);
  }
  return tokenizer;
}

}  // namespace flexformer
