#include "train/text/unknown_share.h"

#include <algorithm>

#include "train/util/log.h"

namespace flexformer {
namespace {

constexpr double kTooMany = 0.2;

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

}  // namespace

bool may_be_unknown(const Tokenizer& tokenizer) {
  const std::string kind = tokenizer.name();
  return tokenizer.unknown_id() >= 0 && (kind == "word" || kind == "char" || kind == "wordpiece");
}

double unknown_share(const TokenRow& row, std::int32_t unknown) {
  constexpr Index at_once = 1 << 16;
  std::vector<std::int32_t> ids(at_once);
  Index count = 0;
  const auto size = Index(row.size());
  for (Index at = 0; at < size; at += at_once) {
    const Index part = std::min(at_once, size - at);
    row.copy(at, part, ids.data());
    count += std::count(ids.begin(), ids.begin() + part, unknown);
  }
  return size ? double(count) / double(size) : 0;
}

std::vector<std::string> describe_unknown(std::span<const UnknownShare> shares, const Tokenizer& tokenizer,
                                          const std::string& keep_rare) {
  const std::string what = tokenizer.name() == "char" ? "characters" : "words";
  std::string all, many;
  for (const UnknownShare& set : shares) {
    all += (all.empty() ? "" : ", ") + set.name + " " + percent(set.share);
    if (set.share > kTooMany)
      many += (many.empty() ? "" : ", ") + percent(set.share) + " of the " + set.name + " tokens";
  }
  std::vector<std::string> lines = {"unknown " + what + " (<unk>): " + all};
  if (many.empty()) return lines;
  const std::string remedy = tokenizer.name() == "char" ? "--data.tokenizer=byte" : "--data.tokenizer=char or bpe";
  lines.push_back("warning: " + many + " are <unk>, " + what +
                  " that the vocabulary lacks: nothing can be learned from " + "them; " + remedy + " reads any text" +
                  (keep_rare.empty() || what == "characters" ? "" : ", --" + keep_rare + " keeps rare words"));
  return lines;
}

}  // namespace flexformer
