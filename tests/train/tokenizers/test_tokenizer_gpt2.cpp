// GPT-2's tokenizer: the ids of other implementations, its cuts, any bytes at all, and files that are not as they
// should be. The texts with their ids, and the part of GPT-2's vocabulary that they need, come from
// tests/train/tokenizers/make_gpt2_cases.mjs; with GPT-2's own files in the folder FLEXFORMER_GPT2 they are checked
// against these too.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "tensor/error.h"
#include "tensor/random.h"
#include "tests/train/tokenizers/text_pieces.h"
#include "tests/train/util/temporary_folder.h"
#include "train/models/language_run.h"
#include "train/tokenizers/tokenizer_gpt2.h"
#include "train/tokenizers/tokenizer_options.h"
#include "train/util/utf8.h"

using namespace flexformer;
using doctest::Contains;
using Ids = std::vector<std::int32_t>;

namespace {

const Json& cases() {
  static const Json json = read_json("tests/train/tokenizers/gpt2_cases.json");
  return json;
}

// {"token": id}, ids 0, 1, ... in the order of GPT-2's.
Json reduced_vocabulary() {
  Json vocabulary = Json::object();
  for (const auto& [token, id] : cases().at("vocabulary").items()) {
    std::int32_t rank = 0;
    for (const auto& other : cases().at("vocabulary")) rank += other < id;
    vocabulary[token] = rank;
  }
  return vocabulary;
}

std::string lines_of(const Json& strings, const std::string& end = "\n") {
  std::string lines;
  for (const Json& line : strings) lines += line.get<std::string>() + end;
  return lines;
}

// A folder with the reduced vocabulary, of which a test may spoil one file.
struct Gpt2Folder : TemporaryFolder {
  Gpt2Folder() {
    file("vocab.json", dump_json(vocabulary));
    file("merges.txt", "#version: 0.2\n" + lines_of(cases().at("merges")));
  }
  std::unique_ptr<Tokenizer> load(const TokenizerOptions& options = {}) const {
    return load_vocabulary(path().string(), options);
  }
  void refuses(const std::string& part) const { CHECK_THROWS_WITH_AS(load(), Contains(part.c_str()), Error); }

  const Json vocabulary = reduced_vocabulary();
};

Ids gpt2_ids(const Json& vocabulary, const Ids& reduced) {
  std::vector<std::int32_t> original(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items())
    original[id.get<std::size_t>()] = cases().at("vocabulary").at(token).get<std::int32_t>();
  Ids ids;
  for (const std::int32_t id : reduced) ids.push_back(original.at(static_cast<std::size_t>(id)));
  return ids;
}

std::string pieces(std::string_view text) {
  std::string joined;
  Gpt2Scanner scanner(text);
  for (std::string_view piece; scanner.next(piece);) joined.append(joined.empty() ? "" : "|").append(printable(piece));
  return joined;
}

// Bytes of which many are blanks, letters, quotes, parts of characters and stray bytes.
std::string random_bytes(Random& random, std::size_t size) {
  constexpr std::string_view frequent = "  \n\r\t'aest3\xC2\xA0\xE3\x80\xF0\x9F\x98\x80\xFF";
  std::string bytes;
  while (bytes.size() < size) {
    const std::uint64_t draw = random.below(2 * 256);
    bytes.push_back(draw < 256 ? static_cast<char>(draw) : frequent[draw % frequent.size()]);
  }
  return bytes;
}

std::string hugging_face(const Json& vocabulary) {
  const Json json = {{"version", "1.0"},
                     {"added_tokens", {{{"id", vocabulary.size()}, {"content", "<extra>"}, {"special", true}}}},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"end_of_word_suffix", ""},
                       {"vocab", vocabulary},
                       {"merges", cases().at("merges")}}}};
  return dump_json(json);
}

}  // namespace

TEST_CASE("gpt2 ids are those of other implementations") {
  const Gpt2Folder folder;
  const auto tokenizer = folder.load();
  CHECK(tokenizer->name() == "gpt2");
  CHECK(cases().at("cases").size() > 50);
  for (const Json& row : cases().at("cases")) {
    const auto words = row.at("text").get<std::string>();
    CAPTURE(words);
    const Ids ids = tokenizer->encode(words);
    CHECK(gpt2_ids(folder.vocabulary, ids) == row.at("ids").get<Ids>());
    CHECK(tokenizer->decode(ids) == words);
  }
}

