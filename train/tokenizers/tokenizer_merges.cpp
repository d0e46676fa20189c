// Short pieces are scanned again for each merge, which is fastest for words. For long ones the pairs wait in a heap and
// the symbols form a linked list, so that a megabyte without a space takes no quadratic time.
#include "train/tokenizers/tokenizer_merges.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>

#include "tensor/error.h"

namespace flexformer {
namespace {

constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15;  // 2^64 / 1.618: multiplying by it spreads keys evenly

}  // namespace

PairMerges::PairMerges(const std::array<std::int32_t, 256>& byte_ids, std::span<const PairMerge> merges)
    : byte_ids_(byte_ids), slots_(std::bit_ceil(2 * merges.size() + 2)), shift_(64 - std::countr_zero(slots_.size())) {
  std::int32_t rank = 0;
  for (const PairMerge& merge : merges) {
    const std::uint64_t key = pair_key(merge.left, merge.right);
    Slot& slot = slots_[slot_of(key)];
    if (slot.rank == none) slot = {key, rank, merge.result};
    ++rank;
  }
}

std::size_t PairMerges::slot_of(std::uint64_t key) const {
  auto at = static_cast<std::size_t>((key * golden_ratio) >> shift_);
  while (slots_[at].rank != none && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

PairMerges::Slot PairMerges::find(std::int32_t left, std::int32_t right) const {
  return slots_[slot_of(pair_key(left, right))];
}

void PairMerges::append_short(std::array<std::int32_t, max_short>& symbol, std::size_t count,
                              std::vector<std::int32_t>& ids) const {
  std::array<Slot, max_short> pair;  // pair[i]: the merge of symbols i and i + 1
  for (std::size_t i = 0; i + 1 < count; ++i) pair[i] = find(symbol[i], symbol[i + 1]);
  for (;;) {
    std::int32_t best = none;
    for (std::size_t i = 0; i + 1 < count; ++i) best = std::min(best, pair[i].rank);
    if (best == none) break;
    pair[count - 1].rank = none;
    std::size_t kept = 0;
    std::array<bool, max_short> changed{};
    for (std::size_t i = 0; i < count; ++i, ++kept) {
      const bool joins = pair[i].rank == best;
      symbol[kept] = joins ? pair[i].result : symbol[i];
      pair[kept] = pair[i];
      if (!joins) continue;
      changed[kept] = true;
      if (kept > 0) changed[kept - 1] = true;
      ++i;
    }
    count = kept;
    for (std::size_t i = 0; i + 1 < count; ++i)
      if (changed[i]) pair[i] = find(symbol[i], symbol[i + 1]);
  }
  ids.insert(ids.end(), symbol.begin(), symbol.begin() + static_cast<std::ptrdiff_t>(count));
}

// The symbols of a piece. Pairs are named by the position of their left symbol; an entry of the heap is out of date
// when its rank is not that of the pair any more.
class PairMerges::LongPiece {
 public:
  LongPiece(const PairMerges& merges, std::span<const std::int32_t> ids) : merges_(merges), symbols_(ids.size()) {
    const auto count = static_cast<std::uint32_t>(ids.size());
    for (std::uint32_t i = 0; i < count; ++i) symbols_[i] = {ids[i], none, 0, i - 1, i + 1};
    std::vector<Candidate> candidates;
    for (std::uint32_t i = 0; i + 1 < count; ++i)
      if (look_up(i)) candidates.push_back({symbols_[i].rank, i});
    heap_ = Heap(std::greater<>(), std::move(candidates));
  }

  void merge() {
    std::vector<std::uint32_t> changed;
    while (!heap_.empty()) {
      // All occurrences of one pair, from left to right, before any pair that they bring about.
      const std::int32_t rank = heap_.top().rank;
      changed.clear();
      for (; !heap_.empty() && heap_.top().rank == rank; heap_.pop())
        if (const std::uint32_t at = heap_.top().at; symbols_[at].rank == rank) join(at, changed);
      for (const std::uint32_t at : changed)
        if (symbols_[at].alive && look_up(at)) heap_.push({symbols_[at].rank, at});
    }
  }

  void append_to(std::vector<std::int32_t>& ids) const {
    for (std::uint32_t at = 0; at < symbols_.size(); at = symbols_[at].next) ids.push_back(symbols_[at].id);
  }

 private:
  struct Symbol {
    std::int32_t id, rank, result;  // rank and result of the merge with the next symbol
    std::uint32_t previous, next;   // positions; past both ends of the piece: size() or more
    bool alive = true;
  };
  struct Candidate {
    std::int32_t rank;
    std::uint32_t at;
    auto operator<=>(const Candidate&) const = default;
  };
  using Heap = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

  // Whether the symbol at `at` and the next one can be joined.
  bool look_up(std::uint32_t at) {
    Symbol& symbol = symbols_[at];
    if (symbol.next >= symbols_.size()) return false;
    const Slot slot = merges_.find(symbol.id, symbols_[symbol.next].id);
    symbol.rank = slot.rank;
    symbol.result = slot.result;
    return slot.rank != none;
  }

  void join(std::uint32_t at, std::vector<std::uint32_t>& changed) {
    Symbol &left = symbols_[at], &right = symbols_[left.next];
    left.id = left.result;
    left.next = right.next;
    right.alive = false;
    left.rank = right.rank = none;
    if (left.next < symbols_.size()) symbols_[left.next].previous = at;
    changed.push_back(at);
    if (left.previous >= symbols_.size()) return;
    symbols_[left.previous].rank = none;
    changed.push_back(left.previous);
  }

  const PairMerges& merges_;
  std::vector<Symbol> symbols_;
  Heap heap_;
};

void PairMerges::append(std::string_view piece, std::vector<std::int32_t>& ids) const {
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (piece.size() <= max_short) {
    std::array<std::int32_t, max_short> symbols;
    std::ranges::transform(piece, symbols.begin(), id_of);
    return append_short(symbols, piece.size(), ids);
  }
  if (piece.size() >= UINT32_MAX)
    fail("a piece of text without a break has ", piece.size(), " bytes; 4 GiB is the limit");
  std::vector<std::int32_t> symbols(piece.size());
  std::ranges::transform(piece, symbols.begin(), id_of);
  append(symbols, ids);
}

void PairMerges::append(std::span<const std::int32_t> given, std::vector<std::int32_t>& ids) const {
  if (given.size() <= max_short) {
    std::array<std::int32_t, max_short> symbols;
    std::ranges::copy(given, symbols.begin());
    return append_short(symbols, given.size(), ids);
  }
  LongPiece symbols(*this, given);
  symbols.merge();
  symbols.append_to(ids);
}

void CachedMerges::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (piece.size() > max_bytes) return merges_.append(piece, ids);
  if (cache_.empty()) cache_.resize(std::size_t{1} << log2_entries);
  std::array<char, 24> bytes{};
  std::copy(piece.begin(), piece.end(), bytes.begin());
  bytes.back() = static_cast<char>(piece.size());
  const auto key = std::bit_cast<std::array<std::uint64_t, 3>>(bytes);
  std::uint64_t hash = 0;
  for (const std::uint64_t word : key) hash = (std::rotl(hash, 29) ^ word) * golden_ratio;
  Entry& entry = cache_[hash >> (64 - log2_entries)];
  if (entry.key == key) {
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const std::size_t start = ids.size();
  merges_.append(piece, ids);
  const std::size_t count = ids.size() - start;
  if (count > max_ids) return;
  entry.key = key;
  entry.count = static_cast<std::int32_t>(count);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(start), ids.end(), entry.ids.begin());
}

}  // namespace flexformer
