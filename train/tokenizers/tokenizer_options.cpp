// One key names a kind of tokenizer or a place in the file system; kinds go before files of the same name.
#include "train/tokenizers/tokenizer_options.h"

#include <filesystem>

#include "train/util/utf8.h"

namespace flexformer {

void add_tokenizer_options(Options& options, const std::string& kind, const std::string& note) {
  options.add_path(
      "data.tokenizer", kind,
      "how text is cut into tokens: byte, char, word, bpe, or a file or folder with a ready vocabulary "
      "(tokenizer.json, GPT-2's vocab.json and merges.txt, BERT's vocab.txt, sentencepiece's tokenizer.model, or "
      "llama2.c's tokenizer.bin)" +
          note);
  options.add_flag("data.split_punctuation", true,
                   "word: punctuation marks are tokens of their own; false for text that is split by spaces already");
  options.add_choice(
      "data.normalize", "nfc", {"nfc", "none"},
      "byte, char, word, bpe: texts are put into normal form C first, so that letters with accents are the "
      "same however they were typed; none: bytes stay as they are");
  options.add_flag("data.parse_specials", false,
                   "ready vocabularies: names of special tokens in a text, as <|endoftext|> or <s>, become those "
                   "tokens");
  options.add_integer(
      "data.vocab", 0,
      {.max = 1e7, .unit = "tokens", .help = "largest vocabulary of word and bpe; 0: no limit (bpe: 8192)"});
}

void settle_tokenizer_options(Options& options) {
  const std::string& kind = options.text("data.tokenizer");
  if (!options.text("init").empty() || is_tokenizer_name(kind)) return;
  std::error_code error;
  if (!std::filesystem::exists(kind, error))
    throw UsageError(text("data.tokenizer = ", quote(kind),
                          " is not allowed; it takes one of byte, char, word, bpe, or ",
                          "a file or folder that exists; the nearest is ", nearest(kind, tokenizer_names())));
  if (options.has("data.lowercase") && !options.given("data.lowercase")) options.set("data.lowercase", false);
}

TokenizerOptions tokenizer_options(const Options& options, const std::string& kind) {
  TokenizerOptions t;
  t.vocab = options.integer("data.vocab");
  if (kind == "bpe" && t.vocab == 0) t.vocab = 8192;
  t.split_punctuation = options.flag("data.split_punctuation");
  t.unicode = true;
  t.nfc = options.text("data.normalize") == "nfc";
  t.parse_specials = options.flag("data.parse_specials");
  return t;
}

void record_tokenizer(Options& options, const Tokenizer& tokenizer) {
  if (is_tokenizer_name(options.text("data.tokenizer"))) options.set("data.tokenizer", tokenizer.name());
  options.set("data.normalize", tokenizer.folding().nfc ? "nfc" : "none");
}

}  // namespace flexformer
