// The split is made in tokens but accounted in bytes: the figures of a tokenised text hold both.
#include "train/text/text_data.h"

#include <algorithm>
#include <optional>

#include "tensor/error.h"

namespace flexformer {

TextData make_text_data(TextSource& train, TextSource* valid, const Tokenizer& tokenizer, const CacheOptions& cache) {
  TextData data;
  data.train_name = data.valid_name = train.name();
  const auto [tokens, figures] = cached_tokens(train, tokenizer, cache);
  if (tokens.empty()) fail(train.name(), ": there is no text to train on in this file");
  data.train = data.valid = tokens;
  data.train_bytes = data.valid_bytes = figures.bytes;
  data.train_fingerprint = data.valid_fingerprint = fingerprint(figures.hash);
  std::int64_t first_bytes = figures.first_bytes;
  if (valid) {
    data.valid_name = valid->name();
    const auto [valid_tokens, valid_figures] = cached_tokens(*valid, tokenizer, cache);
    if (valid_figures.tokens < min_validation_tokens)
      fail(valid->name(), ": ", valid_figures.tokens, valid_figures.tokens == 1 ? " token is" : " tokens are",
           " too few to validate on; at least ", min_validation_tokens, " are needed");
    data.valid = valid_tokens;
    data.valid_bytes = valid_figures.bytes;
    data.valid_fingerprint = fingerprint(valid_figures.hash);
    first_bytes = valid_figures.first_bytes;
  } else if (figures.kept < figures.tokens) {
    const auto kept = static_cast<std::size_t>(figures.kept);
    data.train = tokens.part(0, kept);
    data.valid = tokens.part(kept, tokens.size() - kept);
    data.train_bytes = figures.kept_bytes;
    data.valid_bytes = figures.bytes - figures.kept_bytes;
    data.train_fingerprint = fingerprint(figures.kept_hash);
    data.valid_fingerprint = fingerprint(figures.rest_hash);
    first_bytes = figures.rest_first_bytes;
    data.split_off = true;
  } else {
    data.valid_is_train = true;
  }
  data.valid_target_bytes = data.valid_bytes - first_bytes;
  return data;
}

TextData make_text_data(std::string_view train, const std::string& train_name, const std::string_view* valid,
                        const std::string& valid_name, const Tokenizer& tokenizer) {
  TextSource train_source(train, train_name), valid_source(valid ? *valid : std::string_view(), valid_name);
  return make_text_data(train_source, valid ? &valid_source : nullptr, tokenizer, {});
}

TextData load_text_data(const std::string& train_path, const std::string& valid_path, const Tokenizer& tokenizer,
                        const CacheOptions& cache) {
  TextSource train = TextSource::open(train_path);
  if (valid_path.empty()) return make_text_data(train, nullptr, tokenizer, cache);
  TextSource valid = TextSource::open(valid_path);
  return make_text_data(train, &valid, tokenizer, cache);
}

std::int64_t window_count(std::int64_t tokens, std::int64_t block) { return std::max<std::int64_t>(tokens - block, 0); }

void check_block(const TextData& data, std::int64_t block) {
  const auto tokens = static_cast<std::int64_t>(data.train.size());
  if (window_count(tokens, block) > 0) return;
  const std::string remedy = tokens < 2 ? "" : "lower train.block to at most " + std::to_string(tokens - 1) + " or ";
  fail(data.train_name, ": ", tokens, tokens == 1 ? " token is" : " tokens are", " too few for train.block=", block,
       ", which needs ", block + 1, "; ", remedy, "give a longer text");
}

}  // namespace flexformer
