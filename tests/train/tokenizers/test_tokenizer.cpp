// Tokenizers: round trips, exact byte counts, vocabularies that do not depend on luck, files that carry any bytes.
#include <doctest/doctest.h>
#include <cctype>
#include <map>

#include "tensor/error.h"
#include "tests/train/util/temporary_folder.h"
#include "train/text/text_data.h"
#include "train/tokenizers/tokenizer.h"

using namespace flexformer;
using doctest::Contains;
using Ids = std::vector<std::int32_t>;

namespace {

// Accents, scripts of 2 to 4 bytes, stray bytes, a NUL, all kinds of white space.
const std::string mixed = std::string("The café – naïve “quote”, ωmega 😀.\r\n\tTabs  and   spaces\n\n") + '\0' +
                          "\xE9\xFF\x80 1,000.5 don't well-known e.g. x_1\xC2\xA0"
                          "end ";

const std::string tale =
    "The cat sat on the mat. The cat, it seems, saw the rat; the rat ran.\nThe mat was flat, and that was that.\n";

std::unique_ptr<Tokenizer> reloaded(const Tokenizer& tokenizer) {
  return Tokenizer::from_json(parse_json(dump_json(tokenizer.to_json()), "t.json"), "t.json");
}

std::string words_of(const Tokenizer& tokenizer, std::string_view text) {
  std::string words;
  for (const std::int32_t id : tokenizer.encode(text)) {
    const std::string& token = tokenizer.token(id);
    words += (words.empty() ? "" : "|") + (token == "\n" ? "\\n" : token);
  }
  return words;
}

}  // namespace

TEST_CASE("byte, char and bpe give every text back, and their token bytes add up to its size") {
  for (const char* name : {"byte", "char", "bpe"}) {
    CAPTURE(name);
    const auto tokenizer = make_tokenizer(name, mixed, {.vocab = 300});
    const Ids ids = tokenizer->encode(mixed);
    CHECK(tokenizer->decode(ids) == mixed);
    std::int64_t bytes = 0;
    for (const std::int32_t id : ids) bytes += tokenizer->token_bytes(id);
    CHECK(bytes == std::ssize(mixed));
    CHECK(tokenizer->encode("").empty());
    CHECK(tokenizer->decode({}).empty());
  }
}

TEST_CASE("every kind survives its file, with any bytes") {
  for (const std::string& name : tokenizer_names()) {
    CAPTURE(name);
    const auto tokenizer =
        make_tokenizer(name, mixed, {.vocab = 300, .lowercase = true, .specials = {"<pad>", "<unk>"}});
    const auto copy = reloaded(*tokenizer);
    CHECK(copy->name() == name);
    CHECK(copy->vocab_size() == tokenizer->vocab_size());
    CHECK(copy->encode(mixed) == tokenizer->encode(mixed));
    CHECK(copy->fingerprint() == tokenizer->fingerprint());
    CHECK(copy->pad_id() == 0);
    CHECK(copy->unknown_id() == 1);
    CHECK(copy->special_id("<sep>") == -1);
    CHECK(copy->token_bytes(1) == 0);
  }
}

TEST_CASE("the fingerprint tells vocabularies of equal size apart") {
  CHECK(make_tokenizer("char", "abc", {})->fingerprint() != make_tokenizer("char", "abd", {})->fingerprint());
  CHECK(make_tokenizer("char", "abc", {})->fingerprint() == make_tokenizer("char", "cabbac", {})->fingerprint());
}

TEST_CASE("byte ids are the byte values behind the special tokens") {
  CHECK(make_tokenizer("byte", "", {})->encode("A\xFF") == Ids{65, 255});
  CHECK(make_tokenizer("byte", "", {.specials = {"<pad>", "<unk>"}})->encode("A") == Ids{67});
  CHECK(make_tokenizer("byte", "", {.lowercase = true})->encode("A") == Ids{97});
  CHECK(make_tokenizer("byte", "", {})->vocab_size() == 256);
}

TEST_CASE("char ids follow the code points, stray bytes come last") {
  const auto tokenizer = make_tokenizer("char",
                                        "bω\xE9"
                                        "ab\n",
                                        {});
  CHECK(tokenizer->vocab_size() == 5);
  CHECK(tokenizer->encode("\nabω\xE9") == Ids{0, 1, 2, 3, 4});
  CHECK(tokenizer->start_id() == 0);
  CHECK(make_tokenizer("char", "ba", {})->start_id() == 0);
}

