#include "train/tokenizers/text_folding.h"

#include <algorithm>

#include "train/util/unicode.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr std::string_view soft_hyphen = "\xC2\xAD";

bool continues(std::string_view text, std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; }

// The last place before which nothing depends on what follows `text`; 0 if there is none.
std::size_t settled_end(std::string_view text) {
  constexpr std::size_t longest = 4;  // bytes of a character, which is complete if so many are there
  for (std::size_t at = text.size() < longest ? 0 : text.size() - longest; at > 0; --at) {
    if (continues(text, at)) {
      const bool stray = at >= 3 && continues(text, at - 1) && continues(text, at - 2) && continues(text, at - 3);
      if (stray) return at;
      continue;
    }
    const CodePoint unit = next_code_point(text, at);
    if (text.substr(at).starts_with(soft_hyphen)) continue;  // without it a mark behind may join what is in front
    if (!unit.valid || begins_normal_part(unit.value)) return at;
  }
  return 0;
}

// Characters that NFC leaves alone wherever they stand; others may be so too.
bool is_surely_composed(std::uint32_t c) {
  return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x205F) || (c >= 0x3001 && c < 0x302A) ||
         (c >= 0x3041 && c < 0x3097) || (c >= 0x30A1 && c < 0x30FB) || (c >= 0x3400 && c < 0xA000) ||
         (c >= 0xAC00 && c < 0xD7A4) || (c >= 0xFF01 && c < 0xFF61) || (c >= 0x1F300 && c < 0x1FB00);
}

bool is_composed(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xCC) {  // below U+0300, or stray
      ++at;
      continue;
    }
    const CodePoint unit = next_code_point(text, at);
    if (unit.valid && !is_surely_composed(unit.value)) return false;
    at += unit.length;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void append_folded(std::uint32_t c, std::string& out) {
  constexpr std::uint32_t dotted_capital_i = 0x130, capital_sigma = 0x3A3, final_sigma = 0x3C2, small_sigma = 0x3C3;
  if (c == dotted_capital_i)
    out += 'i';
  else if (c == capital_sigma || c == final_sigma)
    append_code_point(small_sigma, out);
  else
    append_lower(c, out);
}

// `ends`: for each byte of `text` where it came from; afterwards the same for the result.
std::string fold(std::string_view text, bool lower, bool drop_soft_hyphens, std::vector<std::size_t>* ends) {
  std::string out;
  std::vector<std::size_t> new_ends;
  out.reserve(text.size());
  bool behind_character = true;  // stray bytes must not meet
  std::size_t last_end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    at += unit.length;
    if (drop_soft_hyphens && behind_character && text.substr(at - unit.length, unit.length) == soft_hyphen) {
      // It goes with the character in front.
      for (std::size_t i = new_ends.size(); ends && i > 0 && new_ends[i - 1] == last_end; --i)
        new_ends[i - 1] = ends->empty() ? at : (*ends)[at - 1];
      last_end = ends && !ends->empty() ? (*ends)[at - 1] : at;
      continue;
    }
    behind_character = unit.valid;
    if (!unit.valid || !lower)
      out.append(text, at - unit.length, unit.length);
    else if (unit.value < 0x80)
      out += static_cast<char>(unit.value >= 'A' && unit.value <= 'Z' ? unit.value + 32 : unit.value);
    else
      append_folded(unit.value, out);
    last_end = ends && !ends->empty() ? (*ends)[at - 1] : at;
    if (ends) new_ends.resize(out.size(), last_end);
  }
  if (ends) *ends = std::move(new_ends);
  return out;
}

}  // namespace

std::string fold_case(std::string_view text) { return fold(text, true, false, nullptr); }

FoldedText::FoldedText(const TextPart& part, const TextFolding& folding) : text_(part.text), last_(part.last) {
  if (folding.lowercase && !folding.unicode) {
    folded_ = flexformer::lowercase(text_);
    text_ = folded_;
  }
  const bool all_scripts = folding.lowercase && folding.unicode;
  if (!folding.nfc && !all_scripts && !folding.drop_soft_hyphens) return;
  by_characters_ = true;
  if (!last_) text_ = text_.substr(0, settled_end(text_));
  if (folding.nfc) compose();
  const bool drops = folding.drop_soft_hyphens && text_.find(soft_hyphen) != text_.npos;
  if (!all_scripts && !drops) return;
  std::string changed = is_ascii(text_) ? flexformer::lowercase(text_) : fold(text_, all_scripts, drops, &ends_);
  folded_ = std::move(changed);
  text_ = folded_;
  if (folding.nfc) compose();  // a small letter may take a mark that its capital did not
}

void FoldedText::compose() {
  if (is_composed(text_)) return;
  std::vector<std::size_t> ends;
  std::string composed = normalized(text_, NormalForm::nfc, &ends);
  if (!ends_.empty())
    for (std::size_t& end : ends) end = ends_[end - 1];
  ends_ = std::move(ends);
  folded_ = std::move(composed);
  text_ = folded_;
}

std::size_t FoldedText::original(std::size_t count) const {
  if (count == 0) return 0;
  if (!ends_.empty()) return ends_[count - 1];
  if (!by_characters_ || count >= text_.size() || !continues(text_, count)) return count;
  std::size_t start = count - 1;
  while (start > 0 && count - start < 3 && continues(text_, start)) --start;
  const CodePoint unit = next_code_point(text_, start);
  return unit.valid && start + unit.length > count ? start + unit.length : count;
}

std::size_t FoldedText::boundary(std::size_t count) const {
  if (ends_.empty() || count >= text_.size()) return count;
  while (count > 0 && ends_[count - 1] == ends_[count]) --count;
  return count;
}

}  // namespace flexformer
