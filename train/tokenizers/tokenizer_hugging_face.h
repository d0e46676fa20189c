// tokenizer.json of Hugging Face: what its parts say, as far as these tokenizers can follow it. All else is refused by
// key and value.
#pragma once
#include "train/tokenizers/tokenizer_gpt2.h"
#include "train/tokenizers/tokenizer_sentencepiece.h"

namespace flexformer {

using Spellings = std::pair<std::string, std::string>;  // the two parts of a merge

struct HuggingFaceTokenizer {
  std::string kind;               // gpt2, bpe (which cuts texts as ours does), wordpiece or sentencepiece
  Json vocabulary;                // {"spelling": id}
  std::vector<Spellings> merges;  // by rank
  TextNormalizer normalizer;
  Digits digits = Digits::with_blank;
  bool prefix_space = false;                                                // gpt2
  SentencePieceVocabulary::Prefix prefix = SentencePieceVocabulary::never;  // sentencepiece
  bool only_missing = false;
  std::vector<std::string> single, pair;  // as in VocabularyReport

  // Of the kind sentencepiece, with spellings by id. Merges become scores where those give the same tokens: where each
  // two neighbours that make a piece are a merge, as in what was a .model.
  SentencePieceVocabulary pieces(std::vector<std::string> spellings, const std::string& source) const;
};

HuggingFaceTokenizer read_hugging_face(const Json& json, const std::string& source);

// Appends "left right". Throws Error "place: ..." unless there is one blank between two parts.
void add_merge(std::vector<Spellings>& merges, std::string_view merge, const std::string& place);

}  // namespace flexformer
