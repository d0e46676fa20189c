// Tokenizers: text -> token ids -> text. Every kind is a table of byte strings, some of them special tokens; kinds
// differ only in how they cut a text into entries of the table. So decoding, byte counts and files are written once.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/tokenizers/text_folding.h"
#include "train/util/json_file.h"
#include "train/util/text_source.h"

namespace flexformer {

// What was found out while a ready vocabulary was read, for people and for whoever has to know how texts are framed.
struct VocabularyReport {
  std::vector<std::string> files, notes;
  // The tokens around one text, "$A", and around a pair, "$A" and "$B"; empty where no file says it.
  std::vector<std::string> single, pair;
};

struct TokenizerOptions {
  std::int64_t vocab = 0;      // word: largest vocabulary, 0 = no limit; bpe: the size to reach. Specials included
  std::int64_t min_count = 1;  // word: rarer words become <unk>
  bool lowercase = false;      // texts are lower-cased first
  // byte, char, word, bpe: small letters and words by Unicode, not by the scripts that older vocabularies know alone
  bool unicode = false;
  bool nfc = false;               // byte, char, word, bpe: texts are put into normal form C first
  bool keep_newlines = true;      // word: a newline is the token "\n" (language models) or mere space (classifiers)
  bool split_punctuation = true;  // word: false for texts that are already split into words by spaces
  // ready vocabularies: the name of a special token in a text, as "<|endoftext|>" or "<s>", becomes its id
  bool parse_specials = false;
  // word: distinct words that are counted at a time; bpe: half as many pieces. See make_tokenizer().
  std::int64_t word_limit = std::int64_t(1) << 20;
  // {"<pad>", "<unk>"} for classifiers. Ids 0, 1, ...; of a ready vocabulary: its own where it has them, else behind
  // it. word adds "<unk>".
  std::vector<std::string> specials = {};
  // ready vocabularies: added tokens with ids from here on are left out, as the model has no rows for them; 0: none
  std::int64_t rows = 0;
  VocabularyReport* report = nullptr;

  // Words lose their soft hyphens.
  TextFolding folding(bool words = false) const { return {lowercase, unicode, nfc, unicode && words}; }
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;

  std::int64_t vocab_size() const { return static_cast<std::int64_t>(tokens_.size()); }

  // byte, bpe, gpt2, sentencepiece: takes any bytes. char: without "<unk>" a character the vocabulary lacks throws
  // Error with the character and its line. word: an unknown word is "<unk>"; wordpiece: "[UNK]".
  std::vector<std::int32_t> encode(std::string_view text) const;

  // Appends the ids of as much of a part as no later byte can change, and returns how many bytes that is: all of the
  // last part; 0 if its first token may go on. Parts that each begin where the one before was settled give the ids that
  // encode() gives for the whole. Throws as encode() does.
  std::size_t encode_part(const TextPart& part, std::vector<std::int32_t>& ids) const;
  // The most bytes behind a token that decide where it ends.
  virtual std::size_t lookahead() const { return kLookahead; }

  // decode(encode(x)) == x for byte, char, bpe, gpt2 and sentencepiece (folded if the tokenizer folds, "<unk>" for
  // characters not known). word joins by single spaces where typography wants one (none around a newline, before
  // ",.;:!?)]}%", after "([{"); then encode(decode(ids)) == ids for ids that encode() gave. Throws Error for an id
  // outside the vocabulary.
  std::string decode(std::span<const std::int32_t> ids) const;
  // What decode() adds to the text for `id` when `previous` came just before (-1: nothing did). For streamed output.
  virtual std::string decode_next(std::int32_t previous, std::int32_t id) const;

  const std::string& token(std::int32_t id) const;  // its bytes, or the name of a special token
  // Bytes of text a token stands for; 0 for a special one. Over a whole text they add up to its size exactly for byte,
  // char, bpe and gpt2 (as long as no special token is among them). For word, spaces come on top: use covered_bytes().
  std::int64_t token_bytes(std::int32_t id) const;
  // How much of `text` its first `count` tokens cover, where the space between two tokens belongs to the second. All
  // tokens cover all bytes, so that bits per byte are exact for every kind.
  virtual std::int64_t covered_bytes(std::string_view text, std::span<const std::int32_t> ids, std::size_t count) const;

  bool is_special(std::int32_t id) const;
  // -1 if there is none of this name. "<pad>", "<unk>", "<sep>" and "<cls>" are found as BERT ("[SEP]") and RoBERTa
  // ("</s>") call them too.
  std::int32_t special_id(std::string_view special) const;
  std::int32_t unknown_id() const { return special_id("<unk>"); }
  // More than half of these tokens are "<unk>", other special ones not counted: a model can make little of such a text.
  bool mostly_unknown(std::span<const std::int32_t> ids) const;
  std::int32_t pad_id() const { return special_id("<pad>"); }
  std::int64_t special_count() const { return static_cast<std::int64_t>(special_ids_.size()); }
  // What to start generating from when there is no prompt: the newline if it is one token, else the first real token.
  virtual std::int32_t start_id() const;

