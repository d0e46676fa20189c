// The tokenizers of Llama and llama2.c (sentencepiece) and of BERT (WordPiece).
#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "tensor/error.h"
#include "tests/train/util/temporary_folder.h"
#include "train/tokenizers/tokenizer_files.h"
#include "train/tokenizers/tokenizer_sentencepiece.h"
#include "train/tokenizers/tokenizer_wordpiece.h"
#include "train/util/files.h"

using namespace flexformer;

namespace {

using Ids = std::vector<std::int32_t>;

// Byte b has the id 3 + b, piece n of those below 259 + n.
const std::vector<std::pair<std::string, float>> kPieces = {
    {" ", -20}, {"a", -21}, {"b", -22}, {"c", -23}, {"ab", -5}, {"bc", -4}, {"abc", -6}, {"aa", -7},
    {" a", -8}, {"é", -24}, {"<", -25}, {"0", -26}, {"x", -27}, {"4", -28}, {"1", -29},  {">", -30}};
constexpr std::int32_t first = 259;

std::string byte_piece(int byte) {
  const std::string digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[std::size_t(byte / 16)] + digits[std::size_t(byte % 16)] + ">";
}

std::string piece_bytes(float score, const std::string& piece) {
  const auto length = std::int32_t(piece.size());
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &score, 4);
  std::memcpy(bytes.data() + 4, &length, 4);
  return bytes + piece;
}

std::string llama2c_file() {
  std::string bytes("\x07\0\0\0", 4);
  for (const char* special : {"<unk>", "\n<s>\n", "\n</s>\n"}) bytes += piece_bytes(0, special);
  for (int byte = 0; byte < 256; ++byte) bytes += piece_bytes(0, byte_piece(byte));
  for (const auto& [piece, score] : kPieces) bytes += piece_bytes(score, piece);
  return bytes;
}

std::unique_ptr<Tokenizer> pieces(bool parse_specials = false) {
  const TemporaryFolder home;
  TokenizerOptions options;
  options.parse_specials = parse_specials;
  return load_vocabulary(home.file("tok.bin", llama2c_file()), options);
}

// A text comes back, token by token, and these cover its bytes.
void check_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  CAPTURE(text);
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  CHECK(tokenizer.decode(ids) == text);
  std::string streamed;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(tokenizer.covered_bytes(text, ids, i) == std::ssize(streamed));
    streamed += tokenizer.decode_next(i ? ids[i - 1] : -1, ids[i]);
  }
  CHECK(tokenizer.covered_bytes(text, ids, ids.size()) == std::ssize(text));
}

std::string random_bytes(std::uint64_t seed, std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const auto draw = unsigned(seed >> 33);
    bytes += draw % 3 ? "ab c"[draw / 3 % 4] : static_cast<char>(draw / 3);
  }
  return bytes;
}

const std::string kWordPieces =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\nable\n!\n$\ne\ncafe\n中\nstraße\n##s\n";

std::unique_ptr<Tokenizer> wordpieces(const std::string& lines = kWordPieces) {
  const TemporaryFolder home;
  return load_vocabulary(home.file("vocab.txt", lines), {});
}

}  // namespace

TEST_CASE("sentencepiece joins the best-scoring neighbours first, the left ones of equals") {
  const auto tokenizer = pieces();
  CHECK(tokenizer->name() == "sentencepiece");
  // The blank in front joins "a" only where "a" has not gone elsewhere: "bc" (-4) goes before "ab" (-5) and " a" (-8).
  CHECK(tokenizer->encode("abc") == Ids{1, first, first + 6});
  CHECK(tokenizer->encode("ab") == Ids{1, first, first + 4});
  CHECK(tokenizer->encode("aaa") == Ids{1, first, first + 7, first + 1});
  CHECK(tokenizer->encode("a") == Ids{1, first + 8});
  CHECK(tokenizer->encode("") == Ids{});
  CHECK(tokenizer->start_id() == 1);
}

TEST_CASE("sentencepiece writes characters without a piece as bytes, and never takes a name in the text for a byte") {
  const auto tokenizer = pieces();
  CHECK(tokenizer->encode("\n") == Ids{1, first, 3 + 10});
  CHECK(tokenizer->encode("é") == Ids{1, first, first + 9});
  CHECK(tokenizer->encode("ö") == Ids{1, first, 3 + 0xC3, 3 + 0xB6});
  CHECK(tokenizer->encode("<0x41>") ==
        Ids{1, first, first + 10, first + 11, first + 12, first + 13, first + 14, first + 15});
  CHECK(tokenizer->decode(Ids{1, first, 3 + 10}) == "\n");
}

TEST_CASE("sentencepiece gives any bytes back, and all bytes are covered") {
  const auto tokenizer = pieces();
  std::vector<std::string> texts = {" ",   "  ", " a", "<s>", "</s>a<unk>", "\xE2\x96\x81", std::string("\0x", 2),
                                    "\xC3"};
  for (std::uint64_t seed = 0; seed < 40; ++seed) texts.push_back(random_bytes(seed, seed * 5));
  for (const std::string& text : texts) check_round_trip(*tokenizer, text);
}

