// Words: one scanner cuts the text, both to build the vocabulary and to encode, so the two cannot disagree.
#include <algorithm>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"
#include "train/util/unicode.h"

namespace flexformer {
namespace {

constexpr std::string_view unknown_token = "<unk>";

// What a word is made of, and what stands alone.
enum class Part : std::uint8_t { space, word, mark, alone, syllable };

// As older vocabularies have it: only the marks of Latin-1 and a few blocks more.
Part part_before_unicode(const CodePoint& unit) {
  return is_space(unit) ? Part::space : is_punctuation(unit) ? Part::alone : Part::word;
}

// Scripts that put no blanks between words: Thai, Lao, Burmese, Khmer, kana, Bopomofo, Chinese characters.
bool is_unspaced(std::uint32_t c) {
  return (c >= 0xE00 && c < 0xF00) || (c >= 0x1000 && c < 0x10A0) || (c >= 0x1780 && c < 0x1800) ||
         (c >= 0x3005 && c < 0x3008) || (c >= 0x3041 && c < 0x3130) || (c >= 0x31A0 && c < 0x31C0) ||
         (c >= 0x31F0 && c < 0x3200) || (c >= 0x3400 && c < 0x4DC0) || (c >= 0x4E00 && c < 0xA000) ||
         (c >= 0xF900 && c < 0xFB00) || (c >= 0xFF66 && c < 0xFFA0) || (c >= 0x20000 && c < 0x323B0);
}

Part part_of(const CodePoint& unit) {
  const std::uint32_t c = unit.value;
  if (!unit.valid) return Part::word;
  if (c < 0x80) return part_before_unicode(unit);
  const CharClass wide = char_class(c);
  const BertClass fine = bert_class(c);
  constexpr std::uint32_t soft_hyphen = 0xAD, non_joiner = 0x200C, joiner = 0x200D;
  if (fine == BertClass::mark || fine == BertClass::other_mark || c == soft_hyphen || c == non_joiner || c == joiner)
    return Part::mark;
  if (wide == CharClass::space || fine == BertClass::control) return Part::space;
  if (wide == CharClass::letter || wide == CharClass::number) return is_unspaced(c) ? Part::syllable : Part::word;
  return Part::alone;
}

class WordScanner {
 public:
  WordScanner(std::string_view text, bool keep_newlines, bool split_punctuation, bool unicode)
      : text_(text), keep_newlines_(keep_newlines), split_punctuation_(split_punctuation), unicode_(unicode) {}

  // The next word, or false at the end of the text.
  bool next(std::string_view& word) {
    while (at_ < text_.size() && part(at_) == Part::space && !is_kept_newline()) step();
    if (at_ == text_.size()) return false;
    const std::size_t start = at_;
    if (split_punctuation_ && text_.substr(at_).starts_with(unknown_token)) {
      at_ += unknown_token.size();
    } else if (is_kept_newline()) {
      step();
    } else if (split_punctuation_ && (part(at_) == Part::alone || part(at_) == Part::syllable)) {
      step();
      while (at_ < text_.size() && part(at_) == Part::mark) step();
    } else {
      while (at_ < text_.size() && continues_word(start)) step();
    }
    word = text_.substr(start, at_ - start);
    return true;
  }

  std::size_t position() const { return at_; }  // the first byte not yet read

 private:
  CodePoint unit(std::size_t at) const { return next_code_point(text_, at); }
  Part part(std::size_t at) const { return unicode_ ? part_of(unit(at)) : part_before_unicode(unit(at)); }
  void step() { at_ += unit(at_).length; }
  bool is_kept_newline() const { return keep_newlines_ && text_[at_] == '\n'; }

  bool is_word_char(std::size_t at) const {
    if (at >= text_.size()) return false;
    const Part here = part(at);
    return here == Part::word || here == Part::mark;
  }
  bool is_digit(std::size_t at) const {
    if (at >= text_.size()) return false;
    if (text_[at] >= '0' && text_[at] <= '9') return true;
    return unicode_ && unit(at).valid && char_class(unit(at).value) == CharClass::number;
  }

  bool continues_word(std::size_t start) const {
    if (!split_punctuation_) return part(at_) != Part::space;
    if (is_word_char(at_)) return true;
    if (at_ == start) return false;
    const CodePoint mark = unit(at_);
    const std::size_t after = at_ + mark.length;
    std::size_t before = at_ - 1;
    while (unicode_ && before > start && (static_cast<unsigned char>(text_[before]) & 0xC0) == 0x80) --before;
    const std::uint32_t c = mark.valid ? mark.value : 0;
    const bool joins_letters = c == '\'' || c == '-' || (unicode_ && (c == 0x2019 || c == 0x2010 || c == 0x2011));
    const bool joins_digits = c == '.' || c == ',' || (unicode_ && (c == 0x66B || c == 0x66C));
    if (joins_letters) return is_word_char(before) && is_word_char(after);
    if (joins_digits) return is_digit(before) && is_digit(after);
    return false;
  }

  std::string_view text_;
  bool keep_newlines_, split_punctuation_, unicode_;
  std::size_t at_ = 0;
};

// Such a word was no part of what is in front of it.
bool begins_with_mark(std::string_view word) { return part_of(next_code_point(word, 0)) == Part::mark; }

// No blank stands beside a character of a script that has none, nor beside its wide punctuation.
bool are_set_solid(std::string_view before, std::string_view after) {
  std::size_t last = before.size() - 1;
  while (last > 0 && (static_cast<unsigned char>(before[last]) & 0xC0) == 0x80) --last;
  const CodePoint left = next_code_point(before, last), first_of_left = next_code_point(before, 0),
                  right = next_code_point(after, 0);
  if (!left.valid || !right.valid) return false;
  const auto is_wide_mark = [](std::uint32_t c) { return (c >= 0x3001 && c < 0x3020) || (c >= 0xFF01 && c < 0xFF66); };
  return part_of(first_of_left) == Part::syllable || part_of(right) == Part::syllable || is_wide_mark(left.value) ||
         is_wide_mark(right.value);
}

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
  PartScanner scanner(WordScanner(part.text, keep_newlines_, split_punctuation_, folding_.unicode), part);
  for (std::string_view word; scanner.next(word);) {
    const auto found = ids_.find(word);
    ids.push_back(found == ids_.end() ? unknown : found->second);
  }
  return scanner.done();
}

std::int64_t WordTokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                          std::size_t count) const {
  if (count >= ids.size()) return static_cast<std::int64_t>(text.size());
  const FoldedText folded({.text = text}, folding_);
  WordScanner scanner(folded.text(), keep_newlines_, split_punctuation_, folding_.unicode);
  std::string_view word;
  for (std::size_t i = 0; i < count; ++i) scanner.next(word);
  return static_cast<std::int64_t>(folded.original(scanner.position()));
}

bool WordTokenizer::space_between(std::int32_t left, std::int32_t right) const {
  const std::string &before = token(left), &after = token(right);
  if (before == "\n" || after == "\n") return false;
  if (!split_punctuation_) return true;
  if (folding_.unicode && begins_with_mark(after)) return true;
  if (folding_.unicode && are_set_solid(before, after)) return false;
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
    return WordScanner(text, options.keep_newlines, options.split_punctuation, options.unicode);
  };
  PieceCounts counts = count_pieces(texts, options.folding(true), options.word_limit, reading, scan);
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
