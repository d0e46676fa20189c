// Long texts for language models: read in pieces, tokenised once, and found again as long as nothing has changed.
#include <doctest/doctest.h>

#include "tests/train/tokenizers/text_pieces.h"
#include "tests/train/training/small_runs.h"
#include "train/text/text_data.h"
#include "train/text/token_file.h"

using namespace flexformer;
using namespace flexformer::tests;
using doctest::Contains;
namespace fs = std::filesystem;

namespace {

// A text and a tokenizer in a folder of their own, with a token file however short the text is.
struct CachedText : TemporaryFolder {
  CachedText() : path(file("text.txt", small_text(400))), tokenizer(make_tokenizer("char", small_text(400), {})) {
    cache.min_bytes = 0;
    cache.reading.console = &console;
  }
  TextData load() {
    const Captured captured;
    TextData data = load_text_data(path, "", *tokenizer, cache);
    said = captured.text();
    return data;
  }
  fs::path token_file() const { return token_file_places(TextSource::open(path), *tokenizer, cache).front(); }
  void change_token_file(std::size_t at, const std::string& bytes) const {
    std::fstream file(token_file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(std::streamoff(at)).write(bytes.data(), std::streamsize(bytes.size()));
  }
  // Every file of the folder but the text.
  int files() const { return int(std::distance(fs::directory_iterator(this->TemporaryFolder::path()), {})) - 1; }
  bool heard(const std::string& words) const { return said.find(words) != std::string::npos; }

  std::string path, said;
  std::unique_ptr<Tokenizer> tokenizer;
  Console console;
  CacheOptions cache;
};

bool same(const TextData& a, const TextData& b) {
  return a.train.ids() == b.train.ids() && a.valid.ids() == b.valid.ids() && a.train_bytes == b.train_bytes &&
         a.valid_bytes == b.valid_bytes && a.valid_target_bytes == b.valid_target_bytes &&
         a.train_fingerprint == b.train_fingerprint && a.valid_fingerprint == b.valid_fingerprint &&
         a.split_off == b.split_off && a.valid_is_train == b.valid_is_train;
}

}  // namespace

TEST_CASE("pieces of any size give the tokens and the byte counts of the whole text") {
  Random random(1);
  const std::string sample = hostile_text(random, 3000);
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const std::string& name : tokenizer_names()) {
    tokenizers.push_back(make_tokenizer(name, sample, {.vocab = 300}));
    tokenizers.push_back(
        make_tokenizer(name, sample, {.vocab = 300, .lowercase = true, .specials = {"<pad>", "<unk>"}}));
  }
  tokenizers.push_back(make_tokenizer("word", sample, {.keep_newlines = false}));
  tokenizers.push_back(make_tokenizer("word", sample, {.split_punctuation = false}));
  for (const auto& tokenizer : tokenizers) {
    for (int i = 0; i < 6; ++i) check_pieces(*tokenizer, hostile_text(random, random.below(200)));
    check_pieces(*tokenizer, "");
    check_pieces(*tokenizer, std::string(50, ' '));
    check_pieces(*tokenizer, std::string(70, ' ') + "a" + std::string(70, '\n'));
  }
}

TEST_CASE("vocabularies do not depend on the size of the pieces they are learned from") {
  Random random(2);
  const std::string text = hostile_text(random, 4000);
  for (const char* name : {"char", "word", "bpe"})
    for (bool lower : {false, true})
      for (Index size : {1, 3, 100}) {
        const TokenizerOptions options{.vocab = 320, .lowercase = lower};
        TextSource source(text, "text");
        CHECK(make_tokenizer(name, std::span(&source, 1), options, {.piece_bytes = size})->fingerprint() ==
              make_tokenizer(name, text, options)->fingerprint());
      }
}

TEST_CASE("beyond the limit of distinct words the rarest are left out, and the user is told") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += flexformer::text("rare", i, " often ", i % 3 ? "some " : "");
  TextSource source(text, "text");
  Console console;
  const Captured captured;
  const auto tokenizer = make_tokenizer("word", std::span(&source, 1), {.word_limit = 40}, {.console = &console});
  CHECK(tokenizer->vocab_size() <= 41);
  CHECK(tokenizer->token(1) == "often");
  CHECK(tokenizer->token(2) == "some");
  CHECK(captured.text().find("there are more than 40 different words: the rarest were left out, some of which may "
                             "occur up to ") != std::string::npos);
}

