// A text is first folded into words, for each byte of which the place in the text is remembered where its character
// ended: pieces are looked up in the words, but what they cover is counted in the text.
#include "train/tokenizers/tokenizer_wordpiece.h"

#include <algorithm>

#include "tensor/error.h"
#include "train/util/files.h"
#include "train/util/unicode.h"

namespace flexformer {
namespace {

constexpr std::size_t max_word = 100;  // characters; longer words are "[UNK]"

bool is_blank(std::uint32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Chinese characters are words of their own.
bool is_chinese(std::uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Symbols of ASCII count as marks even where Unicode does not call them punctuation, "$" and "^" for example.
bool is_mark(std::uint32_t c) {
  const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  return c < 0x80 ? c > ' ' && c < 0x7F && !letter_or_digit : bert_class(c) == BertClass::punctuation;
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(const std::vector<std::string>& pieces, std::vector<std::int32_t> special_ids,
                                       bool lowercase, const std::string& source)
    : Tokenizer(pieces, std::move(special_ids), false), is_inner_(pieces.size(), 0), fold_(lowercase) {
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    if (is_special(id)) continue;
    std::string& text = tokens_[std::size_t(id)];
    const bool inner = text.starts_with("##") && text.size() > 2;
    if (inner) text.erase(0, 2);
    is_inner_[std::size_t(id)] = inner;
    if (!(inner ? inner_ : starts_).emplace(text, id).second)
      fail(source, ": the token ", quote(piece(id)), " stands there twice");
  }
  if (unknown_id() < 0) fail(source, ": the token '[UNK]' is missing");
}

std::string WordPieceTokenizer::piece(std::int32_t id) const {
  return (is_inner_[std::size_t(id)] ? "##" : "") + token(id);
}

// `ends`: for each byte of the word, where in the text its character ended.
void WordPieceTokenizer::cut_word(std::string_view word, const std::vector<std::size_t>& ends,
                                  std::vector<Cut>& cuts) const {
  const std::size_t before = cuts.size();
  const auto is_tail = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
  const auto characters = std::size_t(std::ranges::count_if(word, [&](char byte) { return !is_tail(byte); }));
  for (std::size_t at = 0, end; at < word.size() && characters <= max_word; at = end) {
    const Ids& ids = at == 0 ? starts_ : inner_;
    auto found = ids.end();
    for (end = word.size(); end > at; --end) {
      if (end < word.size() && is_tail(word[end])) continue;
      if ((found = ids.find(word.substr(at, end - at))) != ids.end()) break;
    }
    if (found == ids.end()) break;
    cuts.push_back({found->second, ends[end - 1]});
  }
  if (cuts.size() > before && cuts.back().end == ends[word.size() - 1]) return;
  cuts.resize(before);
  cuts.push_back({unknown_id(), ends[word.size() - 1]});
}

std::vector<WordPieceTokenizer::Cut> WordPieceTokenizer::cut(std::string_view text) const {
  std::vector<Cut> cuts;
  std::string word;
  std::vector<std::size_t> ends;
  std::vector<std::uint32_t> characters;
  const auto finish = [&] {
    if (!word.empty()) cut_word(word, ends, cuts);
    word.clear();
    ends.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    at += unit.length;
    const std::uint32_t c = unit.value;
    if (unit.valid && is_blank(c)) {
      finish();
      continue;
    }
    if (!unit.valid || c == 0xFFFD || bert_class(c) == BertClass::control) continue;
    characters.assign(1, c);
    if (fold_ && c >= 0x80) {
      characters.clear();
      append_decomposition(c, false, characters);
      std::erase_if(characters, [](std::uint32_t part) { return bert_class(part) == BertClass::mark; });
    }
    for (const std::uint32_t part : characters) {
      const bool alone = is_mark(part) || is_chinese(c);
      if (alone) finish();
      if (fold_)
        append_lower(part, word);
      else
        append_code_point(part, word);
      ends.resize(word.size(), at);
      if (alone) finish();
    }
  }
  finish();
  return cuts;
}

std::size_t WordPieceTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  // No word reaches over a blank.
  const std::size_t blank = part.last ? part.text.size() : part.text.find_last_of(" \n");
  const std::size_t end = blank == part.text.npos ? 0 : blank;
  for (const Cut& piece : cut(part.text.substr(0, end))) ids.push_back(piece.id);
  return end;
}

std::int64_t WordPieceTokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                               std::size_t count) const {
  if (count >= ids.size()) return std::ssize(text);
  return count == 0 ? 0 : std::int64_t(cut(text)[count - 1].end);
}

bool WordPieceTokenizer::space_between(std::int32_t, std::int32_t right) const {
  return !is_inner_[std::size_t(right)];
}

void WordPieceTokenizer::add_to_json(Json& json) const {
  json["fold"] = fold_;
  json["pieces"] = Json::array();
  for (std::int32_t id = 0; id < vocab_size(); ++id)
    json["pieces"].push_back(is_special(id) ? Json() : json_bytes(piece(id)));
}

std::unique_ptr<Tokenizer> WordPieceTokenizer::from_json(const Json& json, const std::vector<std::string>& specials,
                                                         bool, const std::string& source) {
  std::vector<std::int32_t> special_ids;
  const std::vector<std::string> pieces = tokens_by_id(json, "pieces", specials, special_ids, source);
  return std::make_unique<WordPieceTokenizer>(pieces, std::move(special_ids), json_get<bool>(json, "fold", source),
                                              source);
}

std::unique_ptr<Tokenizer> load_wordpiece(const std::filesystem::path& path, const TokenizerOptions& options) {
  const std::string source = path.string(), content = read_text_file(path);
  std::vector<std::string> pieces;
  std::vector<std::int32_t> special_ids;
  bool has_capitals = false;
  std::string_view rest = content;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) fail(source, ":", pieces.size() + 1, ": this line has no token");
    const bool special = line.size() > 2 && line.front() == '[' && line.back() == ']';
    if (special) special_ids.push_back(std::int32_t(pieces.size()));
    has_capitals = has_capitals || (!special && lowercase(line) != line);
    pieces.emplace_back(line);
  }
  const auto is_there = [&](const std::string& special) {
    const std::string bert = text("[", special.substr(1, special.size() - 2), "]");
    return std::ranges::any_of(special_ids, [&](std::int32_t id) {
      const std::string& name = pieces[std::size_t(id)];
      return name == special || flexformer::lowercase(name) == bert;
    });
  };
  for (const std::string& special : options.specials) {
    if (is_there(special)) continue;
    special_ids.push_back(std::int32_t(pieces.size()));
    pieces.push_back(special);
  }
  return std::make_unique<WordPieceTokenizer>(pieces, std::move(special_ids), options.lowercase || !has_capitals,
                                              source);
}

std::string write_wordpiece(const WordPieceTokenizer& tokenizer) {
  std::string lines;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) lines += tokenizer.piece(id) + "\n";
  return lines;
}

}  // namespace flexformer
