// Ready vocabularies as they are published today: tokenizer.json and the small files beside a vocabulary. Expected ids
// follow from the rules of each file, worked out by hand.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/train/util/temporary_folder.h"
#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/tokenizer_files.h"
#include "train/util/files.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace fs = std::filesystem;

namespace {

using Ids = std::vector<std::int32_t>;
const fs::path kModels = "tests/train/models/pretrained";

// A copy of a published folder without its weights, whose files a test may change.
struct Folder {
  explicit Folder(const char* model, std::initializer_list<const char*> files) {
    for (const char* file : files) fs::copy(kModels / model / file, home.path() / file);
  }
  void write(const char* name, const Json& json) const { home.file(name, dump_json(json)); }
  Json json() const { return read_json(home.path() / "tokenizer.json"); }
  void set(const char* pointer, const Json& value) const {
    Json changed = json();
    changed[Json::json_pointer(pointer)] = value;
    write("tokenizer.json", changed);
  }
  std::unique_ptr<Tokenizer> load(bool parse_specials = false) {
    report = {};
    return load_vocabulary(home.path().string(), {.parse_specials = parse_specials, .report = &report});
  }
  void refused(const char* message) {
    CAPTURE(message);
    CHECK_THROWS_WITH_AS(load(), doctest::Contains(message), Error);
  }
  bool noted(const char* part) const {
    return std::ranges::any_of(report.notes, [&](const std::string& note) { return note.find(part) != note.npos; });
  }
  TemporaryFolder home;
  VocabularyReport report;
};

// What was written is read again, and gives the same ids, also from a run's tokenizer.json.
void check_written(const Tokenizer& tokenizer, const char* text, const TokenizerUse& use = {}) {
  CHECK(Tokenizer::from_json(parse_json(dump_json(tokenizer.to_json()), "again"), "again")->fingerprint() ==
        tokenizer.fingerprint());
  const TemporaryFolder home;
  write_tokenizer_files(tokenizer, home.path(), use);
  const auto again = load_vocabulary(home.path().string(), {});
  CHECK(again->to_json() == tokenizer.to_json());
  CHECK(again->encode(text) == tokenizer.encode(text));
}

}  // namespace

TEST_CASE("tokenizer.json alone gives the tokens that the older files gave") {
  for (const auto& [today, older, text] :
       {std::tuple("gpt2_today", "gpt2", "the a\n the"), std::tuple("llama_today", "llama", " the h\xC3\xA9o the"),
        std::tuple("bert_today", "bert", "The g\xC3\xB3od FILMS!"), std::tuple("roberta_today", "roberta", "the a")}) {
    CAPTURE(today);
    const auto new_one = load_vocabulary((kModels / today).string(), {}),
               old_one = load_vocabulary((kModels / older).string(), {});
    CHECK(new_one->name() == old_one->name());
    CHECK(new_one->encode(text) == old_one->encode(text));
    const std::string frame = std::string(older) == "gpt2" || std::string(older) == "llama" ? "plain" : older;
    check_written(*new_one, text, {.frame = frame});
    check_written(*old_one, text, {.frame = frame});
  }
}

