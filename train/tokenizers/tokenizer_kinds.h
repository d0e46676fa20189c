// The kinds of tokenizer that are made from texts, for the factory alone. Each is built from its vocabulary; train_*()
// finds that vocabulary.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/tokenizer_counts.h"
#include "train/tokenizers/tokenizer_gpt2.h"
#include "train/tokenizers/tokenizer_merges.h"
#include "train/util/utf8.h"

namespace flexformer {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer(std::vector<std::string> specials, bool lowercase);
  std::string name() const override { return "byte"; }

 protected:
  std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const override;
  void add_to_json(Json&) const override {}
};

class CharTokenizer final : public Tokenizer {
 public:
  // tokens: specials first, then one code point or one stray byte each.
  CharTokenizer(std::vector<std::string> tokens, std::int64_t special_count, bool lowercase);
  std::string name() const override { return "char"; }

 protected:
  std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const override;
  void add_to_json(Json& json) const override;

 private:
  std::unordered_map<std::uint32_t, std::int32_t> ids_;  // by code point; stray bytes follow behind U+10FFFF
};

class WordTokenizer final : public Tokenizer {
 public:
  // tokens: specials first, "<unk>" among them.
  WordTokenizer(std::vector<std::string> tokens, std::int64_t special_count, bool lowercase, bool keep_newlines,
                bool split_punctuation);
  std::string name() const override { return "word"; }
  std::int64_t covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                             std::size_t count) const override;

 protected:
  std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const override;
  bool space_between(std::int32_t left, std::int32_t right) const override;
  void add_to_json(Json& json) const override;

 private:
  std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>> ids_;
  bool keep_newlines_, split_punctuation_;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // The ids: specials, bytes, then what each merge makes of two earlier ones.
  BpeTokenizer(std::vector<std::string> specials, bool lowercase, std::vector<IdPair> merges);
  std::string name() const override { return "bpe"; }

 protected:
  std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const override;
  void add_to_json(Json& json) const override;

 private:
  std::vector<IdPair> merges_;
  CachedMerges cached_merges_;
};

// How bpe cuts a text before it merges, as a regular expression; only that it also ends a piece after 64 bytes.
const std::string& bpe_pattern();

// The tokens by id of json[key], an array with null in the places of special tokens, which `specials` names in order.
// Throws Error "source: ..." unless it has a place for each, and for an empty token.
std::vector<std::string> tokens_by_id(const Json& json, const char* key, const std::vector<std::string>& specials,
                                      std::vector<std::int32_t>& special_ids, const std::string& source);

// The specials with "<unk>" in front where they lack it.
std::vector<std::string> with_unknown(std::vector<std::string> specials);

std::unique_ptr<Tokenizer> train_char(std::span<TextSource> texts, const TokenizerOptions& options,
                                      const PieceReading& reading);
std::unique_ptr<Tokenizer> train_word(std::span<TextSource> texts, const TokenizerOptions& options,
                                      const PieceReading& reading);
std::unique_ptr<Tokenizer> train_bpe(std::span<TextSource> texts, const TokenizerOptions& options,
                                     const PieceReading& reading);

}  // namespace flexformer
