// Text for language models: one long row of token ids to train on and one to validate on.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/text/text_cache.h"

namespace flexformer {

struct TextData {
  TokenRow train, valid;
  std::int64_t train_bytes = 0, valid_bytes = 0;  // of text that the tokens cover; exact for every tokenizer
  std::int64_t valid_target_bytes = 0;            // valid_bytes without the first token, which nothing predicts
  std::string train_name, valid_name;             // files, for messages
  std::string train_fingerprint, valid_fingerprint;
  bool split_off = false;       // valid is the end of the training text
  bool valid_is_train = false;  // ... or, that being too short to share, all of it: the user should be told
};

// Without `valid` (null) the last tenth of the tokens is split off; a text of fewer than 20 tokens serves for both. The
// byte counts of the two parts add up to the size of the text.
// Throws Error, naming the text: there is none; a validation text of fewer than 2 tokens; what the tokenizer refuses.
TextData make_text_data(std::string_view train, const std::string& train_name, const std::string_view* valid,
                        const std::string& valid_name, const Tokenizer& tokenizer);
// The same from texts of any length; null for no validation text.
TextData make_text_data(TextSource& train, TextSource* valid, const Tokenizer& tokenizer, const CacheOptions& cache);
// The same from files; "" for no validation file.
TextData load_text_data(const std::string& train_path, const std::string& valid_path, const Tokenizer& tokenizer,
                        const CacheOptions& cache = {});

// How many windows of `block` inputs, each with the token after it as a target, start in a text: tokens - block, or 0.
std::int64_t window_count(std::int64_t tokens, std::int64_t block);

// Throws Error naming the tokens, the block size and the largest one possible, unless data.train has a window. A
// validation text shorter than a block is fine: it is evaluated as one shorter window.
void check_block(const TextData& data, std::int64_t block);

}  // namespace flexformer