TEST_CASE("what a normalizer, Digits and add_prefix_space do to a text is done") {
  const struct {
    const char* pointer;
    Json value;
    const char *text, *same_as;
  } rows[] = {
      {"/normalizer", {{"type", "NFC"}}, "e\xCC\x81 the", "\xC3\xA9 the"},
      {"/normalizer", {{"type", "NFKC"}}, "\xEF\xAC\x81", "fi"},
      {"/normalizer", {{"type", "NFKD"}}, "\xEF\xAC\x81\xC3\xA9", "fie\xCC\x81"},
      {"/normalizer", {{"type", "Lowercase"}}, "THE \xC5\x81", "the \xC5\x82"},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", Json::array()}}, "The", "The"},
      {"/normalizer",
       {{"type", "Sequence"},
        {"normalizers", {{{"type", "NFD"}}, {{"type", "StripAccents"}}, {{"type", "Lowercase"}}}}},
       "TH\xC3\x89",
       "the"},
      {"/normalizer", {{"type", "Replace"}, {"pattern", {{"String", "q"}}}, {"content", "the"}}, "a q", "a the"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}, {"add_prefix_space", false}}}}},
       "the",
       "the"},
  };
  for (const auto& row : rows) {
    Folder folder("gpt2_today", {"tokenizer.json"});
    const Ids expected = folder.load()->encode(row.same_as);
    folder.set(row.pointer, row.value);
    CAPTURE(row.value.dump());
    const auto tokenizer = folder.load();
    CHECK(tokenizer->encode(row.text) == expected);
    CHECK(tokenizer->covered_bytes(row.text, expected, expected.size()) == std::ssize(std::string_view(row.text)));
    check_written(*tokenizer, row.text);
  }
  Folder folder("gpt2_today", {"tokenizer.json"});
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const auto plain = folder.load();
  const auto one = [&](const char* bytes) { return plain->encode(bytes)[0]; };
  folder.set("/pre_tokenizer",
             {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, level}}});
  CHECK(folder.load()->encode("a 12") == Ids{one("a"), one(" "), one("1"), one("2")});
  check_written(*folder.load(), "a 12");
  folder.set("/pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", true}});
  CHECK(folder.load()->encode("the") == plain->encode(" the"));
  CHECK(folder.load()->encode(" the") == plain->encode(" the"));
  CHECK(folder.load()->decode(folder.load()->encode("the")) == "the");
  check_written(*folder.load(), "the");
}

TEST_CASE("what cannot be followed in a tokenizer.json is refused by key and value") {
  const struct {
    const char *model, *pointer;
    Json value;
    const char* message;
  } rows[] = {
      {"gpt2_today",
       "/normalizer",
       {{"type", "Precompiled"}},
       "normalizer '{\"type\":\"Precompiled\"}' is not supported"},
      {"gpt2_today",
       "/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", ""}},
       "is not supported"},
      {"gpt2_today",
       "/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "x"}}}},
       "pre_tokenizer '{\"type\":\"Split\""},
      {"gpt2_today", "/decoder", {{"type", "WordPiece"}}, "decoder '{\"type\":\"WordPiece\"}' is not supported"},
      {"gpt2_today", "/post_processor", {{"type", "Odd"}}, "post_processor '{\"type\":\"Odd\"}' is not supported"},
      {"gpt2_today", "/model/ignore_merges", true, "model.ignore_merges 'true' is not supported"},
      {"bert_today", "/model/unk_token", "<u>", "model.unk_token '\"<u>\"' is not supported; it must be \"[UNK]\""},
      {"bert_today", "/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer '{\"type\":\"Whitespace\"}'"},
      {"llama_today", "/pre_tokenizer", {{"type", "Digits"}}, "pre_tokenizer '{\"type\":\"Digits\"}' is not supported"},
      {"llama_today",
       "/post_processor/single",
       {{{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "</s>"}}}}},
       "post_processor: what stands around a text, [\"$A\",\"</s>\"], is not supported"},
      {"llama_today", "/model/merges/-", Json::array({"q", "h"}), "'q' is no token of model.vocab"},
  };
  for (const auto& row : rows) {
    Folder folder(row.model, {"tokenizer.json"});
    folder.set(row.pointer, row.value);
    folder.refused(row.message);
  }
}

