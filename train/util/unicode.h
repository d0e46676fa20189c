// What tokenizers ask of Unicode: classes of characters, small letters, and the normal forms of UAX #15. The tables are
// unicode_tables.inc, which make_unicode_tables.py writes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flexformer {

// Letters, numbers and white space as the patterns of regular expressions name them: \p{L}, \p{N} and \s.
enum class CharClass : std::uint8_t {
  other,   // everything else: marks, symbols, control characters, what Unicode has not assigned
  letter,  // general category L
  number,  // general category N
  space,   // the property White_Space
};

// What BERT's tokenizer asks.
enum class BertClass : std::uint8_t {
  other,
  punctuation,  // general category P
  mark,         // general category Mn: accents that stand for themselves
  control,      // general categories Cc and Cf
  other_mark,   // general categories Mc and Me
};

// The class of a code point up to U+10FFFF.
CharClass char_class(std::uint32_t code_point);
BertClass bert_class(std::uint32_t code_point);

// Appends the UTF-8 of the code point's small letter: the code point itself if it has none; "i" and U+0307 for U+0130.
void append_lower(std::uint32_t code_point, std::string& out);

// C composes what D takes apart; the forms with K also replace characters by plainer ones, "ﬁ" by "fi".
enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// Appends the full decomposition of a code point, NFD's or NFKD's.
void append_decomposition(std::uint32_t code_point, bool compatible, std::vector<std::uint32_t>& out);

// The text in a normal form; stray bytes stay as they are. `ends` gets, for each byte of the result, where in `text`
// the characters that it was made from end.
std::string normalized(std::string_view text, NormalForm form, std::vector<std::size_t>* ends = nullptr);

// Whether a text may be cut before this code point: each part's normal form is then part of the whole's.
bool begins_normal_part(std::uint32_t code_point);

}  // namespace flexformer
