// The split is made in tokens but accounted in bytes, through Tokenizer::covered_bytes().
#include "train/text_data.h"

#include <algorithm>
#include <span>

#include "tensor/error.h"
#include "train/files.h"

namespace flexformer {
namespace {

constexpr std::size_t validation_share = 10;  // one token in ten
constexpr std::size_t min_validation_tokens = 2;

std::vector<std::int32_t> encode(std::string_view text, const std::string& name, const Tokenizer& tokenizer) {
  try {
    return tokenizer.encode(text);
  } catch (const Error& error) {
    fail(name, ": ", error.what());
  }
}

}  // namespace

TextData make_text_data(std::string_view train, const std::string& train_name, const std::string_view* valid,
                        const std::string& valid_name, const Tokenizer& tokenizer) {
  TextData data;
  data.train_name = data.valid_name = train_name;
  data.train = encode(train, train_name, tokenizer);
  if (data.train.empty()) fail(train_name, ": there is no text to train on in this file");
  std::string_view valid_text = train;
  if (valid) {
    valid_text = *valid;
    data.valid_name = valid_name;
    data.valid = encode(valid_text, valid_name, tokenizer);
    if (data.valid.size() < min_validation_tokens)
      fail(valid_name, ": ", data.valid.size(), data.valid.size() == 1 ? " token is" : " tokens are",
           " too few to validate on; at least ", min_validation_tokens, " are needed");
  } else if (const std::size_t share = data.train.size() / validation_share; share >= min_validation_tokens) {
    const std::size_t kept = data.train.size() - share;
    const auto boundary = static_cast<std::size_t>(tokenizer.covered_bytes(train, data.train, kept));
    valid_text = train.substr(boundary);
    train = train.substr(0, boundary);
    data.valid.assign(data.train.begin() + static_cast<std::ptrdiff_t>(kept), data.train.end());
    data.train.resize(kept);
    data.split_off = true;
  } else {
    data.valid = data.train;
    data.valid_is_train = true;
  }
  data.train_bytes = std::ssize(train);
  data.valid_bytes = std::ssize(valid_text);
  data.valid_target_bytes = data.valid_bytes - tokenizer.covered_bytes(valid_text, data.valid, 1);
  data.train_fingerprint = fingerprint(train);
  data.valid_fingerprint = fingerprint(valid_text);
  return data;
}

TextData load_text_data(const std::string& train_path, const std::string& valid_path, const Tokenizer& tokenizer) {
  const std::string train = read_text_file(train_path);
  if (valid_path.empty()) return make_text_data(train, train_path, nullptr, "", tokenizer);
  const std::string valid = read_text_file(valid_path);
  const std::string_view view = valid;
  return make_text_data(train, train_path, &view, valid_path, tokenizer);
}

std::int64_t window_count(std::int64_t tokens, std::int64_t block) { return std::max<std::int64_t>(tokens - block, 0); }

void check_block(const TextData& data, std::int64_t block) {
  const std::int64_t tokens = std::ssize(data.train);
  if (window_count(tokens, block) > 0) return;
  const std::string remedy = tokens < 2 ? "" : "lower train.block to at most " + std::to_string(tokens - 1) + " or ";
  fail(data.train_name, ": ", tokens, tokens == 1 ? " token is" : " tokens are", " too few for train.block=", block,
       ", which needs ", block + 1, "; ", remedy, "give a longer text");
}

}  // namespace flexformer
