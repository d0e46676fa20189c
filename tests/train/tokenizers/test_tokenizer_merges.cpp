// Byte pair merging against the plainest way to do it, on merges in any order; long pieces, and a cache that must not
// show.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tensor/random.h"
#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/tokenizer_merges.h"

using namespace flexformer;
using Ids = std::vector<std::int32_t>;

namespace {

std::array<std::int32_t, 256> plain_bytes() {
  std::array<std::int32_t, 256> ids;
  for (std::int32_t byte = 0; byte < 256; ++byte) ids[static_cast<std::size_t>(byte)] = byte;
  return ids;
}

// Joins every occurrence of the pair that comes first in the list, until none is left.
Ids merged(std::string_view piece, const std::vector<PairMerge>& merges) {
  Ids ids;
  for (const char byte : piece) ids.push_back(static_cast<unsigned char>(byte));
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < merges.size(); ++rank)
    ranks.try_emplace({merges[rank].left, merges[rank].right}, rank);
  for (;;) {
    std::size_t best = merges.size();
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      if (const auto found = ranks.find({ids[i], ids[i + 1]}); found != ranks.end())
        best = std::min(best, found->second);
    if (best == merges.size()) return ids;
    Ids joined;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool joins = i + 1 < ids.size() && ids[i] == merges[best].left && ids[i + 1] == merges[best].right;
      joined.push_back(joins ? merges[best].result : ids[i]);
      i += joins;
    }
    ids = joined;
  }
}

// Merges of bytes a to d and of each other's results in any order; some pairs and results come twice.
std::vector<PairMerge> random_merges(Random& random, std::size_t count) {
  const auto any_id = [&] {
    const auto draw = static_cast<std::int32_t>(random.below(4 + count / 2));
    return draw < 4 ? 'a' + draw : 252 + draw;
  };
  std::vector<PairMerge> merges;
  for (std::size_t i = 0; i < count; ++i)
    merges.push_back({any_id(), any_id(), 256 + static_cast<std::int32_t>(random.below(count / 2))});
  return merges;
}

std::string random_letters(Random& random, std::size_t size) {
  std::string letters;
  while (letters.size() < size) letters.push_back(static_cast<char>('a' + random.below(4)));
  return letters;
}

// Hands out pieces of a fixed size.
struct EqualPieces {
  std::string_view text;
  std::size_t size;
  bool next(std::string_view& piece) {
    piece = text.substr(0, size);
    text.remove_prefix(piece.size());
    return !piece.empty();
  }
};

}  // namespace

TEST_CASE("pieces of any length are merged as by joining the first pair everywhere, again and again") {
  Random random(11);
  for (int round = 0; round < 40; ++round) {
    const std::vector<PairMerge> merges = random_merges(random, 2 + random.below(60));
    const PairMerges fast(plain_bytes(), merges);
    for (const std::size_t size : {0, 1, 2, 3, 7, 30, 63, 64, 65, 66, 100, 300}) {
      const std::string piece = random_letters(random, size);
      CAPTURE(piece);
      Ids ids{-1};
      fast.append(piece, ids);
      Ids expected = merged(piece, merges);
      expected.insert(expected.begin(), -1);
      CHECK(ids == expected);
    }
  }
}

TEST_CASE("the cache of pieces does not show, with more pieces than it holds") {
  Random random(12);
  const std::vector<PairMerge> merges = random_merges(random, 40);
  const PairMerges fast(plain_bytes(), merges);
  const CachedMerges cached(plain_bytes(), merges);
  std::string text = random_letters(random, 700'000);
  text[5] = '\0';
  text[21] = '\xFF';
  for (const std::size_t size : {9, 1, 2, 23, 24, 9}) {
    Ids ids, expected;
    cached.append(EqualPieces{text, size}, ids);
    EqualPieces all{text, size};
    for (std::string_view piece; all.next(piece);) fast.append(piece, expected);
    CHECK(ids == expected);
  }
}

TEST_CASE("a piece of a million equal bytes is merged in no quadratic time") {
  std::vector<PairMerge> merges;  // a run of 2^k, for k up to 10
  for (std::int32_t id = 0; id < 10; ++id) merges.push_back({id ? 255 + id : 'a', id ? 255 + id : 'a', 256 + id});
  Ids ids;
  PairMerges(plain_bytes(), merges).append(std::string(1'000'000, 'a'), ids);
  Ids expected(1'000'000 / 1024, 265);  // 976 of them are 999424 bytes; 576 more are 512 + 64
  expected.insert(expected.end(), {264, 261});
  CHECK(ids == expected);
}

TEST_CASE("bpe gives any bytes back") {
  Random random(13);
  std::string sample = random_letters(random, 2000) + " the cat \xF0\x9F\x98\x80\r\n\r\n  \xFF\xFF \x80";
  const auto tokenizer = make_tokenizer("bpe", sample, {.vocab = 400});
  CHECK(tokenizer->vocab_size() > 350);
  const auto check = [&](const std::string& text) { CHECK(tokenizer->decode(tokenizer->encode(text)) == text); };
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (std::size_t left = random.below(200); left > 0; --left)
      bytes.push_back(random.below(2) ? static_cast<char>(random.below(256)) : sample[random.below(sample.size())]);
    check(bytes);
  }
  for (const char* part : {"a", " ", "\n", "\r\n", "\x80", "\xF0\x9F\x98\x80", "ab ", "9"}) {
    std::string run;
    while (run.size() < 100'000) run += part;
    check(run);
  }
  check(std::string(1000, '\0'));
}
