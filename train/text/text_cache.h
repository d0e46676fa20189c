// Long texts are tokenised once: the tokens stay in a file beside the text, which later runs map into memory.
//
//   FILE.tokens-XXXXXXXX        the tokens of FILE; X: the tokenizer's fingerprint
//   FILE.vocabulary-XXXXXXXX    the word, char or bpe tokenizer made from FILE; X: the options it was made with
//
// They hold what they were made from, and are made anew when that has changed. Nothing else depends on them: they may
// be deleted at any time (rm FILE.tokens-* FILE.vocabulary-*). Where the text's folder cannot be written to, the tokens
// go into the run folder, and failing that stay in memory.
#pragma once
#include <filesystem>

#include "train/text/tokenized_text.h"

namespace flexformer {

struct CacheOptions {
  PieceReading reading = {};              // its console also hears what is made, found and why
  std::string place = "auto";             // "auto": as above; "none": all in memory; else a folder for these files
  std::filesystem::path run_folder = {};  // the second place of "auto"; empty: there is none
  Index min_bytes = kLongText;            // of a text whose tokens are kept in a file
};

// The tokens of a text: from its token file, or made and, for a long text, kept. Throws as tokenize() does; a token
// file that is damaged or cannot be written is only told to the console.
TokenizedText cached_tokens(TextSource& text, const Tokenizer& tokenizer, const CacheOptions& cache);

// make_tokenizer(kind, texts, ...), kept beside the first text if that is long.
std::unique_ptr<Tokenizer> cached_tokenizer(const std::string& kind, std::span<TextSource> texts,
                                            const TokenizerOptions& options, const CacheOptions& cache);

// Where the tokens of a file are kept, best place first; empty: nowhere.
std::vector<std::filesystem::path> token_file_places(const TextSource& text, const Tokenizer& tokenizer,
                                                     const CacheOptions& cache);

}  // namespace flexformer