TEST_CASE("gpt2 ids with GPT-2's own files" * doctest::skip(std::getenv("FLEXFORMER_GPT2") == nullptr)) {
  const auto tokenizer = load_vocabulary(std::getenv("FLEXFORMER_GPT2"), {});
  CHECK(tokenizer->vocab_size() == 50257);
  CHECK(tokenizer->special_count() == 1);
  CHECK(tokenizer->special_id("<|endoftext|>") == 50256);
  for (const Json& row : cases().at("cases"))
    CHECK(tokenizer->encode(row.at("text").get<std::string>()) == row.at("ids").get<Ids>());
}

TEST_CASE("texts are cut as GPT-2's pattern does") {
  CHECK(pieces("it's I'VE we'll've 'x '") == "it|'s| I|'|VE| we|'ll|'ve| '|x| '");
  CHECK(pieces("a  b   c\n\nd \n e  ") == "a| | b|  | c|\\n|\\n|d| \\n| e|  ");
  CHECK(pieces("x1y22.3 4,  5") == "x|1|y|22|.|3| 4|,| | 5");
  CHECK(pieces("\xC2\xA0x \xE3\x80\x80y \t z") == "\xC2\xA0|x|\x20|\xE3\x80\x80|y| \\t| z");
  // White space by Unicode: the next line U+0085, but not the separators of ASCII nor the zero-width U+FEFF.
  CHECK(pieces("a\xC2\x85 b") == "a|\\xC2\\x85| b");
  CHECK(pieces("a\x1C b\xEF\xBB\xBF c") == "a|\\x1C| b|\xEF\xBB\xBF| c");
  CHECK(pieces("Ünï²½Ⅷ٣ हि") == "Ünï|²½Ⅷ٣| ह|ि");
  CHECK(pieces("") == "");
}

TEST_CASE("bytes that are not UTF-8 are cut where U+FFFD would be") {
  CHECK(pieces("a\xFF\xFE!b \x80\xC3 c") == "a|\\xFF\\xFE!|b| \\x80\\xC3| c");
  CHECK(pieces("\xED\xA0\x80x\xF4\x90\x80\x80y\xC0\xAFz") == "\\xED\\xA0\\x80|x|\\xF4\\x90\\x80\\x80|y|\\xC0\\xAF|z");
}

TEST_CASE("gpt2 gives any bytes back, and all bytes are covered") {
  const Gpt2Folder folder;
  const auto tokenizer = folder.load({.parse_specials = true});
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = random_bytes(random, random.below(200));
    if (i % 3 == 0) bytes.insert(random.below(bytes.size() + 1), "<|endoftext|>");
    CAPTURE(printable(bytes));
    const Ids ids = tokenizer->encode(bytes);
    CHECK(tokenizer->decode(ids) == bytes);
    if (ids.empty()) continue;
    const std::size_t part = random.below(ids.size());
    const Ids first(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(part));
    CHECK(tokenizer->covered_bytes(bytes, ids, part) == std::ssize(tokenizer->decode(first)));
    CHECK(tokenizer->covered_bytes(bytes, ids, ids.size()) == std::ssize(bytes));
  }
}

TEST_CASE("gpt2 gives the same ids for a text in pieces of any size, also around names of special tokens") {
  const Gpt2Folder folder;
  Random random(6);
  for (bool parse_specials : {false, true})
    for (bool lowercase : {false, true}) {
      const auto tokenizer = folder.load({.lowercase = lowercase, .parse_specials = parse_specials});
      for (int i = 0; i < 12; ++i) tests::check_pieces(*tokenizer, tests::hostile_text(random, random.below(200)));
      for (int i = 0; i < 12; ++i) tests::check_pieces(*tokenizer, random_bytes(random, random.below(200)));
    }
}

