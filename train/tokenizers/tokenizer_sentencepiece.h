// The BPE of sentencepiece (Kudo and Richardson 2018), as Llama 2 and llama2.c use it. A text gets a blank in front and
// is cut into characters; of all neighbours whose joined text is a piece, those that make the piece of the best score
// are joined first, the left ones before the right, until no two make a piece. A character without a piece becomes its
// bytes, each a token "<0x0A>", so that every byte string has tokens and comes back.
#pragma once
#include <array>
#include <filesystem>
#include <unordered_map>

#include "train/tokenizers/scored_merges.h"
#include "train/tokenizers/tokenizer_merges.h"
#include "train/tokenizers/tokenizer_published.h"

namespace flexformer {

// How sentencepiece spells a space, U+2581, and pieces with one or the other.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
std::string with_spaces(std::string_view piece);
std::string with_space_marks(std::string_view piece);

struct SentencePieceVocabulary {
  // Where a stretch of text gets a blank in front: each between special tokens, only the first, none.
  enum Prefix { always, first, never };

  std::vector<std::string> pieces;        // by id; byte tokens are written "<0x0A>", blanks as " "
  std::vector<float> scores;              // by id
  std::vector<std::int32_t> special_ids;  // in rising order
  std::vector<std::pair<std::int32_t, std::int32_t>> merges =
      {};  // by rank; where there are any, they count instead of scores
  TextRules rules = {};
  Prefix prefix = always;
  bool only_missing = false;  // a stretch that begins with a blank gets no other
  bool adds_start = true;     // a text starts with "<s>"
};

class SentencePieceTokenizer final : public PublishedTokenizer {
 public:
  // Throws Error "source: ..." if a byte token is missing, a score is not a number, or a merge makes no piece.
  SentencePieceTokenizer(SentencePieceVocabulary vocabulary, bool lowercase, const std::string& source);
  static std::unique_ptr<Tokenizer> from_json(const Json& json, const std::vector<std::string>& specials,
                                              bool lowercase, const std::string& source);

  std::string name() const override { return "sentencepiece"; }
  // A text starts with "<s>" where there is such a token; it and the blank in front of the text do not come back. With
  // parse_specials a file holds many texts, and "<s>" stands between them.
  std::string decode_next(std::int32_t previous, std::int32_t id) const override;
  std::size_t lookahead() const override { return PublishedTokenizer::lookahead() + ScoredMerges::kReach; }
  std::int32_t start_id() const override { return start_ >= 0 ? start_ : Tokenizer::start_id(); }

  const SentencePieceVocabulary& vocabulary() const { return given_; }
  const std::vector<float>& scores() const { return given_.scores; }
  std::string piece(std::int32_t id) const;  // as in SentencePieceVocabulary

 protected:
  std::size_t append_tokens(const Stretch& stretch, std::vector<std::int32_t>& ids) const override;
  std::vector<std::size_t> ends_of(const Stretch& stretch, std::span<const std::int32_t> ids) const override;
  void add_to_json(Json& json) const override;

 private:
  // By merges of pairs: what is settled of a stretch.
  std::size_t append_merged(std::string_view text, bool ends, std::vector<std::int32_t>& ids) const;
  bool gets_blank(const Stretch& stretch) const;
  std::int32_t piece_of(std::string_view text) const;

  SentencePieceVocabulary given_;      // without pieces, special_ids and rules, which lie in the bases
  std::unique_ptr<PairMerges> pairs_;  // in place of merges_
  bool blanks_begin_pieces_ = true;    // no piece has a blank behind its first character
  std::unordered_map<std::string_view, std::int32_t> ids_;  // of pieces that text can make; keys lie in tokens_
  std::array<std::int32_t, 256> byte_ids_;
  std::unique_ptr<ScoredMerges> merges_;  // of the pieces that text can make
  std::int32_t start_ = -1;
};

// Whether the name ends as those of the files that read_sentencepiece() reads.
bool is_sentencepiece_file(const std::filesystem::path& path);
// Reads llama2.c's .bin (int32 longest piece; float32 score, int32 length and bytes of each piece) or sentencepiece's
// own .model (a protobuf message) of type BPE. Throws Error, naming the file, if it is damaged or of another type.
SentencePieceVocabulary read_sentencepiece(const std::filesystem::path& path);
// The inverses, for llama2.c's format and, of the first `count` tokens, for sentencepiece's own.
std::string write_llama2c_tokenizer(const SentencePieceTokenizer& tokenizer);
std::string write_sentencepiece_model(const SentencePieceTokenizer& tokenizer, std::int64_t count);

}  // namespace flexformer
