// How many tokens of a text its vocabulary lacks: what a model sees as <unk> it cannot learn from.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "train/text/token_row.h"
#include "train/tokenizers/tokenizer.h"

namespace flexformer {

struct UnknownShare {
  std::string name;  // "training"
  double share = 0;  // of its tokens
};

// Whether texts may hold words or characters that become <unk>: not so for vocabularies that take any bytes.
bool may_be_unknown(const Tokenizer& tokenizer);

// The share of `unknown` in a row.
double unknown_share(const TokenRow& row, std::int32_t unknown);

// "unknown words (<unk>): training 1.2 %, validation 3.4 %", and a warning with the remedy for those above a fifth.
// `keep_rare`: the option that keeps rare words, if there is one.
std::vector<std::string> describe_unknown(std::span<const UnknownShare> shares, const Tokenizer& tokenizer,
                                          const std::string& keep_rare = "");

}  // namespace flexformer