TEST_CASE("gpt2 makes the end-of-text token from its name only when asked to") {
  const Gpt2Folder folder;
  const auto plain = folder.load(), parsing = folder.load({.parse_specials = true});
  const std::int32_t end = plain->special_id("<|endoftext|>");
  CHECK(end == plain->vocab_size() - 1);
  CHECK(plain->token(end) == "<|endoftext|>");
  CHECK(plain->token_bytes(end) == 0);
  const std::string words = "one<|endoftext|> two<|endoftext|>";
  for (const std::int32_t id : plain->encode(words)) CHECK(id != end);
  Ids expected = plain->encode("one");
  expected.push_back(end);
  for (const std::int32_t id : plain->encode(" two")) expected.push_back(id);
  expected.push_back(end);
  CHECK(parsing->encode(words) == expected);
  CHECK(parsing->decode(expected) == words);
  CHECK(plain->token(plain->start_id()) == "\n");
}

TEST_CASE("gpt2's tokenizer.json holds everything") {
  const Gpt2Folder folder;
  const TemporaryFolder other;
  const auto tokenizer = folder.load({.lowercase = true, .parse_specials = true, .specials = {"<pad>", "<unk>"}});
  CHECK(tokenizer->pad_id() == std::ssize(folder.vocabulary));
  CHECK(tokenizer->unknown_id() == std::ssize(folder.vocabulary) + 1);
  CHECK(tokenizer->special_id("<|endoftext|>") == std::ssize(folder.vocabulary) - 1);
  const std::string path = other.file("tokenizer.json", dump_json(tokenizer->to_json(), 2));
  const auto copy = load_vocabulary(path, {.specials = {"<unk>"}});
  CHECK(copy->fingerprint() == tokenizer->fingerprint());
  CHECK(copy->special_count() == 3);
  for (const Json& row : cases().at("cases")) {
    const auto words = row.at("text").get<std::string>();
    CHECK(copy->encode(words) == tokenizer->encode(words));
  }
  CHECK(copy->encode("HELLO<pad>") == tokenizer->encode("hello<pad>"));
  CHECK_THROWS_WITH_AS(load_vocabulary(path, {.specials = {"<sep>"}}),
                       Contains("tokenizer.json: the special token '<sep>' is missing"), Error);
}

TEST_CASE("OpenAI's names, line ends of Windows and Hugging Face's single file give the same ids") {
  const Gpt2Folder folder;
  const std::string words = cases().at("cases")[10].at("text").get<std::string>() + " \xFF";
  const Ids expected = folder.load()->encode(words);
  const TemporaryFolder openai, single, pairs;
  openai.file("encoder.json", dump_json(folder.vocabulary));
  openai.file("vocab.bpe", lines_of(cases().at("merges"), "\r\n"));
  CHECK(load_vocabulary(openai.path().string(), {})->encode(words) == expected);
  const auto hugging = load_vocabulary(single.file("tokenizer.json", hugging_face(folder.vocabulary)), {});
  CHECK(hugging->encode(words) == expected);
  CHECK(hugging->special_id("<extra>") == std::ssize(folder.vocabulary));
  Json json = parse_json(hugging_face(folder.vocabulary), "t");
  for (Json& merge : json["model"]["merges"]) {
    const auto both = merge.get<std::string>();
    merge = Json::array({both.substr(0, both.find(' ')), both.substr(both.find(' ') + 1)});
  }
  CHECK(load_vocabulary(pairs.file("tokenizer.json", dump_json(json)), {})->encode(words) == expected);
}

