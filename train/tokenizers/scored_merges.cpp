// Joining goes through a queue of candidate pairs, best first. A pair whose parts have changed since it was queued is
// recognised by its length and thrown away. Where a token ends for good, what is left of it and what is right of it
// became what they are without each other, so a text may be cut there.
#include "train/tokenizers/scored_merges.h"

#include <algorithm>
#include <cstring>

#include "train/util/utf8.h"

namespace flexformer {
namespace {

// Stray bytes are characters of their own.
std::uint32_t character(const CodePoint& unit) { return unit.valid ? unit.value : unit.value | 0x80000000u; }

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t(left) << 32 | right; }

}  // namespace

ScoredMerges::ScoredMerges(std::span<const Piece> pieces, const std::array<std::int32_t, 256>& byte_ids)
    : pieces_(pieces.begin(), pieces.end()), byte_ids_(byte_ids) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const std::string_view text = pieces_[i].text;
    by_text_.emplace(text, std::int32_t(i));
    std::uint32_t left = 0;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint unit = next_code_point(text, at);
      const std::uint32_t right = character(unit);
      if (at > 0 && left < 128 && right < 128)
        ascii_pairs_[left][right] = true;
      else if (at > 0)
        other_pairs_.push_back(pair_of(left, right));
      left = right;
      at += unit.length;
    }
  }
  std::ranges::sort(other_pairs_);
  other_pairs_.erase(std::unique(other_pairs_.begin(), other_pairs_.end()), other_pairs_.end());
}

bool ScoredMerges::may_join(std::uint32_t left, std::uint32_t right) const {
  if (left < 128 && right < 128) return ascii_pairs_[left][right];
  return std::ranges::binary_search(other_pairs_, pair_of(left, right));
}

// The first place behind `from` that no piece reaches across; 0 if there is none, or it is too far away, or cannot be
// known yet.
std::size_t ScoredMerges::stretch_end(std::string_view text, std::size_t from, bool ends) const {
  constexpr std::size_t longest_character = 4;
  const std::size_t known = ends ? text.size() : text.size() - std::min(text.size(), longest_character);
  const std::size_t limit = std::min(known, from + kStretch + kReach);
  std::uint32_t left = 0;
  for (std::size_t at = from; at < text.size();) {
    if (at > limit) return 0;
    const CodePoint unit = next_code_point(text, at);
    const std::uint32_t right = character(unit);
    if (at > from && !may_join(left, right)) return at;
    left = right;
    at += unit.length;
  }
  return ends ? text.size() : 0;
}

std::int32_t ScoredMerges::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? -1 : found->second;
}

// The part at `at` and the next.
void ScoredMerges::consider(std::string_view text, std::uint32_t at) const {
  const std::uint32_t next = at + parts_[at].length;
  if (next >= text.size() || parts_[at].piece < 0 || parts_[next].piece < 0) return;
  const std::uint32_t joined = parts_[at].length + parts_[next].length;
  const std::int32_t piece = find(text.substr(at, joined));
  if (piece < 0) return;
  queue_.push_back({pieces_[std::size_t(piece)].score, at, joined, piece});
  std::push_heap(queue_.begin(), queue_.end());
}

// Leaves the tokens of `text` in parts_.
void ScoredMerges::join(std::string_view text) const {
  const auto size = std::uint32_t(text.size());
  parts_.assign(text.size() + 1, {});
  queue_.clear();
  for (std::uint32_t at = 0; at < size; at += parts_[at].length) {
    const auto length = std::uint32_t(next_code_point(text, at).length);
    parts_[at].length = length;
    parts_[at].piece = find(text.substr(at, length));
    parts_[at + length].before = at;
  }
  for (std::uint32_t at = 0; at < size; at += parts_[at].length) consider(text, at);
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    const Candidate best = queue_.back();
    queue_.pop_back();
    Part& left = parts_[best.at];
    const std::uint32_t middle = best.at + left.length, end = best.at + best.length;
    if (left.length == 0 || middle >= end || middle + parts_[middle].length != end) continue;
    parts_[middle].length = 0;
    left.length = best.length;
    left.piece = best.piece;
    parts_[end].before = best.at;
    if (left.before != none) consider(text, left.before);
    consider(text, best.at);
  }
}

// The tokens of the parts before `end`.
void ScoredMerges::append_parts(std::string_view text, std::size_t end, std::vector<std::int32_t>& ids) const {
  for (std::size_t at = 0; at < end; at += parts_[at].length) {
    if (parts_[at].piece >= 0)
      ids.push_back(pieces_[std::size_t(parts_[at].piece)].id);
    else
      for (std::size_t i = at; i < at + parts_[at].length; ++i)
        ids.push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
  }
}

void ScoredMerges::append_stretch(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (text.size() > max_bytes) {
    join(text);
    return append_parts(text, text.size(), ids);
  }
  Entry wanted;
  std::memcpy(wanted.key.data(), text.data(), text.size());
  wanted.key[2] |= std::uint64_t(text.size()) << 56;
  std::uint64_t hash = wanted.key[0];
  for (const std::uint64_t word : {wanted.key[1], wanted.key[2]})
    hash = (hash ^ (hash >> 29) ^ word) * 0x9E3779B97F4A7C15;
  Entry& entry = cache_[hash >> (64 - log2_entries)];
  if (entry.key == wanted.key) {
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  join(text);
  const std::size_t before = ids.size();
  append_parts(text, text.size(), ids);
  if (ids.size() - before > max_ids) return;
  std::ranges::copy(std::span(ids).subspan(before), wanted.ids.begin());
  wanted.count = std::int32_t(ids.size() - before);
  entry = wanted;
}

std::size_t ScoredMerges::append(std::string_view text, bool ends, std::vector<std::int32_t>& ids) const {
  const std::lock_guard lock(mutex_);
  cache_.resize(std::size_t(1) << log2_entries);
  std::size_t at = 0;
  while (at < text.size()) {
    if (const std::size_t end = stretch_end(text, at, ends)) {
      append_stretch(text.substr(at, end - at), ids);
      at = end;
      continue;
    }
    const std::string_view window = text.substr(at, kStretch + kReach);
    if (window.size() <= kReach) break;
    join(window);
    std::size_t settled = 0;
    for (std::size_t next; settled < window.size(); settled = next) {
      next = settled + parts_[settled].length;
      if (next > window.size() - kReach) break;
    }
    if (settled == 0) break;
    append_parts(window, settled, ids);
    at += settled;
  }
  return at;
}

}  // namespace flexformer
