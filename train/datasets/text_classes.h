// Labelled texts as a classifier sees them: token ids, cut to length, with what was cut or empty counted.
#pragma once
#include "train/datasets/table.h"
#include "train/tokenizers/tokenizer.h"

namespace flexformer {

// Tokens that every classifier vocabulary has.
inline const std::vector<std::string> kClassifierTokens = {"<pad>", "<unk>", "<sep>", "<cls>"};

struct EncodingOptions {
  std::int64_t max_length = 256;  // tokens of a text, the special ones counted
  bool start_token = false;       // <cls> first, for pooling by the first token
  bool pair = false;              // rows have two texts
  bool two_tower = false;         // ... encoded apart; otherwise joined by <sep>
  std::int64_t separators = 1;    // how many <sep> join a pair
  bool end_token = false;         // <sep> at the end of each sequence
};

struct EncodedText {
  std::vector<std::int32_t> ids, ids2;  // ids2 only for two towers; never empty otherwise
  std::int32_t label = 0;               // classification
  float number = 0;                     // regression: the standardised label, see LabelMap
  std::vector<float> values = {};       // several outputs: standardised numbers, or 1 and 0 of labels that apply or not
};

struct EncodedTexts {
  std::vector<EncodedText> rows;
  std::vector<std::int64_t> lengths;  // tokens of each row before anything was cut
  std::int64_t truncated = 0;         // rows that were longer than max_length: their end is cut off
  std::int64_t empty = 0;             // texts without a token: they became one <unk>
  std::int64_t longest = 0, tokens = 0;
  std::int64_t unknown = 0, words = 0;  // of all tokens of texts before anything was cut, those that are <unk>

  double unknown_share() const { return words ? double(unknown) / double(words) : 0; }
};

// Tokens of one row. Of a pair joined by <sep>, the longer text is cut first.
EncodedText encode_row(const Row& row, const Tokenizer& tokenizer, const EncodingOptions& options,
                       EncodedTexts* counts = nullptr);
// All rows with their labels.
EncodedTexts encode_table(const Table& table, const LabelMap& labels, const Tokenizer& tokenizer,
                          const EncodingOptions& options);

// Moves a `share` of each class's rows, at least one where there are two, to a second table: the validation rows of a
// file that has none of its own. Which rows is up to the seed, not to their order in the file. For regression the rows
// are one class.
Table split_off(Table& table, double share, std::uint64_t seed, bool regression = false);

// 0 .. count-1 in random order, a function of the key alone.
std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::uint64_t stream);

}  // namespace flexformer
