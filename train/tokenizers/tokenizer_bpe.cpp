// Byte pairs found in the user's own text. Pairs never cross the chunks that ChunkScanner cuts (a word with the space
// before it, a run of digits, of marks, of white space), so counting distinct chunks replaces counting text. These
// rules are simpler than GPT-2's and part of every stored vocabulary: another cut would give its texts other ids.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <queue>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"

namespace flexformer {
namespace {

// A longer run without a space is cut: training scans a chunk again for each of its merges.
constexpr std::size_t max_chunk_bytes = 64;

class ChunkScanner {
 public:
  explicit ChunkScanner(std::string_view text) : text_(text) {}

  bool next(std::string_view& chunk) {
    if (at_ == text_.size()) return false;
    const std::size_t start = at_;
    if (text_[at_] == ' ' && at_ + 1 < text_.size() && kind(at_ + 1) != Kind::space) ++at_;
    const Kind first = kind(at_);
    do at_ += next_code_point(text_, at_).length;
    while (at_ < text_.size() && at_ - start < max_chunk_bytes && kind(at_) == first);
    // The last blank of a run belongs to the word that follows.
    const bool before_word = at_ < text_.size() && kind(at_) != Kind::space;
    if (first == Kind::space && before_word && text_[at_ - 1] == ' ' && at_ - start > 1) --at_;
    chunk = text_.substr(start, at_ - start);
    return true;
  }
  std::size_t position() const { return at_; }  // the first byte not yet read

 private:
  enum class Kind { space, digit, mark, letter };

  Kind kind(std::size_t at) const {
    const CodePoint unit = next_code_point(text_, at);
    if (is_space(unit)) return Kind::space;
    if (unit.value >= '0' && unit.value <= '9') return Kind::digit;
    return is_punctuation(unit) ? Kind::mark : Kind::letter;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string in_brackets(bool (*is_in)(const CodePoint&)) {
  std::string ranges;
  const auto at = [](std::uint32_t c) {
    char escaped[16];
    std::snprintf(escaped, sizeof escaped, "\\x{%X}", unsigned(c));
    return std::string(escaped);
  };
  for (std::uint32_t c = 0, end; c < 0x110000; c = end + 1) {
    end = c;
    if (!is_in({c, 1, true})) continue;
    while (is_in({end, 1, true})) ++end;
    ranges += end - c > 1 ? at(c) + "-" + at(end - 1) : at(c);
  }
  return ranges;
}

// Finds the merges. Counts of pairs are kept up to date by touching only the chunks that hold the merged pair. Only
// pairs with the new id can become more frequent, so only they enter the queue; the count of another may have fallen
// since it was queued, which is corrected when it comes up.
class BpeTrainer {
 public:
  BpeTrainer(PieceCounts counts, std::int32_t first_byte) {
    chunks_.reserve(counts.all().size());
    for (const auto& [bytes, count] : counts.all()) {
      Chunk& chunk = chunks_.emplace_back(Chunk{{}, count});
      for (const char byte : bytes) chunk.ids.push_back(first_byte + static_cast<unsigned char>(byte));
    }
    counts.clear();
    for (std::uint32_t index = 0; index < chunks_.size(); ++index) {
      const Chunk& chunk = chunks_[index];
      count_pairs(chunk, +1);
      for (std::size_t i = 0; i + 1 < chunk.ids.size(); ++i) pair_at(chunk, i).chunks.push_back(index);
    }
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  // The most frequent pair, the lowest ids among equals; false when none occurs twice.
  bool best(IdPair& merge) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const std::int64_t count = pairs_[top.key].count;
      if (count == top.count && count >= 2) {
        merge = {static_cast<std::int32_t>(top.key >> 32), static_cast<std::int32_t>(top.key & 0xFFFFFFFF)};
        return true;
      }
      queue_.pop();
      if (count >= 2) queue_.push({count, top.key});
    }
    return false;
  }

  void apply(const IdPair& merge, std::int32_t new_id) {
    std::vector<std::uint32_t> holders;
    holders.swap(pairs_[pair_key(merge.first, merge.second)].chunks);
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    std::vector<std::uint64_t> fresh;
    for (const std::uint32_t index : holders) {
      Chunk& chunk = chunks_[index];
      count_pairs(chunk, -1);
      join(chunk.ids, merge, new_id);
      count_pairs(chunk, +1);
      for (std::size_t i = 0; i + 1 < chunk.ids.size(); ++i) {
        if (chunk.ids[i] != new_id && chunk.ids[i + 1] != new_id) continue;
        pair_at(chunk, i).chunks.push_back(index);
        fresh.push_back(pair_key(chunk.ids[i], chunk.ids[i + 1]));
      }
    }
    std::ranges::sort(fresh);
    fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
    for (const std::uint64_t key : fresh) queue_.push({pairs_[key].count, key});
  }

 private:
  struct Chunk {
    std::vector<std::int32_t> ids;
    std::int64_t count;  // how often the text has it
  };
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::uint32_t> chunks;  // that hold it, or held it; in rising order, may repeat
  };
  struct Candidate {
    std::int64_t count;
    std::uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  Pair& pair_at(const Chunk& chunk, std::size_t i) { return pairs_[pair_key(chunk.ids[i], chunk.ids[i + 1])]; }

