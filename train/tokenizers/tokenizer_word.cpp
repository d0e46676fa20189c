// Words: one scanner cuts the text, both to build the vocabulary and to encode, so the two cannot disagree.
#include <algorithm>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"

namespace flexformer {
namespace {

constexpr std::string_view unknown_token = "<unk>";

class WordScanner {
 public:
  WordScanner(std::string_view text, bool keep_newlines, bool split_punctuation)
      : text_(text), keep_newlines_(keep_newlines), split_punctuation_(split_punctuation) {}

  // The next word, or false at the end of the text.
  bool next(std::string_view& word) {
    while (at_ < text_.size() && is_space(unit()) && !is_kept_newline()) at_ += unit().length;
    if (at_ == text_.size()) return false;
    const std::size_t start = at_;
    if (split_punctuation_ && text_.substr(at_).starts_with(unknown_token)) {
      at_ += unknown_token.size();
    } else if (is_kept_newline() || (split_punctuation_ && is_punctuation(unit()))) {
      at_ += unit().length;
    } else {
      while (at_ < text_.size() && continues_word(start)) at_ += unit().length;
    }
    word = text_.substr(start, at_ - start);
    return true;
  }

  std::size_t position() const { return at_; }  // the first byte not yet read

 private:
  CodePoint unit() const { return next_code_point(text_, at_); }
  bool is_kept_newline() const { return keep_newlines_ && text_[at_] == '\n'; }

  bool is_word_char(std::size_t at) const {
    if (at >= text_.size()) return false;
    const CodePoint here = next_code_point(text_, at);
    return !is_space(here) && !is_punctuation(here);
  }
  bool is_digit(std::size_t at) const { return at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; }

  bool continues_word(std::size_t start) const {
    if (!split_punctuation_) return !is_space(unit());
    if (is_word_char(at_)) return true;
    if (at_ == start) return false;
    const char mark = text_[at_];
    if (mark == '\'' || mark == '-') return is_word_char(at_ - 1) && is_word_char(at_ + 1);
    if (mark == '.' || mark == ',') return is_digit(at_ - 1) && is_digit(at_ + 1);
    return false;
  }

  std::string_view text_;
  bool keep_newlines_, split_punctuation_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::string> with_unknown(std::vector<std::string> specials) {
  if (std::ranges::find(specials, unknown_token) == specials.end())
    specials.insert(specials.begin(), std::string(unknown_token));
  return specials;
}

WordTokenizer::WordTokenizer(std::vector<std::string> tokens, std::int64_t special_count, bool lowercase,
                             bool keep_newlines, bool split_punctuation)
    : Tokenizer(std::move(tokens), special_count, lowercase),
      keep_newlines_(keep_newlines),
      split_punctuation_(split_punctuation) {
  for (auto id = static_cast<std::int32_t>(special_count); id < vocab_size(); ++id) ids_.emplace(token(id), id);
}

std::size_t WordTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  const std::int32_t unknown = unknown_id();
  PartScanner scanner(WordScanner(part.text, keep_newlines_, split_punctuation_), part);
  for (std::string_view word; scanner.next(word);) {
    const auto found = ids_.find(word);
    ids.push_back(found == ids_.end() ? unknown : found->second);
  }
  return scanner.done();
}

std::int64_t WordTokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                          std::size_t count) const {
  if (count >= ids.size()) return static_cast<std::int64_t>(text.size());
  WordScanner scanner(text, keep_newlines_, split_punctuation_);
  std::string_view word;
  for (std::size_t i = 0; i < count; ++i) scanner.next(word);
  return static_cast<std::int64_t>(scanner.position());
}

bool WordTokenizer::space_between(std::int32_t left, std::int32_t right) const {
  const std::string &before = token(left), &after = token(right);
  if (before == "\n" || after == "\n") return false;
  if (!split_punctuation_) return true;
  const auto is_one_of = [](const std::string& word, std::string_view marks) {
    return word.size() == 1 && marks.find(word[0]) != std::string_view::npos;
  };
  return !is_one_of(after, ",.;:!?)]}%") && !is_one_of(before, "([{");
}

void WordTokenizer::add_to_json(Json& json) const {
  json["keep_newlines"] = keep_newlines_;
  json["split_punctuation"] = split_punctuation_;
  json["tokens"] = Json::array();
  for (const std::string& token : std::span(tokens_).subspan(special_ids_.size()))
    json["tokens"].push_back(json_bytes(token));
}

std::unique_ptr<Tokenizer> train_word(std::span<TextSource> texts, const TokenizerOptions& options,
                                      const PieceReading& reading) {
  std::vector<std::string> tokens = with_unknown(options.specials);
  const std::int64_t special_count = std::ssize(tokens);
  if (options.vocab != 0 && options.vocab <= special_count)
    fail("a vocabulary of ", options.vocab, " has no room for words; give at least ", special_count + 1,
         ", or 0 for no limit");
  const auto scan = [&](std::string_view text) {
    return WordScanner(text, options.keep_newlines, options.split_punctuation);
  };
  PieceCounts counts = count_pieces(texts, options.lowercase, options.word_limit, reading, scan);
  for (const std::string& special : tokens) counts.erase(special);
  std::vector<std::pair<std::string_view, std::int64_t>> words;
  for (const auto& [word, count] : counts.all())
    if (count >= options.min_count) words.emplace_back(word, count);
  if (words.empty())
    fail("a word tokenizer cannot be made: no word occurs at least ", options.min_count, " times in the training text");
  std::ranges::sort(words, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  const std::size_t room = options.vocab == 0 ? words.size() : static_cast<std::size_t>(options.vocab - special_count);
  words.resize(std::min(words.size(), room));
  for (const auto& [word, count] : words) tokens.emplace_back(word);
  counts.clear();  // two tables of all words would be more than is needed
  return std::make_unique<WordTokenizer>(std::move(tokens), special_count, options.lowercase, options.keep_newlines,
                                         options.split_punctuation);
}

}  // namespace flexformer