TEST_CASE("an unknown character in a later piece is named with its line in the whole text") {
  const TemporaryFolder folder;
  const auto tokenizer = make_tokenizer("char", "ab\n", {});
  CacheOptions cache;
  cache.reading.piece_bytes = 8;
  const std::string path = folder.file("t.txt", "aaaaaaaaaa\nbbbbbbbbbb\naaaaaaaaaab?\n");
  CHECK_THROWS_WITH_AS(load_text_data(path, "", *tokenizer, cache),
                       Contains("t.txt: the character '?' (U+003F) in line 3"), Error);
  cache.min_bytes = 0;
  CHECK_THROWS_AS(load_text_data(path, "", *tokenizer, cache), Error);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);  // no half of a token file
}

TEST_CASE("a token file is written once and gives what the text gives") {
  CachedText t;
  const TextData expected = load_text_data(t.path, "", *t.tokenizer);
  CHECK(t.files() == 0);  // a short text leaves none
  t.cache.reading.piece_bytes = 50;
  CHECK(same(t.load(), expected));
  CHECK(t.heard("since there is no token file yet"));
  CHECK(t.heard("wrote " + t.token_file().string()));
  const auto written = fs::last_write_time(t.token_file());
  CHECK(same(t.load(), expected));
  CHECK(t.heard("are taken from " + t.token_file().string()));
  CHECK(fs::last_write_time(t.token_file()) == written);
  CHECK(t.files() == 1);
}

TEST_CASE("a file of its own serves each width of ids and each tokenizer") {
  CachedText t;
  std::string words;
  for (int i = 0; i < 70000; ++i) words += flexformer::text("w", i, i % 300 ? " " : "\n");
  t.path = t.file("words.txt", words);
  for (Index vocab : {256, 257, 65536, 65537}) {
    t.tokenizer = make_tokenizer("word", words, {.vocab = vocab});
    const TextData expected = load_text_data(t.path, "", *t.tokenizer);
    for (int i = 0; i < 2; ++i) CHECK(same(t.load(), expected));
    CHECK(fs::file_size(t.token_file()) == 256 + std::size_t(vocab <= 256     ? 1
                                                             : vocab <= 65536 ? 2
                                                                              : 4) *
                                                     (expected.train.size() + expected.valid.size()));
  }
  t.tokenizer = make_tokenizer("byte", "", {});
  t.load();
  CHECK(t.heard("since its token files were made with other tokenizers than this byte tokenizer"));
}

TEST_CASE("a changed text is tokenised anew") {
  CachedText t;
  t.load();
  const std::string other = small_text(400, 2);
  const auto time = fs::last_write_time(t.path);
  t.file("text.txt", other);
  fs::last_write_time(t.path, time);  // neither the time nor the size tells
  REQUIRE(same(t.load(), load_text_data(t.path, "", *t.tokenizer)));
  CHECK(t.heard("text.txt.tokens-"));
  CHECK(t.heard(": the text has changed since"));
  TextSource source = TextSource::open(t.path);
  CHECK_NOTHROW(source.check_unchanged());
  t.file("text.txt", other + "a");
  CHECK_THROWS_WITH_AS(source.check_unchanged(), Contains("text.txt was changed while it was read"), Error);
  t.file("text.txt", "a");
  CHECK_THROWS_WITH_AS(source.view(0, 100), Contains("text.txt became shorter while it was read"), Error);
}

TEST_CASE("a token file that is damaged, cut or foreign is told and replaced") {
  CachedText t;
  const TextData expected = t.load();
  const std::string good = read_file(t.token_file());
  const auto replaced = [&](const std::string& bytes, const char* why) {
    CAPTURE(why);
    write_file_atomic(t.token_file(), bytes);
    CHECK(same(t.load(), expected));
    CHECK(t.heard(why));
    CHECK(read_file(t.token_file()) == good);
  };
  const auto with = [&](std::size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    return bytes;
  };
  replaced("", "it is damaged: it has 0 bytes");
  replaced(good.substr(0, 255), "it is damaged: it has 255 bytes");
  replaced(good.substr(0, good.size() - 1), "it is damaged: it has ");
  replaced(good + "x", "it is damaged: it has ");
  replaced(std::string(300, 'x'), "it is no token file");
  replaced(with(8, 2), "it has format 2, this program reads 1");
  replaced(with(70, 1), "it is damaged: the checksum of its header is wrong");
  TokenFileKey key{TextSource::open(t.path).stamp(), 7, t.tokenizer->vocab_size()};
  TokenFileWriter other(t.token_file(), key);
  other.finish({});
  replaced(read_file(t.token_file()), "it belongs to another tokenizer");
}

