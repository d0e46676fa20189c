// How often each word of a text occurs, for vocabularies, in a memory that is bounded whatever the text is: lossy
// counting (Manku & Motwani 2002). While there are no more different words than the limit the counts are exact.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tensor/error.h"
#include "train/tokenizers/text_folding.h"
#include "train/util/text_source.h"

namespace flexformer {

// Looks words up by string_view, without a copy.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

class PieceCounts {
 public:
  using Map = std::unordered_map<std::string, std::int64_t, StringHash, std::equal_to<>>;

  // limit: different pieces in memory.
  explicit PieceCounts(std::int64_t limit) : limit_(static_cast<std::size_t>(limit)) {}

  void add(std::string_view piece) {
    if (const auto found = counts_.find(piece); found != counts_.end()) {
      ++found->second;
      return;
    }
    if (counts_.size() >= limit_) drop_rarest();
    counts_.emplace(piece, 1);
  }
  void erase(const std::string& piece) { counts_.erase(piece); }
  void clear() { counts_ = {}; }
  const Map& all() const { return counts_; }
  // By how much any count may be too low, which is also the most often a missing piece may occur. 0: all are exact.
  std::int64_t error() const { return error_; }

 private:
  void drop_rarest() {
    for (std::int64_t rare = 1; counts_.size() > limit_ / 4 * 3; ++rare, ++error_)
      std::erase_if(counts_, [&](const auto& piece) { return piece.second <= rare; });
  }

  std::size_t limit_;
  std::int64_t error_ = 0;
  Map counts_;
};

// Counts what the scanner that scan(text) makes of the folded text hands out.
template <class Scan>
PieceCounts count_pieces(std::span<TextSource> texts, const TextFolding& folding, std::int64_t limit,
                         const PieceReading& reading, const Scan& scan) {
  PieceCounts counts(limit);
  for (TextSource& text : texts)
    for_each_part(text, reading, "counting the words of", [&](const TextPart& part) {
      std::vector<std::string_view> pieces;
      const auto cut = [&](const TextPart& folded) {
        pieces.clear();
        PartScanner scanner(scan(folded.text), folded);
        for (std::string_view piece; scanner.next(piece);) pieces.push_back(piece);
        return scanner.done();
      };
      return cut_folded(part, folding, cut, [&] {
        for (const std::string_view piece : pieces) counts.add(piece);
      });
    });
  if (counts.error() > 0 && reading.console)
    reading.console->say(text("there are more than ", grouped(limit),
                              " different words: the rarest were left out, some ", "of which may occur up to ",
                              grouped(counts.error()), " times"));
  return counts;
}

}  // namespace flexformer