TEST_CASE("sentencepiece takes <s> in a text for the start of another, if it is told to") {
  const auto tokenizer = pieces(true);
  CHECK(tokenizer->encode("a<s>abc</s>") == Ids{1, first + 8, 1, first, first + 6, 2});
  CHECK(tokenizer->encode("<s>a") == Ids{1, first + 8});
  CHECK(tokenizer->covered_bytes("<s>a", Ids{1, first + 8}, 1) == 3);
  for (const char* text : {"a<s>b", "ab<s><s> a", "a</s>b<s>", " <s> "}) check_round_trip(*tokenizer, text);
  const auto again = Tokenizer::from_json(tokenizer->to_json(), "json");
  CHECK(again->encode("a<s>a") == Ids{1, first + 8, 1, first + 8});
}

TEST_CASE("sentencepiece's tokens survive tokenizer.json and llama2.c's file") {
  const TemporaryFolder home;
  const auto tokenizer = pieces();
  const auto again = Tokenizer::from_json(parse_json(dump_json(tokenizer->to_json()), "json"), "json");
  CHECK(again->fingerprint() == tokenizer->fingerprint());
  CHECK(again->encode("abc ö") == tokenizer->encode("abc ö"));
  CHECK(write_tokenizer_files(*tokenizer, home.path(), {.llama2c = true}) == std::vector<std::string>{"tokenizer.bin"});
  CHECK(read_file(home.path() / "tokenizer.bin").substr(4) == llama2c_file().substr(4));
  CHECK(load_vocabulary(home.path().string(), {})->fingerprint() == tokenizer->fingerprint());
  TokenizerOptions options;
  options.specials = {"<s>", "<pad>"};
  const auto more = load_vocabulary(home.path().string(), options);
  CHECK(more->vocab_size() == tokenizer->vocab_size() + 1);
  CHECK(more->pad_id() == tokenizer->vocab_size());
}

TEST_CASE("sentencepiece's own model file gives the same kind of tokens") {
  const auto tokenizer = load_vocabulary("tests/train/models/pretrained/llama", {});
  REQUIRE(tokenizer->vocab_size() == 267);
  CHECK(tokenizer->encode("the tho") == Ids{1, 265, 263, 261, 266});
  CHECK(tokenizer->encode("h\xC3\xA9o") == Ids{1, 259, 261, 3 + 0xC3, 3 + 0xA9, 266});
  CHECK(tokenizer->decode(tokenizer->encode("the \n tho")) == "the \n tho");
}

TEST_CASE("damaged sentencepiece files are refused") {
  const TemporaryFolder home;
  const auto refused = [&](const char* name, const std::string& bytes, const char* message) {
    CHECK_THROWS_WITH_AS(load_vocabulary(home.file(name, bytes), {}), doctest::Contains(message), Error);
  };
  const std::string bin = llama2c_file(), model = read_file("tests/train/models/pretrained/llama/tokenizer.model");
  refused("a.bin", bin.substr(0, bin.size() - 1), "piece 274 at byte");
  refused("a.bin", bin.substr(0, 100), "the token <0x04> is missing, so not every text has tokens");
  refused("a.bin", bin + piece_bytes(std::numeric_limits<float>::quiet_NaN(), "z"), "the score of 'z' is not a number");
  refused("a.bin", "", "there are no pieces");
  refused("a.model", model.substr(0, 20), "this is not a sound sentencepiece model");
  refused("a.model", "\x0f", "this is not a sound sentencepiece model");
  const std::size_t end = model.size() - 20;  // the trainer's and the normaliser's fields
  REQUIRE(model.substr(end, 4) == "\x12\x02\x18\x02");
  const std::string front = model.substr(0, end), trainer = "\x12\x02\x18\x02";
  refused("a.model", front + "\x12\x02\x18\x01", "a model of type 1 is not supported; only BPE (2)");
  refused("a.model", front, "a model of type 1 is not supported");
  refused("a.model", front + trainer, "remove_extra_whitespaces=true is not supported");
  refused("a.model", front + trainer + "\x1a\x03\x12\x01x", "a normaliser that changes characters is not supported");
  refused("a.model", std::string("\x0a\x05\x0a\x01q\x18\x04"), "the piece 'q' is user-defined, which is not supported");
}

TEST_CASE("a damaged tokenizer.json of a sentencepiece or wordpiece run is refused") {
  const auto refused = [](Json json, const char* key, const Json& value, const char* message) {
    json[key] = value;
    CHECK_THROWS_WITH_AS(Tokenizer::from_json(json, "t.json"), doctest::Contains(message), Error);
  };
  const Json json = pieces()->to_json(), words = wordpieces()->to_json();
  refused(json, "scores", {1, 2}, "t.json: expected as many 'scores' as 'pieces', which are 275");
  refused(json, "pieces", {nullptr, nullptr, nullptr, nullptr}, "'pieces' has more places for special tokens (null)");
  refused(json, "pieces", {"a"}, "'pieces' has no place (null) for the special token '<unk>'");
  refused(words, "pieces", {nullptr, nullptr, nullptr, nullptr, nullptr, "a", "a"}, "the token 'a' stands there twice");
  refused(words, "fold", 1, "fold");
}