TEST_CASE("a character never seen is named with its code point and line, or is <unk>") {
  const auto tokenizer = make_tokenizer("char", "hello world\n", {});
  CHECK_THROWS_WITH_AS(tokenizer->encode("hello\nhe ω?"),
                       Contains("the character 'ω' (U+03C9) in line 2 does not occur"), Error);
  CHECK_THROWS_WITH_AS(tokenizer->encode("\xE9"), Contains("the character byte 0xE9 (not UTF-8) in line 1"), Error);
  CHECK_THROWS_WITH_AS(tokenizer->encode("?"), Contains("use the byte tokenizer, which takes any text"), Error);
  const auto lenient = make_tokenizer("char", "helo", {.specials = {"<unk>"}});
  CHECK(lenient->decode(lenient->encode("héllo")) == "h<unk>llo");
  CHECK(lenient->covered_bytes("héllo", lenient->encode("héllo"), 2) == 3);
}

TEST_CASE("words are cut at spaces and marks, but not within numbers, names and contractions") {
  const std::string text = "It's 3.14, or 1,000: well-known (e.g.) “x”!\n<unk>, a.b 5.";
  const auto tokenizer = make_tokenizer("word", text, {});
  CHECK(words_of(*tokenizer, text) == "It's|3.14|,|or|1,000|:|well-known|(|e|.|g|.|)|“|x|”|!|\\n|<unk>|,|a|.|b|5|.");
  CHECK(tokenizer->encode("<unk> never")[0] == tokenizer->unknown_id());
  CHECK(tokenizer->encode("never")[0] == tokenizer->unknown_id());
  const auto plain = make_tokenizer("word", text, {.keep_newlines = false, .split_punctuation = false});
  CHECK(words_of(*plain, "It's 3.14, \n (e.g.)") == "It's|3.14,|(e.g.)");
}

TEST_CASE("word decoding puts spaces where typography does, and encodes to the same words again") {
  const auto tokenizer = make_tokenizer("word", mixed + tale + "( )", {});
  CHECK(tokenizer->decode(tokenizer->encode("The cat ,  sat ( on ) the mat .\nThe rat")) ==
        "The cat, sat (on) the mat.\nThe rat");
  for (const std::string& text : {mixed, tale}) {
    const Ids ids = tokenizer->encode(text);
    CHECK(tokenizer->encode(tokenizer->decode(ids)) == ids);
    std::string streamed;
    for (std::size_t i = 0; i < ids.size(); ++i) streamed += tokenizer->decode_next(i ? ids[i - 1] : -1, ids[i]);
    CHECK(streamed == tokenizer->decode(ids));
  }
}

TEST_CASE("the word vocabulary holds the most frequent words, equals in order of bytes") {
  const std::string text = "b b b a a c c d";
  CHECK(words_of(*make_tokenizer("word", text, {.vocab = 3}), text) == "b|b|b|a|a|<unk>|<unk>|<unk>");
  CHECK(words_of(*make_tokenizer("word", text, {.min_count = 2}), text) == "b|b|b|a|a|c|c|<unk>");
  CHECK(make_tokenizer("word", text, {})->vocab_size() == 5);
  CHECK(make_tokenizer("word", text, {.specials = {"<pad>", "<unk>"}})->encode("b a") == Ids{2, 3});
  CHECK(make_tokenizer("word", "Ab ab ÄB äb", {.lowercase = true})->vocab_size() == 3);
}

TEST_CASE("bpe joins the most frequent neighbours and stops when no pair occurs twice") {
  const auto tokenizer = make_tokenizer("bpe", "abababab", {.vocab = 100000});
  CHECK(tokenizer->vocab_size() == 258);
  CHECK(tokenizer->token(256) == "ab");
  CHECK(tokenizer->token(257) == "abab");
  CHECK(tokenizer->encode("abababab") == Ids{257, 257});
  CHECK(tokenizer->encode("ba") == Ids{98, 97});
  CHECK(make_tokenizer("bpe", "abababab", {.vocab = 257})->vocab_size() == 257);
  CHECK(make_tokenizer("bpe", "abababab", {.vocab = 256})->vocab_size() == 256);
  CHECK(make_tokenizer("bpe", "", {.vocab = 300})->vocab_size() == 256);
}

