// The joining of sentencepiece's BPE: of all neighbours whose joined text is a piece, those that make the piece of the
// best score are joined first, the left ones before the right. A text of any length is cut where no piece can reach
// across, and each stretch is joined by itself, in bounded memory.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace flexformer {

class ScoredMerges {
 public:
  struct Piece {
    std::string_view text;  // must live as long as the merges
    float score;
    std::int32_t id;
  };
  // byte_ids: the token of each byte, for characters that are no piece. Of two pieces of one text the first counts.
  ScoredMerges(std::span<const Piece> pieces, const std::array<std::int32_t, 256>& byte_ids);

  // Appends the ids of `text` and returns how many of its bytes they stand for: all if the text `ends` here, else those
  // that no later byte can change. Several threads take turns.
  std::size_t append(std::string_view text, bool ends, std::vector<std::int32_t>& ids) const;

  // Bytes behind a settled place that were looked at. Where pieces may reach across every place for longer than
  // kStretch, as in a row of one letter, a token's end this far from the last byte counts as settled: what follows
  // could reach back there only through a chain of thousands of joins, each of a better score than the one it prevents.
  static constexpr std::size_t kReach = 1 << 16, kStretch = 1 << 18;

 private:
  // Two neighbours that make a piece: where the left one starts, and how long both are together.
  struct Candidate {
    float score;
    std::uint32_t at, length;
    std::int32_t piece;
    bool operator<(const Candidate& other) const { return score != other.score ? score < other.score : at > other.at; }
  };
  // A part that starts at a byte: its length (0: none starts there), its piece, and the start of the one before.
  struct Part {
    std::uint32_t length = 0, before = none;
    std::int32_t piece = -1;
  };
  static constexpr std::uint32_t none = UINT32_MAX;

  // What a short stretch became. A stretch has one place and takes it over.
  static constexpr std::size_t max_bytes = 23, max_ids = 9;
  static constexpr int log2_entries = 15;
  struct Entry {
    std::array<std::uint64_t, 3> key{};  // the bytes, then zeros; the last byte is their number (0: the entry is free)
    std::array<std::int32_t, max_ids> ids{};
    std::int32_t count = 0;
  };

  bool may_join(std::uint32_t left, std::uint32_t right) const;
  std::size_t stretch_end(std::string_view text, std::size_t from, bool ends) const;
  std::int32_t find(std::string_view text) const;
  void consider(std::string_view text, std::uint32_t at) const;
  void join(std::string_view text) const;
  void append_stretch(std::string_view text, std::vector<std::int32_t>& ids) const;
  void append_parts(std::string_view text, std::size_t end, std::vector<std::int32_t>& ids) const;

  std::vector<Piece> pieces_;
  std::unordered_map<std::string_view, std::int32_t> by_text_;  // their places in pieces_
  std::array<std::int32_t, 256> byte_ids_;
  std::array<std::array<bool, 128>, 128> ascii_pairs_{};  // characters that stand side by side in some piece
  std::vector<std::uint64_t> other_pairs_;                // sorted

  mutable std::mutex mutex_;
  mutable std::vector<Part> parts_;  // of the stretch being joined
  mutable std::vector<Candidate> queue_;
  mutable std::vector<Entry> cache_;
};

}  // namespace flexformer
