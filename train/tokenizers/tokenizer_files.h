// Tokenizers in the files that others read.
#pragma once
#include <filesystem>

#include "train/tokenizers/tokenizer.h"

namespace flexformer {

// What a tokenizer does not know of the model that it is for.
struct TokenizerUse {
  std::string frame = "plain";  // data.frame: what stands around texts
  bool llama2c = false;         // in llama2.c's own file
  std::int64_t longest = 0;     // the model's context; 0: not known
};

// Writes the files that load_vocabulary() reads into a folder, under the names and in the formats of Hugging Face:
// vocab.json, merges.txt and tokenizer.json for gpt2, bpe and byte; vocab.txt and tokenizer.json for wordpiece;
// tokenizer.model, or where it cannot say all, tokenizer.json for sentencepiece; and beside them tokenizer_config.json
// and special_tokens_map.json. Kinds of our own without a counterpart become flexformer_tokenizer.json. Unused tokens
// at the end are left out. Returns the names of the files.
std::vector<std::string> write_tokenizer_files(const Tokenizer& tokenizer, const std::filesystem::path& folder,
                                               const TokenizerUse& use = {});

inline constexpr const char* kOwnTokenizerFile = "flexformer_tokenizer.json";

}  // namespace flexformer
