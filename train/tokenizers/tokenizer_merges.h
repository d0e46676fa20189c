// Byte pair merging (Sennrich et al. 2016, on bytes): a piece of text becomes byte tokens, and neighbours are joined
// in the order of a list of merges. Texts repeat themselves, so a cache of fixed size answers for most pieces.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace flexformer {

struct PairMerge {
  std::int32_t left = 0, right = 0;  // the ids that stand side by side
  std::int32_t result = 0;           // the id that replaces both
};

// Two ids as one number, in the order of (left, right).
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(left) << 32) | static_cast<std::uint32_t>(right);
}

// The list of merges. A merge's rank is its place in the list; of two merges of one pair the first counts.
class PairMerges {
 public:
  // byte_ids: the token of each byte.
  PairMerges(const std::array<std::int32_t, 256>& byte_ids, std::span<const PairMerge> merges);

  // Appends the ids of `piece`: again and again, all occurrences of the pair of lowest rank are joined, from left to
  // right, until no pair is in the list. n bytes take n log n steps at most. Throws Error for 4 GiB or more.
  void append(std::string_view piece, std::vector<std::int32_t>& ids) const;
  // The same for symbols that are tokens already.
  void append(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::int32_t none = INT32_MAX;  // a rank that no merge has
  struct Slot {
    std::uint64_t key = 0;
    std::int32_t rank = none;  // none: the slot is free
    std::int32_t result = 0;
  };
  class LongPiece;
  static constexpr std::size_t max_short = 64;  // symbols

  Slot find(std::int32_t left, std::int32_t right) const;
  std::size_t slot_of(std::uint64_t key) const;
  void append_short(std::array<std::int32_t, max_short>& symbols, std::size_t count,
                    std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // a hash table of 2^n slots, at most half of them taken; a pair sits in the next free one
  int shift_ = 0;            // 64 - n
};

// PairMerges with a memory. append() may be called by several threads; they take turns.
class CachedMerges {
 public:
  CachedMerges(const std::array<std::int32_t, 256>& byte_ids, std::span<const PairMerge> merges)
      : merges_(byte_ids, merges) {}

  // Appends the ids of all pieces that scanner.next(piece) hands out until it returns false.
  template <class Scanner> void append(Scanner&& scanner, std::vector<std::int32_t>& ids) const {
    const std::lock_guard lock(mutex_);
    for (std::string_view piece; scanner.next(piece);) append_piece(piece, ids);
  }

 private:
  static constexpr std::size_t max_bytes = 23, max_ids = 9;  // of a piece that is remembered; longer ones are rare
  static constexpr int log2_entries = 15;
  struct Entry {                         // one line of the processor's cache
    std::array<std::uint64_t, 3> key{};  // the bytes, then zeros; the last byte is their number (0: the entry is free)
    std::array<std::int32_t, max_ids> ids{};
    std::int32_t count = 0;
  };

  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;

  PairMerges merges_;
  mutable std::mutex mutex_;
  mutable std::vector<Entry> cache_;  // 2 MiB, made by the first append(); a piece has one place and takes it over
};

}  // namespace flexformer
