// Tokenizers in the files that others read.
#pragma once
#include <filesystem>

#include "train/tokenizers/tokenizer.h"

namespace flexformer {

// Writes the files that load_vocabulary() reads into a folder: vocab.json and merges.txt for gpt2, vocab.txt for
// wordpiece, tokenizer.bin for sentencepiece, and our own tokenizer.json for the other kinds. Returns their names.
std::vector<std::string> write_tokenizer_files(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace flexformer