TEST_CASE("bpe merges equal those of recounting every pair after each merge") {
  constexpr std::int64_t vocab = 290;
  const auto tokenizer = make_tokenizer("bpe", tale, {.vocab = vocab});
  // The chunks, spelled with ids: bpe with no merges gives bytes, and merges never cross a space that starts a word.
  std::vector<Ids> chunks(1);
  for (std::size_t i = 0; i < tale.size(); ++i) {
    const auto kind = [&](std::size_t at) {
      return tale[at] == ' ' || tale[at] == '\n' ? 0 : std::isalpha(tale[at]) ? 1 : 2;
    };
    const bool starts = i > 0 && (tale[i] == ' ' || (tale[i - 1] != ' ' && kind(i) != kind(i - 1)));
    if (starts) chunks.emplace_back();
    chunks.back().push_back(static_cast<unsigned char>(tale[i]));
  }
  for (std::int32_t id = 256; id < tokenizer->vocab_size(); ++id) {
    std::map<std::pair<std::int32_t, std::int32_t>, int> counts;
    for (const Ids& chunk : chunks)
      for (std::size_t i = 0; i + 1 < chunk.size(); ++i) ++counts[{chunk[i], chunk[i + 1]}];
    auto best = counts.begin();
    for (auto pair = counts.begin(); pair != counts.end(); ++pair)
      if (pair->second > best->second) best = pair;
    const auto [left, right] = best->first;
    REQUIRE(tokenizer->token(id) == tokenizer->token(left) + tokenizer->token(right));
    for (Ids& chunk : chunks) {
      for (std::size_t i = 0; i + 1 < chunk.size(); ++i) {
        if (chunk[i] != left || chunk[i + 1] != right) continue;
        chunk[i] = id;
        chunk.erase(chunk.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  Ids flat;
  for (const Ids& chunk : chunks) flat.insert(flat.end(), chunk.begin(), chunk.end());
  CHECK(tokenizer->encode(tale) == flat);
}

TEST_CASE("bpe takes a very long run without spaces in linear time") {
  const std::string run(3'000'000, 'x');
  const auto tokenizer = make_tokenizer("bpe", run, {.vocab = 300});
  CHECK(tokenizer->decode(tokenizer->encode(run)) == run);
}

TEST_CASE("a vocabulary that cannot be made is refused with the smallest size") {
  for (const std::int64_t vocab : {0, 10, 255})
    CHECK_THROWS_WITH_AS(make_tokenizer("bpe", tale, {.vocab = vocab}), Contains("is too small; give at least 256"),
                         Error);
  CHECK_THROWS_WITH_AS(make_tokenizer("bpe", tale, {.vocab = 256, .specials = {"<pad>"}}), Contains("at least 257"),
                       Error);
  CHECK_THROWS_WITH_AS(make_tokenizer("word", tale, {.vocab = 1}), Contains("no room for words; give at least 2"),
                       Error);
  CHECK_THROWS_WITH_AS(make_tokenizer("word", " \t ", {}), Contains("no word occurs at least 1 times"), Error);
  CHECK_THROWS_WITH_AS(make_tokenizer("char", "", {}), Contains("the training text is empty"), Error);
  CHECK_THROWS_WITH_AS(make_tokenizer("sentence", tale, {}),
                       Contains("unknown tokenizer 'sentence'; there are byte, char"), Error);
}

TEST_CASE("an id outside the vocabulary is an error") {
  const auto tokenizer = make_tokenizer("byte", "", {});
  CHECK_THROWS_WITH_AS(tokenizer->decode(Ids{256}), Contains("token id 256 is outside the vocabulary of the byte"),
                       Error);
  CHECK_THROWS_WITH_AS(tokenizer->token_bytes(-1), Contains("token id -1"), Error);
}

TEST_CASE("a damaged tokenizer file is refused") {
  const auto read = [](const char* text) { Tokenizer::from_json(parse_json(text, "t.json"), "t.json"); };
  const auto refuses = [&](const char* text, const char* part) {
    CHECK_THROWS_WITH_AS(read(text), Contains(part), Error);
  };
  refuses("[]", "t.json: expected an object");
  refuses(R"({"format_version":2})", "tokenizer format 2 is not known");
  refuses(R"({"format_version":1,"name":"x","lowercase":false,"specials":[]})", "unknown kind of tokenizer 'x'");
  refuses(R"({"format_version":1,"name":"char","lowercase":false,"specials":[]})", "the key 'tokens' is missing");
  refuses(R"({"format_version":1,"name":"char","lowercase":false,"specials":{}})",
          "expected an array of tokens, found object");
  refuses(R"({"format_version":1,"name":"char","lowercase":false,"specials":3})", "expected an array of tokens");
  refuses(R"({"format_version":1,"name":"char","lowercase":false,"specials":[],"tokens":["ab"]})",
          "'ab' is not one character");
  refuses(R"({"format_version":1,"name":"char","lowercase":false,"specials":[],"tokens":["a","a"]})",
          "'a' stands there twice");
  refuses(R"({"format_version":1,"name":"char","lowercase":false,"specials":[],"tokens":[""]})", "a token is empty");
  refuses(R"({"format_version":1,"name":"word","lowercase":false,"specials":[],"tokens":["a"]})",
          "needs the special token '<unk>'");
  refuses(R"({"format_version":1,"name":"bpe","lowercase":false,"specials":[],"merges":[[97,256]]})",
          "merge 0 is not a pair");
  refuses(R"({"format_version":1,"name":"bpe","lowercase":false,"specials":[],"merges":[[97]]})",
          "merge 0 is not a pair");
  for (const char* other : {"null", "{}", "3"})
    refuses(text(R"({"format_version":1,"name":"bpe","lowercase":false,"specials":[],"merges":)", other, "}").c_str(),
            "t.json: expected an array of merges, found");
  std::string doubling = R"({"format_version":1,"name":"bpe","lowercase":false,"specials":[],"merges":[[97,97])";
  for (int id = 256; id < 300; ++id) doubling += text(",[", id, ",", id, "]");
  refuses((doubling + "]}").c_str(), "merge 8 makes too long a token");
}

TEST_CASE("the last tenth of the tokens is split off, and the bytes of both parts add up") {
  for (const std::string& name : tokenizer_names()) {
    CAPTURE(name);
    const auto tokenizer = make_tokenizer(name, mixed + tale, {.vocab = 280});
    const std::string whole = mixed + tale;
    const TextData data = make_text_data(whole, "tale.txt", nullptr, "", *tokenizer);
    Ids joined = data.train.ids();
    const Ids rest = data.valid.ids();
    joined.insert(joined.end(), rest.begin(), rest.end());
    CHECK(joined == tokenizer->encode(whole));
    CHECK(data.valid.size() == joined.size() / 10);
    CHECK(data.split_off);
    CHECK(data.train_bytes + data.valid_bytes == std::ssize(whole));
    CHECK(tokenizer->encode(std::string_view(whole).substr(0, static_cast<std::size_t>(data.train_bytes))) ==
          data.train.ids());
    CHECK(data.valid_target_bytes < data.valid_bytes);
    CHECK(data.valid_target_bytes > 0);
    CHECK(data.train_fingerprint != data.valid_fingerprint);
  }
}

TEST_CASE("a text of one block and a token has one window, a shorter one is refused") {
  const auto tokenizer = make_tokenizer("char", "abcdefghi", {});
  const TextData data = make_text_data("abcdefghi", "t.txt", nullptr, "", *tokenizer);
  CHECK(data.valid_is_train);
  CHECK(data.train.size() == 9);
  CHECK(window_count(9, 8) == 1);
  CHECK(window_count(9, 7) == 2);
  CHECK(window_count(9, 100) == 0);
  CHECK_NOTHROW(check_block(data, 8));
  CHECK_THROWS_WITH_AS(check_block(data, 9),
                       Contains("t.txt: 9 tokens are too few for train.block=9, which needs 10; lower "
                                "train.block to at most 8"),
                       Error);
}

TEST_CASE("texts for language models come from files, and errors name the file") {
  const TemporaryFolder folder;
  const std::string train = folder.file("train.txt", "\xEF\xBB\xBFhello world\n"),
                    valid = folder.file("v.txt", "hello");
  const auto tokenizer = make_tokenizer("char", "hello world\n", {});
  const TextData data = load_text_data(train, valid, *tokenizer);
  CHECK(data.train_bytes == 12);
  CHECK(data.valid.size() == 5);
  CHECK(data.valid_target_bytes == 4);
  CHECK_FALSE(data.split_off);
  CHECK(data.valid_name == valid);
  CHECK(load_text_data(train, "", *tokenizer).train.ids() == data.train.ids());
  CHECK_THROWS_WITH_AS(load_text_data(folder.file("e.txt", ""), "", *tokenizer),
                       Contains("e.txt: there is no text to train on"), Error);
  CHECK_THROWS_WITH_AS(load_text_data(train, folder.file("1.txt", "h"), *tokenizer),
                       Contains("1.txt: 1 token is too few to validate on"), Error);
  CHECK_THROWS_WITH_AS(load_text_data(train, folder.file("w.txt", "hé"), *tokenizer),
                       Contains("w.txt: the character 'é' (U+00E9)"), Error);
}