TEST_CASE("damaged vocabulary files are refused with file and key") {
  const Gpt2Folder folder;
  const auto refuses = [&](const Json& vocabulary, const std::string& part) {
    folder.file("vocab.json", dump_json(vocabulary));
    folder.refuses(part);
  };
  const auto changed = [&](const char* token, const Json& id) {
    Json vocabulary = folder.vocabulary;
    vocabulary[token] = id;
    return vocabulary;
  };
  const std::string size = std::to_string(folder.vocabulary.size());
  refuses(Json::array(), "vocab.json: expected an object of tokens and their ids, found array");
  refuses(changed("a", "x"), "vocab.json: the id of 'a' is not a whole number but '\"x\"'");
  refuses(changed("a", 1e300), "is not a whole number");
  refuses(changed("a", -1), "vocab.json: the id -1 of 'a' does not fit: " + size + " tokens must have the ids 0 to ");
  refuses(changed("a", 4000000000), "the id 4000000000 of 'a' does not fit");
  refuses(changed("a", folder.vocabulary["b"]), "vocab.json: 'a' and 'b' both have the id");
  refuses(changed("", folder.vocabulary.size()), "the token of id " + size + " is empty");
  // Tokens that no merge makes may stand there: they never arise from text.
  for (const char* token : {"qqqq", "[Q]", "\u4E2D"})
    CHECK_NOTHROW((folder.file("vocab.json", dump_json(changed(token, folder.vocabulary.size()))), folder.load()));

  const auto without_token = [&](const std::string& token) {
    Json vocabulary = Json::object();
    std::int32_t next = 0;
    for (const auto& [name, id] : folder.vocabulary.items())
      if (name != token) vocabulary[name] = next++;
    return vocabulary;
  };
  refuses(without_token("\u0120"), "'\u0120' is not a token of");  // the blank, which merges need
  refuses(without_token("\u00FD"), "vocab.json: no token stands for the byte 253 alone");
  const std::size_t last = cases().at("merges").size();  // what it makes is no part of another merge
  std::string made = cases().at("merges")[last - 1].get<std::string>();
  made.erase(made.find(' '), 1);
  refuses(without_token(made), text("merges.txt:", last + 1, ": the merge makes '"));
  for (const char* text : {"", "{", "{\"a\":0,\"a\":1}", "{\"a\":0,}", "\xFF\xFE{"}) {
    folder.file("vocab.json", text);
    folder.refuses("vocab.json");
  }
}

TEST_CASE("damaged merges are refused with their line") {
  const Gpt2Folder folder;
  const auto refuses = [&](const std::string& merges, const std::string& part) {
    folder.file("merges.txt", merges);
    folder.refuses(part);
  };
  const std::string good = lines_of(cases().at("merges"));
  const std::size_t last = cases().at("merges").size();
  refuses("", "merges.txt: there are no merges");
  refuses("#version: 0.2\n\n\n", "merges.txt: there are no merges");
  refuses("#version: 0.2\n" + good + "a b c\n", text("merges.txt:", last + 2, ": expected two tokens with one blank"));
  refuses(good + "\n\nab\n", text("merges.txt:", last + 1, ": expected two tokens"));
  refuses(good + "ab\n",
          text("merges.txt:", last + 1, ": expected two tokens with one blank between them, found 'ab'"));
  refuses(good + " ab\n", "expected two tokens");
  refuses(good + "ab \n", "expected two tokens");
  refuses("#version: 0.2\r\n" + good + "qqq a", text("merges.txt:", last + 2, ": 'qqq' is not a token of"));
  refuses(good + "q q", text("merges.txt:", last + 1, ": the merge makes 'qq', which is not a token of"));
  refuses(good + good.substr(0, good.find('\n')), text("merges.txt:", last + 1, ": the merge '"));
  refuses(good + good.substr(0, good.find('\n')),
          text("stands already at ", (folder.path() / "merges.txt").string(), ":1"));
  refuses(good.substr(0, good.find('\n', 100)), "do the two belong together?");
}

TEST_CASE("what is no vocabulary is refused in words") {
  const TemporaryFolder folder;
  const auto refuses = [&](const std::string& path, const std::string& part) {
    CHECK_THROWS_WITH_AS(make_tokenizer(path, "", {}), Contains(part.c_str()), Error);
  };
  refuses("gpt3", "unknown tokenizer 'gpt3'; there are byte, char, word and bpe, and no file or folder");
  refuses(folder.path().string(), "holds no vocabulary: neither tokenizer.json, nor vocab.json with merges.txt");
  folder.file("vocab.json", "{}");
  refuses(folder.path().string(), "merges.txt");
  refuses(folder.file("other.json", "{}"), "other.json is no tokenizer.json: neither 'format_version' nor");
  const std::string good = hugging_face(reduced_vocabulary());
  const auto refuses_json = [&](const char* pointer, const Json& value, const std::string& part) {
    Json json = parse_json(good, "t");
    json[Json::json_pointer(pointer)] = value;
    refuses(folder.file("tokenizer.json", dump_json(json)), part);
    refuses(folder.path().string(), part);  // it goes before vocab.json
  };
  std::filesystem::remove(folder.path() / "vocab.json");
  refuses_json("/model/type", "Unigram", "model.type '\"Unigram\"' is not supported; there are BPE and WordPiece");
  refuses_json("/model/type", 5, "model.type '\"5\"' is not supported");
  refuses_json("/model/byte_fallback", true, "BPE with byte_fallback is read with spaces replaced by U+2581");
  refuses_json("/model/dropout", 0.1, "model.dropout '0.1'");
  refuses_json("/normalizer", {{"type", "Nmt"}}, "normalizer '{\"type\":\"Nmt\"}' is not supported");
  refuses_json("/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer '{\"type\":\"Whitespace\"}'");
  refuses_json("/pre_tokenizer/use_regex", false, "pre_tokenizer");
  refuses_json("/pre_tokenizer", nullptr, "pre_tokenizer 'null'");
  refuses_json("/model", 3, "tokenizer.json: model: expected an object");
  refuses_json("/model/vocab", 3, "expected model.vocab to be an object");
  refuses_json("/model/merges/7", 3, "tokenizer.json: model.merges[7]: expected two tokens");
  refuses_json("/model/merges/-", "q q", text("model.merges[", cases().at("merges").size(), "]: the merge makes 'qq'"));
  refuses_json("/added_tokens/0/id", "x", "added_tokens: the key 'id' has a value of the wrong type");
  refuses_json("/added_tokens/0/id", 99999999, "the id 99999999 of '<extra>' is far behind");
  refuses_json("/added_tokens/0/content", "<|endoftext|>", "'<|endoftext|>' has the id 794, but 793 in");
  refuses_json("/added_tokens/0/single_word", true, "single_word = true of '<extra>' is not supported");
}