TEST_CASE("an id outside the vocabulary is an error that names the file when it is used") {
  CachedText t;
  t.load();
  t.change_token_file(256 + 5, "\xFF");
  const TextData data = t.load();
  std::vector<std::int32_t> ids(10);
  CHECK_NOTHROW(data.train.copy(6, 10, ids.data()));
  CHECK_THROWS_WITH_AS(data.train.copy(0, 10, ids.data()),
                       Contains("is damaged: among its tokens 0 to 9 is one outside the vocabulary of "), Error);
  CHECK_THROWS_AS(data.train.copy(0, Index(data.train.size()) + 1, ids.data()), Error);
}

TEST_CASE("where the text's folder takes no token file the run folder does, and else memory") {
  CachedText t;
  const TextData expected = load_text_data(t.path, "", *t.tokenizer);
  t.cache.run_folder = t.TemporaryFolder::path() / "run";
  fs::create_directories(t.cache.run_folder);
  fs::create_directory(t.token_file());  // in the way
  CHECK(same(t.load(), expected));
  CHECK(t.heard("no token file here: cannot replace"));
  const fs::path second = token_file_places(TextSource::open(t.path), *t.tokenizer, t.cache).at(1);
  CHECK(t.heard("wrote " + second.string()));
  CHECK(same(t.load(), expected));
  CHECK(t.heard("are taken from " + second.string()));
  fs::remove(second);
  fs::create_directory(second);
  CHECK(same(t.load(), expected));
  CHECK(t.heard("the tokens stay in memory"));
}

TEST_CASE("data.cache names another folder or none") {
  CachedText t;
  const TextData expected = load_text_data(t.path, "", *t.tokenizer);
  t.cache.place = "none";
  CHECK(same(t.load(), expected));
  CHECK(t.files() == 0);
  t.cache.place = (t.TemporaryFolder::path() / "a" / "b").string();
  CHECK(same(t.load(), expected));
  CHECK(same(t.load(), expected));
  CHECK(t.heard("are taken from " + t.cache.place));
  CHECK(t.files() == 1);  // the folder
}

TEST_CASE("what a killed writer left is deleted after an hour, another run's file in the making is not") {
  CachedText t;
  const std::string name = t.token_file().filename().string();
  const std::string old = t.file(name + ".1.flexformer-tmp", "x"), young = t.file(name + ".2.flexformer-tmp", "x");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  t.load();
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(young));
}

TEST_CASE("a learned vocabulary is kept beside the text and learned anew when text or options change") {
  CachedText t;
  const auto made = [&](const TokenizerOptions& options) {
    std::vector<TextSource> texts = {TextSource::open(t.path)};
    const Captured captured;
    const auto tokenizer = cached_tokenizer("word", texts, options, t.cache);
    t.said = captured.text();
    CHECK(tokenizer->fingerprint() == make_tokenizer("word", read_file(t.path), options)->fingerprint());
  };
  made({});
  CHECK(t.files() == 1);
  made({});
  CHECK(t.heard("the vocabulary of " + t.path + " is taken from " + t.path + ".vocabulary-"));
  made({.vocab = 4});
  CHECK(t.said.empty());
  CHECK(t.files() == 2);
  t.file("text.txt", small_text(300, 5) + " new");
  made({});
  CHECK(t.heard("not using " + t.path + ".vocabulary-"));
  CHECK(t.heard("the text has changed since"));
}

TEST_CASE("texts split by spaces, one paragraph a line: every line counts an end, <unk> is one token") {
  const std::string lines = " \n = Title = \n \n The <unk> of 1 @,@ 000 , <unk> . \n";  // as WikiText's files
  const auto tokenizer = make_tokenizer("word", lines, {.split_punctuation = false});
  const auto ids = tokenizer->encode(lines);
  CHECK(ids.size() == 12 + 4);  // words and lines
  CHECK(std::ranges::count(ids, tokenizer->special_id("<unk>")) == 2);
  CHECK(std::ranges::count_if(ids, [&](std::int32_t id) { return tokenizer->token(id) == "\n"; }) == 4);
}
