// GPT-2's tokenizer (Radford et al. 2019): byte pair merging within the pieces that this pattern finds,
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// cut by hand: at each place the first alternative that fits takes all it can, which only the class of the next
// characters decides. GPT-2 knows no bytes that are not UTF-8; here each counts as "other", the class of U+FFFD, which
// usually stands for such a byte: pieces end where they would with it, but the text comes back byte for byte.
#pragma once
#include <functional>
#include <utility>

#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/tokenizer_merges.h"

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

struct Gpt2Vocabulary {
  std::vector<std::string> tokens;        // by id: bytes, and the names of special tokens
  std::vector<std::int32_t> special_ids;  // in rising order
  std::vector<IdPair> merges;             // each makes the token that is its two parts side by side
};

class Gpt2Tokenizer final : public Tokenizer {
 public:
  // Names the place of a merge in messages, by its number.
  using MergePlace = std::function<std::string(std::size_t)>;

  // Throws Error "source: ..." or "place: ..." if a byte has no token, a token stands twice, or a merge makes none.
  Gpt2Tokenizer(Gpt2Vocabulary vocabulary, bool lowercase, bool parse_specials, const std::string& source,
                const MergePlace& place);
  static std::unique_ptr<Tokenizer> from_json(const Json& json, const std::vector<std::string>& specials,
                                              bool lowercase, const std::string& source);

  std::string name() const override { return "gpt2"; }
  std::size_t lookahead() const override { return kLookahead + longest_special_; }
  std::int64_t covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                             std::size_t count) const override;

 protected:
  std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const override;
  void add_to_json(Json& json) const override;

 private:
  std::vector<IdPair> merges_;
  bool parse_specials_;
  std::size_t longest_special_ = 0;  // bytes; 0 where they are not looked for
  std::unique_ptr<CachedMerges> cached_merges_;
};

}  // namespace flexformer
