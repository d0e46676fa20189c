// Small letters, normal form C and words by Unicode, as vocabularies of one's own see a text.
#include <doctest/doctest.h>

#include "tensor/error.h"
#include "tests/train/tokenizers/text_pieces.h"
#include "train/text/unknown_share.h"
#include "train/util/unicode.h"
#include "train/util/whole_characters.h"

using namespace flexformer;

namespace {

std::vector<std::string> words(const std::string& text, bool lowercase = false, bool newlines = false) {
  TokenizerOptions options;
  options.unicode = options.nfc = true;
  options.lowercase = lowercase;
  options.keep_newlines = newlines;
  const auto tokenizer = make_tokenizer("word", text, options);
  std::vector<std::string> out;
  for (const std::int32_t id : tokenizer->encode(text)) out.push_back(tokenizer->token(id));
  return out;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("capitals of all scripts become small") {
  const std::pair<const char*, const char*> cases[] = {{"ŁÓDŹ", "łódź"},
                                                       {"ĞÜŞÖÇ", "ğüşöç"},
                                                       {"İSTANBUL", "istanbul"},
                                                       {"ΛΌΓΟΣ", "λόγοσ"},
                                                       {"λόγος", "λόγοσ"},
                                                       {"ПРИВЕТ ЁЖ", "привет ёж"},
                                                       {"ՀԱՅԵՐԵՆ", "հայերեն"},
                                                       {"ĄĘ", "ąę"},
                                                       {"ẤỬ", "ấử"},
                                                       {"ǄЏ", "ǆџ"},
                                                       {"ᲐᲑ", "აბ"},
                                                       {"Ꭰ", "ꭰ"},
                                                       {"𐐀", "𐐨"},
                                                       {"ＡＢ", "ａｂ"},
                                                       {"ẞ", "ß"},
                                                       {"日本 \xFF", "日本 \xFF"}};
  for (const auto& [capital, small] : cases) CHECK(fold_case(capital) == small);
}

TEST_CASE("words end at the marks of all scripts, and unspaced scripts are cut by character") {
  CHECK(words("Привет，мир。") == Words{"Привет", "，", "мир", "。"});
  CHECK(words("中文abc測試") == Words{"中", "文", "abc", "測", "試"});
  CHECK(words("かなカナ") == Words{"か", "な", "カ", "ナ"});
  CHECK(words("ที่นี่") == Words{"ที่", "นี่"});
  CHECK(words("한국어 문장") == Words{"한국어", "문장"});
  CHECK(words("हिन्दी में।") == Words{"हिन्दी", "में", "।"});
  CHECK(words("مرحبا، بك؟") == Words{"مرحبا", "،", "بك", "؟"});
  CHECK(words("«déjà»…don’t re‑do") == Words{"«", "déjà", "»", "…", "don’t", "re‑do"});
  CHECK(words("good😀❤️ 5€") == Words{"good", "😀", "❤️", "5", "€"});
  CHECK(words("٣٫١٤ 3,14") == Words{"٣٫١٤", "3,14"});
  CHECK(words("a\xE2\x80\x8B"
              "b\xEF\xBB\xBF"
              "c\xE2\x80\xAF"
              "d") == Words{"a", "b", "c", "d"});
  CHECK(words("İ\xCC\x81", true) == Words{"í"});
  CHECK(words("e\xC2\xAD\xCC\x87") == Words{"ė"});
  CHECK(words("hy\xC2\xADphen hyphen\xC2\xAD") == Words{"hyphen", "hyphen"});
  CHECK(words("e\xCC\x81t\xC3\xA9") == Words{"été"});
  CHECK(words("ÉTÉ E\xCC\x81T\xC3\x89", true) == Words{"été", "été"});
  TokenizerOptions options;
  options.unicode = true;
  options.keep_newlines = false;
  const std::string text = "他说：“好。” ok, 日本 x";
  const auto tokenizer = make_tokenizer("word", text, options);
  CHECK(tokenizer->decode(tokenizer->encode("日本。ok, x")) == "日本。ok, x");
}

TEST_CASE("a vocabulary without the keys cuts texts as it always did") {
  TokenizerOptions options;
  options.lowercase = true;
  const auto old = make_tokenizer("word", "Łódź 中文。", options);
  CHECK_FALSE(old->to_json().contains("unicode"));
  CHECK(old->encode("Łódź 中文。").size() == 3);  // "。" alone is a mark of theirs
  CHECK(old->decode(old->encode("ŁÓDŹ")) == "<unk>");
  options.unicode = options.nfc = true;
  const auto made = make_tokenizer("word", "Łódź 中文。", options);
  const auto read = Tokenizer::from_json(made->to_json(), "f");
  CHECK(read->fingerprint() == made->fingerprint());
  CHECK(read->decode(read->encode("ŁÓDŹ")) == "łódź");
  Json other = made->to_json();
  other["normalize"] = "nfd";
  CHECK_THROWS_WITH_AS(Tokenizer::from_json(other, "f"), "f: normalize = 'nfd' is not known; there is nfc", Error);
}

TEST_CASE("folded texts give the same tokens and figures in pieces of any size") {
  Random random(7);
  const char* parts[] = {"e\xCC\x81",
                         "q\xCC\x81\xCC\xA3",
                         "A\xCC\x8A",
                         "\xE2\x84\xAB",
                         "İ",
                         "Ⱥ",
                         "ΟΣ",
                         "\xE1\x84\x80\xE1\x85\xA1",
                         "\xE1\x86\xA8",
                         " ",
                         "\n",
                         "!",
                         "!\xCC\x81",
                         " \xCC\x81",
                         "中",
                         "한",
                         "x",
                         "<unk>",
                         "\xFF",
                         "\xCC",
                         "\x80\x80\x80\x80\x80",
                         "don’t",
                         "\xE3\x82\xAB\xE3\x82\x99",
                         "क़",
                         "\xC2\xAD",
                         "e\xC2\xAD\xCC\x87",
                         "İ\xCC\x81"};
  for (const char* kind : {"byte", "char", "word", "bpe"})
    for (const bool lowercase : {false, true})
      for (int i = 0; i < 12; ++i) {
        std::string text;
        for (std::size_t count = 1 + random.below(40); count > 0; --count)
          text += parts[random.below(std::size(parts))];
        TokenizerOptions options;
        options.unicode = options.nfc = true;
        options.lowercase = lowercase;
        options.vocab = std::string(kind) == "bpe" ? 300 : 0;
        options.specials = {"<unk>"};
        const auto tokenizer = make_tokenizer(kind, text, options);
        tests::check_pieces(*tokenizer, text);
        std::vector<TextSource> sources = {TextSource(text, "text")};
        CHECK(make_tokenizer(kind, sources, options, {.piece_bytes = 3})->fingerprint() == tokenizer->fingerprint());
        const std::vector<std::int32_t> ids = tokenizer->encode(text);
        CHECK(tokenizer->encode(tokenizer->decode(ids)) == ids);
        if (std::string(kind) == "word") continue;
        const std::string composed = normalized(text, NormalForm::nfc);
        CHECK(tokenizer->decode(ids) == (lowercase ? normalized(fold_case(composed), NormalForm::nfc) : composed));
      }
}

TEST_CASE("text that is made token by token goes out in whole characters") {
  const std::string text =
      "aé日😀\xFF"
      "b\xE6\x97"
      "c\xED\xA0\x80\xF4\x90";
  std::string all;
  WholeCharacters stream;
  for (const char byte : text) {
    const std::string out = stream.add({&byte, 1});
    CHECK(is_valid_utf8(out));
    all += out;
  }
  CHECK(all == whole_characters(text));
  CHECK(all == "aé日😀\uFFFDb\uFFFD\uFFFDc\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(whole_characters("ab\xE6\x97") == "ab");
  CHECK(whole_characters("ab\xF0\x9F\x98") == "ab");
}

TEST_CASE("the share of unknown words is told, with a warning above a fifth") {
  const auto tokenizer = make_tokenizer("word", "a b c", {});
  const TokenRow row(tokenizer->encode("a x b y c"));
  CHECK(unknown_share(row, tokenizer->unknown_id()) == 0.4);
  const UnknownShare shares[] = {{"training", 0.2}, {"validation", 0.4}};
  const std::vector<std::string> lines = describe_unknown(shares, *tokenizer, "data.min_count=1");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "unknown words (<unk>): training 20.0 %, validation 40.0 %");
  CHECK(lines[1].starts_with("warning: 40.0 % of the validation tokens are <unk>"));
  CHECK(lines[1].find("--data.tokenizer=char or bpe reads any text, --data.min_count=1 keeps") != std::string::npos);
  CHECK(describe_unknown(std::span(shares).first(1), *tokenizer).size() == 1);
  CHECK_FALSE(may_be_unknown(*make_tokenizer("bpe", "a", {.vocab = 300, .specials = {"<unk>"}})));
}