  void count_pairs(const Chunk& chunk, int sign) {
    for (std::size_t i = 0; i + 1 < chunk.ids.size(); ++i) pair_at(chunk, i).count += sign * chunk.count;
  }

  static void join(std::vector<std::int32_t>& ids, const IdPair& merge, std::int32_t new_id) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool joins = i + 1 < ids.size() && ids[i] == merge.first && ids[i + 1] == merge.second;
      ids[kept++] = joins ? new_id : ids[i];
      i += joins ? 1 : 0;
    }
    ids.resize(kept);
  }

  std::vector<Chunk> chunks_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
};

std::vector<std::string> table(std::vector<std::string> tokens, const std::vector<IdPair>& merges) {
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges)
    tokens.push_back(tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)]);
  return tokens;
}

std::array<std::int32_t, 256> byte_ids(std::int64_t first) {
  std::array<std::int32_t, 256> ids;
  std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(first));
  return ids;
}

std::vector<PairMerge> numbered(const std::vector<IdPair>& merges, std::int64_t first_id) {
  std::vector<PairMerge> numbered;
  auto id = static_cast<std::int32_t>(first_id);
  for (const auto& [left, right] : merges) numbered.push_back({left, right, id++});
  return numbered;
}

}  // namespace

BpeTokenizer::BpeTokenizer(std::vector<std::string> specials, bool lowercase, std::vector<IdPair> merges)
    : Tokenizer(table(specials, merges), std::ssize(specials), lowercase),
      merges_(std::move(merges)),
      cached_merges_(byte_ids(special_count()), numbered(merges_, special_count() + 256)) {}

std::size_t BpeTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  PartScanner scanner(ChunkScanner(part.text), part);
  cached_merges_.append(scanner, ids);
  return scanner.done();
}

void BpeTokenizer::add_to_json(Json& json) const {
  json["merges"] = Json::array();
  for (const auto& [left, right] : merges_) json["merges"].push_back({left, right});
}

const std::string& bpe_pattern() {
  static const std::string pattern = [] {
    const std::string space = in_brackets(is_space), mark = in_brackets(is_punctuation);
    return text(" ?[0-9]+| ?[", mark, "]+| ?[^0-9", space, mark, "]+|[", space, "]+(?= [^", space, "])|[", space, "]+");
  }();
  return pattern;
}

std::unique_ptr<Tokenizer> train_bpe(std::span<TextSource> texts, const TokenizerOptions& options,
                                     const PieceReading& reading) {
  const std::int64_t smallest = std::ssize(options.specials) + 256;
  if (options.vocab < smallest)
    fail("a bpe vocabulary of ", options.vocab, " is too small; give at least ", smallest, " (256 bytes and ",
         options.specials.size(), " special tokens)");
  const auto scan = [](std::string_view text) { return ChunkScanner(text); };
  BpeTrainer trainer(count_pieces(texts, options.folding(), options.word_limit / 2, reading, scan),
                     static_cast<std::int32_t>(options.specials.size()));
  std::vector<IdPair> merges;
  for (IdPair merge; smallest + std::ssize(merges) < options.vocab && trainer.best(merge);) {
    trainer.apply(merge, static_cast<std::int32_t>(smallest + std::ssize(merges)));
    merges.push_back(merge);
  }
  return std::make_unique<BpeTokenizer>(options.specials, options.lowercase, std::move(merges));
}

}  // namespace flexformer
