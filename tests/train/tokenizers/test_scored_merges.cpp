// Joining by scores piece by piece gives what joining the whole text gives.
#include <doctest/doctest.h>

#include <map>

#include "tensor/random.h"
#include "train/tokenizers/scored_merges.h"
#include "train/util/utf8.h"

using namespace flexformer;

namespace {

using Ids = std::vector<std::int32_t>;

struct Scored {
  std::vector<std::pair<std::string, float>> texts;
  std::array<std::int32_t, 256> byte_ids;

  explicit Scored(std::vector<std::pair<std::string, float>> pieces) : texts(std::move(pieces)) {
    for (std::size_t byte = 0; byte < 256; ++byte) byte_ids[byte] = std::int32_t(byte);
  }
  std::vector<ScoredMerges::Piece> pieces() const {
    std::vector<ScoredMerges::Piece> out;
    for (const auto& [text, score] : texts) out.push_back({text, score, std::int32_t(256 + out.size())});
    return out;
  }
  // From the definition: look through all neighbours, join the best, begin again.
  Ids naive(std::string_view text) const {
    std::map<std::string_view, std::int32_t> ids;
    for (std::size_t i = 0; i < texts.size(); ++i) ids.emplace(texts[i].first, std::int32_t(i));
    std::vector<std::string_view> parts;
    for (std::size_t at = 0; at < text.size(); at += parts.back().size())
      parts.push_back(text.substr(at, next_code_point(text, at).length));
    const auto find = [&](std::string_view part) {
      const auto found = ids.find(part);
      return found == ids.end() ? -1 : found->second;
    };
    for (;;) {
      std::size_t best = parts.size();
      float score = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const std::int32_t joined = find({parts[i].data(), parts[i].size() + parts[i + 1].size()});
        if (find(parts[i]) < 0 || find(parts[i + 1]) < 0 || joined < 0) continue;
        if (best < parts.size() && texts[std::size_t(joined)].second <= score) continue;
        best = i;
        score = texts[std::size_t(joined)].second;
      }
      if (best == parts.size()) break;
      parts[best] = {parts[best].data(), parts[best].size() + parts[best + 1].size()};
      parts.erase(parts.begin() + std::ptrdiff_t(best) + 1);
    }
    Ids out;
    for (const std::string_view part : parts) {
      if (const std::int32_t id = find(part); id >= 0)
        out.push_back(256 + id);
      else
        for (const char byte : part) out.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    }
    return out;
  }
};

// The text in pieces of `size` bytes at first, twice as many where nothing was settled.
Ids in_pieces(const ScoredMerges& merges, std::string_view text, std::size_t size) {
  Ids ids;
  std::size_t count = size;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view part = text.substr(at, count);
    const std::size_t done = merges.append(part, at + part.size() == text.size(), ids);
    at += done;
    count = done ? size : 2 * count;
  }
  return ids;
}

}  // namespace

TEST_CASE("scored merges: any pieces of a text give the tokens of the whole") {
  const Scored words({{" ", -20},
                      {"a", -21},
                      {"b", -22},
                      {"c", -23},
                      {"ab", -5},
                      {"bc", -4},
                      {"abc", -6},
                      {"aa", -7},
                      {" a", -8},
                      {"é", -24},
                      {"aé", -3},
                      {"aaaa", -1},
                      {" ab", -2},
                      {"日", -9},
                      {"本", -9},
                      {"日本", -9},
                      {"  ", -10}});
  const ScoredMerges merges(words.pieces(), words.byte_ids);
  const char* parts[] = {" ", "a", "b", "c", "é", "\n", "日", "本", "\xE6\x97", "\xFF", "x", "aaaa"};
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (std::size_t count = random.below(60); count > 0; --count) text += parts[random.below(std::size(parts))];
    CAPTURE(text);
    const Ids wanted = words.naive(text);
    for (const std::size_t size : {1, 3, 8, 1000}) CHECK(in_pieces(merges, text, size) == wanted);
  }
}

TEST_CASE("scored merges: pieces of random vocabularies agree with the whole text") {
  Random random(11);
  for (int i = 0; i < 60; ++i) {
    std::vector<std::pair<std::string, float>> pieces = {{"a", 0}, {"b", 0}, {"c", 0}};
    for (int n = 0; n < 12; ++n) {
      std::string piece;
      for (std::size_t length = 2 + random.below(4); length > 0; --length) piece += "abc"[random.below(3)];
      pieces.emplace_back(piece, float(random.below(6)));
    }
    const Scored scored(pieces);
    const ScoredMerges merges(scored.pieces(), scored.byte_ids);
    std::string text;
    for (int n = 0; n < 80; ++n) text += "abcd"[random.below(4)];
    CHECK(in_pieces(merges, text, 5) == scored.naive(text));
  }
}

TEST_CASE("scored merges: a row of one letter is cut in bounded memory, to the tokens of the whole") {
  const Scored letters({{"a", -9}, {"aa", -1}, {"aaaa", -2}, {"aaaaaaaa", -3}, {"b", -9}, {"ab", -4}});
  const ScoredMerges merges(letters.pieces(), letters.byte_ids);
  const std::size_t count = 3 * (ScoredMerges::kStretch + ScoredMerges::kReach) + 5;
  const std::string text(count, 'a');
  Ids wanted(count / 8, 259);
  wanted.push_back(258);  // five are left: four, and one
  wanted.push_back(256);
  REQUIRE(count % 8 == 5);
  CHECK(in_pieces(merges, text, count) == wanted);
  CHECK(in_pieces(merges, text, std::size_t(1) << 17) == wanted);
  // Two letters by turns, where the pairs from the second letter on come first.
  const Scored pairs({{"a", -9}, {"b", -9}, {"ba", -1}, {"ab", -2}, {"baba", -3}});
  const ScoredMerges turns(pairs.pieces(), pairs.byte_ids);
  std::string by_turns;
  while (by_turns.size() < count) by_turns += "ab";
  const Ids all = in_pieces(turns, by_turns, by_turns.size());
  CHECK(in_pieces(turns, by_turns, std::size_t(1) << 17) == all);
  CHECK(all.front() == 256);
  CHECK(all.back() == (by_turns.size() % 8 == 4 ? 260 : all.back()));
}
