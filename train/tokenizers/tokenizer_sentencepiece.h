// The BPE of sentencepiece (Kudo and Richardson 2018), as Llama 2 and llama2.c use it. A text gets a blank in front and
// is cut into characters; of all neighbours whose joined text is a piece, those that make the piece of the best score
// are joined first, the left ones before the right, until no two make a piece. A character without a piece becomes its
// bytes, each a token "<0x0A>", so that every byte string has tokens and comes back.
#pragma once
#include <array>
#include <filesystem>

#include "train/tokenizers/scored_merges.h"
#include "train/tokenizers/tokenizer.h"

namespace flexformer {

struct SentencePieceVocabulary {
  std::vector<std::string> pieces;        // by id; byte tokens are written "<0x0A>", blanks as " "
  std::vector<float> scores;              // by id
  std::vector<std::int32_t> special_ids;  // in rising order
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Throws Error "source: ..." if a byte token is missing or a score is not a number.
  SentencePieceTokenizer(SentencePieceVocabulary vocabulary, bool lowercase, bool parse_specials,
                         const std::string& source);
  static std::unique_ptr<Tokenizer> from_json(const Json& json, const std::vector<std::string>& specials,
                                              bool lowercase, const std::string& source);

  std::string name() const override { return "sentencepiece"; }
  // A text starts with "<s>" where there is such a token; it and the blank in front of the text do not come back. With
  // parse_specials a file holds many texts, and "<s>" stands between them.
  std::string decode_next(std::int32_t previous, std::int32_t id) const override;
  std::int64_t covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                             std::size_t count) const override;
  std::size_t lookahead() const override { return kLookahead + longest_special_ + ScoredMerges::kReach; }
  std::int32_t start_id() const override { return start_ >= 0 ? start_ : Tokenizer::start_id(); }

  const std::vector<float>& scores() const { return scores_; }
  std::string piece(std::int32_t id) const;  // as in SentencePieceVocabulary

 protected:
  std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const override;
  void add_to_json(Json& json) const override;

 private:
  // Appends what is settled of a stretch of text, in front of which a blank stands where it `begins`.
  std::size_t append_stretch(std::string_view text, bool begins, bool ends, std::vector<std::int32_t>& ids) const;

  std::vector<float> scores_;
  std::array<std::int32_t, 256> byte_ids_;
  std::unique_ptr<ScoredMerges> merges_;  // of the pieces that text can make
  std::int32_t start_ = -1;
  bool parse_specials_;
  std::size_t longest_special_ = 0;  // bytes; 0 where they are not looked for
};

// Whether the name ends as those of the files that load_sentencepiece() reads.
bool is_sentencepiece_file(const std::filesystem::path& path);
// Reads llama2.c's .bin (int32 longest piece; float32 score, int32 length and bytes of each piece) or sentencepiece's
// own .model (a protobuf message) of type BPE. Missing options.specials follow behind the vocabulary. Throws Error,
// naming the file, if it is damaged or of another type.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& path, const TokenizerOptions& options);
// The inverse for llama2.c's format.
std::string write_sentencepiece(const SentencePieceTokenizer& tokenizer);

}  // namespace flexformer