TEST_CASE("BPE with byte fallback is read with Metaspace, and by merges where scores cannot say the same") {
  Folder folder("llama_today", {"tokenizer.json"});
  const auto usual = folder.load();
  CHECK(usual->encode("the tho") == Ids{1, 265, 263, 261, 266});
  folder.set("/normalizer", nullptr);
  const auto scheme = [&](const char* prepend) {
    folder.set("/pre_tokenizer",
               {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", prepend}, {"split", false}});
    auto tokenizer = folder.load(true);
    check_written(*folder.load(), "the <s> the");
    return tokenizer;
  };
  CHECK(scheme("always")->encode("the<s>the") == Ids{1, 265, 1, 265});
  CHECK(scheme("first")->encode("the<s>the") == Ids{1, 265, 1, 260, 264});
  CHECK(scheme("never")->encode("the") == Ids{1, 260, 264});
  CHECK(scheme("always")->encode(" the") == Ids{1, 265});  // no second blank
  // "he" alone is not merged any more, though "h" and "e" and "he" are tokens: a list of merges says more than scores.
  Json json = Folder("llama_today", {"tokenizer.json"}).json();
  Json& merges = json["model"]["merges"];
  std::erase_if(merges.get_ref<Json::array_t&>(), [](const Json& merge) { return merge[0] == "h"; });
  folder.write("tokenizer.json", json);
  CHECK(folder.load()->encode("he") == Ids{1, 259, 261, 262});
  check_written(*folder.load(), "the he");
}

TEST_CASE("files beside a vocabulary name its tokens, and where they contradict each other both are named") {
  Folder gpt2("gpt2", {"vocab.json", "merges.txt"});
  CHECK(gpt2.load()->is_special(260));
  CHECK(gpt2.noted("no file says which tokens are special; by their look these are: '<|endoftext|>'"));
  gpt2.write("added_tokens.json", {{"<|user|>", 261}, {"<|bot|>", 263}});
  gpt2.write("special_tokens_map.json",
             {{"eos_token", "<|endoftext|>"}, {"additional_special_tokens", {"<|bot|>"}}, {"pad_token", "[PAD]"}});
  auto tokenizer = gpt2.load();
  CHECK(tokenizer->vocab_size() == 264);
  CHECK(tokenizer->encode("a<|user|>a") == Ids{64, 261, 64});  // added and not special: in every text
  CHECK(tokenizer->encode("<|bot|>").size() == 7);
  CHECK(gpt2.load(true)->encode("<|bot|>") == Ids{263});
  CHECK(tokenizer->token(262) == "<unused_262>");
  CHECK(gpt2.noted("special tokens without an id, left out: '[PAD]'"));
  check_written(*tokenizer, "a<|user|> the");
  gpt2.write("tokenizer_config.json",
             {{"added_tokens_decoder", {{"262", {{"content", "<|user|>"}, {"special", true}}}}}});
  gpt2.refused("'<|user|>' has the id 261, but 262 in");
  gpt2.write("tokenizer_config.json", {{"add_bos_token", true}});
  gpt2.refused("add_bos_token = true is not supported");

  Folder llama("llama", {"tokenizer.model"});
  llama.write("tokenizer_config.json",
              {{"added_tokens_decoder", {{"267", {{"content", "<go>"}, {"lstrip", true}, {"rstrip", true}}}}}});
  tokenizer = llama.load();
  CHECK(tokenizer->encode("the  <go> o") == Ids{1, 265, 267, 259, 266});
  CHECK(tokenizer->covered_bytes("the  <go> o", tokenizer->encode("the  <go> o"), 3) == 10);
  check_written(*tokenizer, "the <go> o");
  llama.write("tokenizer_config.json", {{"add_bos_token", false}});
  CHECK(llama.load()->encode("the") == Ids{265});
  check_written(*llama.load(), "the");
  fs::copy(kModels / "llama_today" / "tokenizer.json", llama.home.path() / "tokenizer.json");
  llama.refused("add_bos_token is false, but");
  fs::remove(llama.home.path() / "tokenizer_config.json");
  CHECK(llama.load()->encode("the") == Ids{1, 265});
  llama.set("/model/vocab", [&] {
    Json vocabulary = llama.json()["model"]["vocab"];
    std::swap(vocabulary["t"], vocabulary["o"]);
    return vocabulary;
  }());
  llama.refused("disagree: token 260 is 'o' in the one and 't' in the other");
}

TEST_CASE("lower-casing and accents are what the files say; a guess is noted") {
  Folder bert("bert", {"vocab.txt"});
  const std::string words = read_file(bert.home.path() / "vocab.txt") + "\xC3\xB6\nG\n";
  bert.home.file("vocab.txt", words);
  const std::int32_t unknown = 1, good = 6, o_umlaut = 14;
  CHECK(bert.load()->encode("GOOD good") == Ids{unknown, good});
  CHECK(bert.noted("by the vocabulary they are not: it holds 'G'"));
  bert.write("tokenizer_config.json", {{"do_lower_case", true}, {"strip_accents", false}});
  CHECK(bert.load()->encode("GOOD \xC3\x96") == Ids{good, o_umlaut});
  CHECK(bert.report.notes.empty());
  check_written(*bert.load(), "GOOD \xC3\x96", {.frame = "bert"});
  bert.write("tokenizer_config.json", {{"do_lower_case", false}});
  CHECK(bert.load()->encode("Good \xC3\xB6") == Ids{unknown, o_umlaut});
  bert.write("tokenizer_config.json", {{"tokenizer_class", "BertTokenizer"}});
  CHECK(bert.load()->encode("GOOD") == Ids{good});
  CHECK(bert.noted("do_lower_case is not given"));
  bert.write("tokenizer_config.json", {{"tokenizer_class", "BertJapaneseTokenizer"}});
  bert.refused("tokenizer_class = 'BertJapaneseTokenizer' is not supported");
  bert.write("tokenizer_config.json", {{"do_lower_case", false}});
  fs::remove(bert.home.path() / "vocab.txt");
  fs::copy(kModels / "bert_today" / "tokenizer.json", bert.home.path() / "tokenizer.json");
  bert.refused("do_lower_case is false, but");
}

TEST_CASE("our own bpe and byte tokenizers are written as Hugging Face writes them, and read again as they were") {
  const char* text = "the cat sat on the mat, the cat's 12 mats\n\n  \xC3\xA9!";
  for (const char* kind : {"bpe", "byte"})
    for (const bool lower : {false, true}) {
      const auto tokenizer =
          make_tokenizer(kind, text, {.vocab = 270, .lowercase = lower, .specials = {"<pad>", "<unk>"}});
      check_written(*tokenizer, text);
    }
  const TemporaryFolder home;
  CHECK(write_tokenizer_files(*make_tokenizer("word", text, {}), home.path()) ==
        std::vector<std::string>{kOwnTokenizerFile});
}

TEST_CASE("tokenizers with names and normalizers give the same ids piece by piece") {
  Folder folder("gpt2_today", {"tokenizer.json"});
  folder.set("/normalizer", {{"type", "NFC"}});
  folder.set("/added_tokens/-", {{"id", 261},
                                 {"content", "<go>"},
                                 {"special", false},
                                 {"lstrip", true},
                                 {"rstrip", true},
                                 {"normalized", false}});
  const auto tokenizer = folder.load();
  std::string text;
  for (int i = 0; i < 40; ++i) text += i % 5 ? "the e\xCC\x81 a" : "  <go>  a\xCC\x81\n";
  const Ids expected = tokenizer->encode(text);
  for (const Index piece : {1, 3, 7, 64, 1000}) {
    TextSource source(text, "text");
    Ids ids;
    for_each_part(source, {.piece_bytes = piece}, "reading",
                  [&](const TextPart& part) { return tokenizer->encode_part(part, ids); });
    CHECK(ids == expected);
  }
  std::int64_t before = 0;
  for (std::size_t count = 1; count <= expected.size(); ++count) {
    const std::int64_t now = tokenizer->covered_bytes(text, expected, count);
    CHECK(now >= before);
    before = now;
  }
  CHECK(before == std::ssize(text));
}