  // Tokens are written by json_bytes(), so any bytes survive. The same vocabulary gives the same hash, which is made
  // once: a program asks for it several times, and a large vocabulary takes a while to write.
  Json to_json() const;
  std::uint64_t hash() const;
  std::string fingerprint() const;  // the hash in letters
  const TextFolding& folding() const { return folding_; }
  // Throws Error "source: ..." if `json` is not what to_json() writes.
  static std::unique_ptr<Tokenizer> from_json(const Json& json, const std::string& source);

 protected:
  // special_ids: in rising order. The other constructor: the first `special_count` ids.
  Tokenizer(std::vector<std::string> tokens, std::vector<std::int32_t> special_ids, bool lowercase)
      : tokens_(std::move(tokens)), special_ids_(std::move(special_ids)), folding_{.lowercase = lowercase} {}
  Tokenizer(std::vector<std::string> tokens, std::int64_t special_count, bool lowercase);

  // encode_part() of a folded text.
  virtual std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const = 0;
  virtual bool space_between(std::int32_t, std::int32_t) const { return false; }
  virtual void add_to_json(Json& json) const = 0;

  std::vector<std::string> tokens_;
  std::vector<std::int32_t> special_ids_;
  TextFolding folding_;

 private:
  friend std::unique_ptr<Tokenizer> make_tokenizer(const std::string&, std::span<TextSource>, const TokenizerOptions&,
                                                   const PieceReading&);
  mutable std::once_flag hashed_;
  mutable std::uint64_t hash_ = 0;
};

// The kinds make_tokenizer() knows: byte, char, word, bpe.
//  byte  256 byte values; no training.
//  char  the code points of the texts in order of value, then the stray bytes (those that are no UTF-8).
//  word  words by falling frequency, then by value. A word is a run of letters, digits and '_'; an apostrophe or hyphen
//        between letters or digits, and a point or comma between digits, stays inside; every other mark is a token.
//        With options.unicode so in all scripts, and characters of scripts that put no blanks between words (Chinese,
//        Japanese, Thai, Lao, Khmer, Burmese) are words of their own.
//  bpe   byte pairs: starting from 256 bytes, the most frequent neighbours within a word are joined again and again.
//        Stops early when no pair occurs twice; vocab_size() is what was reached.
const std::vector<std::string>& tokenizer_names();
bool is_tokenizer_name(std::string_view name);

// Builds the vocabulary from `texts`. Any other name than those above is that of a file or folder for
// load_vocabulary(). Throws Error: no such name or file, no text at all (char, word), a vocabulary limit below the
// smallest possible one (named in the message).
// Texts of any length are read piece by piece; of word and bpe the counts of distinct words are in memory. Beyond
// word_limit of them the rarest are dropped on the way, and the console is told.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::span<TextSource> texts,
                                          const TokenizerOptions& options, const PieceReading& reading = {});
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::span<const std::string_view> texts,
                                          const TokenizerOptions& options);
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string_view text,
                                          const TokenizerOptions& options);

// A ready vocabulary: a folder, or a file. In a folder the first of these counts; where there are several, they must
// say the same, except where a file is given by its own name:
//  tokenizer.json             written by to_json(), or by Hugging Face: byte-level BPE like GPT-2's, BPE with byte
//                             fallback like Llama's, WordPiece
//  vocab.json, merges.txt     GPT-2's tokens with their ids, and its merges, one a line
//  encoder.json, vocab.bpe    the same under the names OpenAI gave them
//  vocab.txt                  BERT's tokens, one a line (tokenizer_wordpiece.h)
//  tokenizer.model, tokenizer.bin   of sentencepiece and of llama2.c (tokenizer_sentencepiece.h), also as a file
// Of a folder added_tokens.json, tokenizer_config.json and special_tokens_map.json are read too: further tokens, which
// of all are special, lower-casing, and what stands in front of a text. Only where nothing says which tokens are
// special or whether texts are lower-cased is it guessed from the vocabulary, and then the report says so. GPT-2's
// format gives a tokenizer of the name gpt2, BERT's wordpiece, Llama's sentencepiece. Special tokens of
// options.specials that are missing follow behind the vocabulary; of the other options lowercase and parse_specials
// count. A file written by to_json() brings its own options and must have all options.specials.
// Throws Error naming file and line or key: files that are missing, damaged, do not belong together, or ask for what
// cannot be followed.
std::unique_ptr<Tokenizer> load_vocabulary(const std::string& path, const TokenizerOptions& options);

}  // namespace flexformer
