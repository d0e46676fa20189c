// BERT's tokenizer (Devlin et al. 2019): words and single marks, each cut from left to right into the longest pieces of
// the vocabulary; pieces that go on within a word are written "##ing". A word that cannot be cut is "[UNK]". Uncased
// vocabularies see small letters without accents.
#pragma once
#include "train/tokenizers/tokenizer_kinds.h"
#include "train/tokenizers/tokenizer_published.h"

namespace flexformer {

class WordPieceTokenizer final : public PublishedTokenizer {
 public:
  // pieces by id; special_ids in rising order. Throws Error "source: ..." if a piece stands twice or "[UNK]" is
  // missing.
  WordPieceTokenizer(const std::vector<std::string>& pieces, std::vector<std::int32_t> special_ids, TextRules rules,
                     const std::string& source);
  static std::unique_ptr<Tokenizer> from_json(const Json& json, const std::vector<std::string>& specials,
                                              bool lowercase, const std::string& source);

  std::string name() const override { return "wordpiece"; }
  std::string piece(std::int32_t id) const;  // as the vocabulary spells it

 protected:
  std::size_t append_tokens(const Stretch& stretch, std::vector<std::int32_t>& ids) const override;
  std::vector<std::size_t> ends_of(const Stretch& stretch, std::span<const std::int32_t> ids) const override;
  bool space_between(std::int32_t left, std::int32_t right) const override;
  void add_to_json(Json& json) const override;

 private:
  struct Cut {
    std::int32_t id;
    std::size_t end;  // in the stretch
  };
  std::vector<Cut> cut(std::string_view text) const;
  void cut_word(std::string_view text, std::size_t begin, std::size_t end, std::vector<Cut>& cuts) const;

  using Ids = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;
  Ids starts_, inner_;          // pieces that begin a word, and those that go on
  std::vector<char> is_inner_;  // by id
};

}  // namespace flexformer
