// GPT-2's tokenizer (Radford et al. 2019): byte pair merging within the pieces that this pattern finds,
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// cut by hand: at each place the first alternative that fits takes all it can, which only the class of the next
// characters decides. GPT-2 knows no bytes that are not UTF-8; here each counts as "other", the class of U+FFFD, which
// usually stands for such a byte: pieces end where they would with it, but the text comes back byte for byte.
#pragma once
#include <functional>
#include <utility>

#include "train/tokenizers/tokenizer_merges.h"
#include "train/tokenizers/tokenizer_published.h"

namespace flexformer {

using IdPair = std::pair<std::int32_t, std::int32_t>;  // the two ids of a merge

// Hands out the pieces of a text; together they are the text.
class Gpt2Scanner {
 public:
  explicit Gpt2Scanner(std::string_view text) : text_(text) {}

  // The next piece, or false at the end of the text.
  bool next(std::string_view& piece);
  std::size_t position() const { return at_; }  // the first byte not yet read

 private:
  void take_run();

  std::string_view text_;
  std::size_t at_ = 0;
};

// What is done about numbers before the pattern sees a text: nothing, or each digit or each run of digits is a piece.
enum class Digits { with_blank, single, run };

struct Gpt2Vocabulary {
  std::vector<std::string> tokens;        // by id: bytes, and the names of special tokens
  std::vector<std::int32_t> special_ids;  // in rising order
  std::vector<IdPair> merges;             // each makes the token that is its two parts side by side
  TextRules rules = {};
  Digits digits = Digits::with_blank;
  bool prefix_space = false;  // a stretch that does not begin with a blank gets one
};

class Gpt2Tokenizer final : public PublishedTokenizer {
 public:
  // Names the place of a merge in messages, by its number.
  using MergePlace = std::function<std::string(std::size_t)>;

  // Throws Error "source: ..." or "place: ..." if a byte has no token, a token stands twice, or a merge makes none.
  Gpt2Tokenizer(Gpt2Vocabulary vocabulary, bool lowercase, const std::string& source, const MergePlace& place);
  static std::unique_ptr<Tokenizer> from_json(const Json& json, const std::vector<std::string>& specials,
                                              bool lowercase, const std::string& source);

  std::string name() const override { return "gpt2"; }
  std::string decode_next(std::int32_t previous, std::int32_t id) const override;
  std::int64_t covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                             std::size_t count) const override;
  const std::vector<IdPair>& merges() const { return merges_; }
  Digits digits() const { return digits_; }
  bool prefix_space() const { return prefix_space_; }

 protected:
  std::size_t append_tokens(const Stretch& stretch, std::vector<std::int32_t>& ids) const override;
  std::vector<std::size_t> ends_of(const Stretch& stretch, std::span<const std::int32_t> ids) const override;
  void add_to_json(Json& json) const override;

 private:
  bool gets_blank(const Stretch& stretch) const;

  std::vector<IdPair> merges_;
  Digits digits_;
  bool prefix_space_;
  std::unique_ptr<CachedMerges> cached_merges_;
};

}  // namespace flexformer