TEST_CASE("a damaged tokenizer.json of a gpt2 run is refused") {
  const Gpt2Folder folder;
  const Json good = folder.load()->to_json();
  const auto refuses = [&](const char* pointer, const Json& value, const std::string& part) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    CHECK_THROWS_WITH_AS(Tokenizer::from_json(json, "t.json"), Contains(part.c_str()), Error);
  };
  refuses("/tokens", 3, "t.json: expected an array of tokens, found number");
  refuses("/tokens/0", nullptr, "more places for special tokens (null) than 'specials' has names, which is 1");
  refuses("/specials/1", "<pad>", "'tokens' has no place (null) for the special token '<pad>'");
  refuses("/tokens/0", "", "a token is empty");
  refuses("/tokens/0", good["tokens"][1], "stands there twice");
  refuses("/tokens/0", "no byte", "no token stands for the byte 33 alone");
  refuses("/merges", 3, "t.json: expected an array of merges, found number");
  refuses("/merges/2", {0, 100000}, "t.json: merge 2 is not a pair of ids: '[0,100000]'");
  refuses("/merges/2", {-1, 0}, "merge 2 is not a pair of ids");
  refuses("/merges/2", {0, 5}, "t.json: merge 2: the merge makes '!&', which is not a token of t.json");
  refuses("/parse_specials", 1, "the key 'parse_specials' has a value of the wrong type");
}

TEST_CASE("data.tokenizer takes a folder, which config.json keeps") {
  const Gpt2Folder folder;
  const std::string text = folder.file("text.txt", std::string(40, 'x') + " hello world<|endoftext|>\n");
  Options options("train_lm", "");
  add_language_options(options);
  const std::string option = "--data.tokenizer=" + folder.path().string();
  options.parse({"--data.train=" + text, option, "--data.parse_specials"});
  settle_tokenizer_options(options);
  const LanguageData data = load_language_data(options, nullptr);
  record_tokenizer(options, *data.tokenizer);
  CHECK(options.text("data.tokenizer") == folder.path().string());
  CHECK(data.tokenizer->name() == "gpt2");
  CHECK(data.text.train_bytes + data.text.valid_bytes == 66);
  CHECK(std::ranges::count(data.text.train.ids(), data.tokenizer->special_id("<|endoftext|>")) +
            std::ranges::count(data.text.valid.ids(), data.tokenizer->special_id("<|endoftext|>")) ==
        1);
  options.parse({"--data.tokenizer=bites"});
  CHECK_THROWS_WITH_AS(settle_tokenizer_options(options),
                       Contains("data.tokenizer = 'bites' is not allowed; it takes one of byte, char, word, bpe, or a "
                                "file or folder that exists; the nearest is byte"),
                       UsageError);
  options.parse({"--data.tokenizer=bpe"});
  settle_tokenizer_options(options);
  record_tokenizer(options, *make_tokenizer("byte", "", {}));
  CHECK(options.text("data.tokenizer") == "byte");
}