TEST_CASE("WordPiece takes the longest pieces from the left; a word without pieces is [UNK] as a whole") {
  const auto tokenizer = wordpieces();
  CHECK(tokenizer->name() == "wordpiece");
  CHECK(tokenizer->encode("unaffable able") == Ids{5, 6, 7, 8});
  CHECK(tokenizer->encode("unaffablex un") == Ids{1, 5});
  CHECK(tokenizer->encode("able!!$") == Ids{8, 9, 9, 10});
  CHECK(tokenizer->encode(std::string(101, 'e') + " e") == Ids{1, 11});
  CHECK(tokenizer->encode("[SEP]") == Ids{1, 1, 1});
  CHECK(tokenizer->special_id("<sep>") == 3);
  CHECK(tokenizer->special_id("<cls>") == 2);
  CHECK(tokenizer->pad_id() == 0);
}

TEST_CASE("WordPiece of an uncased vocabulary sees small letters without accents") {
  const auto tokenizer = wordpieces();
  CHECK(tokenizer->encode("CAFÉ Cafe\u0301 É") == Ids{12, 12, 11});
  CHECK(tokenizer->encode("Straße") == Ids{14});
  CHECK(tokenizer->encode("un\u200baff\xff"
                          "able\tun\u3000un中中") == Ids{5, 6, 7, 5, 5, 13, 13});
  // Kana lose their voicing marks and Hangul becomes letters: all characters of general category Mn go after NFD.
  const auto others = wordpieces("[PAD]\n[UNK]\nか\n\u1112\n##\u1161\n##\u11ab\nłodz\n");
  CHECK(others->encode("が 한 ŁÓDŹ") == Ids{2, 3, 4, 5, 6});
  const auto cased = wordpieces("[PAD]\n[UNK]\nUn\n##É\n");
  CHECK(cased->encode("UnÉ un") == Ids{2, 3, 1});
}

TEST_CASE("WordPiece joins words by spaces, and tokens cover the text they were cut from") {
  const auto tokenizer = wordpieces();
  const std::string text =
      "  UNaffable, CAFÉ\xff"
      "!";
  const Ids ids = tokenizer->encode(text);
  REQUIRE(ids == Ids{5, 6, 7, 1, 12, 9});
  CHECK(tokenizer->decode(ids) == "unaffable [UNK] cafe !");
  const std::int64_t ends[] = {0, 4, 7, 11, 12, 18};
  for (std::size_t i = 0; i < std::size(ends); ++i) CHECK(tokenizer->covered_bytes(text, ids, i) == ends[i]);
  CHECK(tokenizer->covered_bytes(text, ids, 6) == std::ssize(text));
}

TEST_CASE("WordPiece's tokens survive tokenizer.json and vocab.txt, and missing special tokens follow behind") {
  const TemporaryFolder home;
  const auto tokenizer = wordpieces();
  CHECK(Tokenizer::from_json(tokenizer->to_json(), "json")->fingerprint() == tokenizer->fingerprint());
  CHECK(write_tokenizer_files(*tokenizer, home.path()) ==
        std::vector<std::string>{"vocab.txt", "tokenizer.json", "special_tokens_map.json", "tokenizer_config.json"});
  CHECK(read_file(home.path() / "vocab.txt") == kWordPieces);
  TokenizerOptions options;
  options.specials = {"<pad>", "<new>"};
  CHECK(load_vocabulary(home.path().string(), {})->fingerprint() == tokenizer->fingerprint());
  const auto more = load_vocabulary(home.path().string(), options);
  CHECK(more->vocab_size() == tokenizer->vocab_size() + 1);
  CHECK(more->special_id("<new>") == tokenizer->vocab_size());
}

TEST_CASE("damaged vocab.txt files are refused with their line") {
  CHECK_THROWS_WITH_AS(wordpieces("[UNK]\n\na\n"), doctest::Contains("vocab.txt:2: this line has no token"), Error);
  CHECK_THROWS_WITH_AS(wordpieces("[PAD]\na\n"), doctest::Contains("the token '[UNK]' is missing"), Error);
  CHECK_THROWS_WITH_AS(wordpieces("[UNK]\n##a\n##a\n"), doctest::Contains("the token '##a' stands there twice"), Error);
}

TEST_CASE("GPT-2's files are written as they are read") {
  const TemporaryFolder home;
  const auto tokenizer = load_vocabulary("tests/train/models/pretrained/gpt2", {});
  write_tokenizer_files(*tokenizer, home.path());
  CHECK(read_json(home.path() / "vocab.json") == read_json("tests/train/models/pretrained/gpt2/vocab.json"));
  CHECK(read_file(home.path() / "merges.txt") == read_file("tests/train/models/pretrained/gpt2/merges.txt"));
  CHECK(load_vocabulary(home.path().string(), {})->fingerprint() == tokenizer->fingerprint());
}
