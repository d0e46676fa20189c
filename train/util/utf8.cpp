// UTF-8 by the table of well-formed sequences (Unicode standard, table 3-7).
#include "train/util/utf8.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "tensor/error.h"

namespace flexformer {
namespace {

bool is_continuation(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// Upper-case digits, at least `width` of them.
std::string hexadecimal(std::uint32_t value, int width) {
  std::string digits;
  for (; value > 0 || width > 0; value >>= 4, --width) digits.insert(digits.begin(), "0123456789ABCDEF"[value & 15]);
  return digits;
}

std::string escaped(unsigned char byte) {
  if (byte == '\n') return "\\n";
  if (byte == '\r') return "\\r";
  if (byte == '\t') return "\\t";
  return "\\x" + hexadecimal(byte, 2);
}

}  // namespace

CodePoint next_code_point(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1, true};
  const CodePoint stray{first, 1, false};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return stray;
  std::uint32_t value = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text, at + i)) return stray;
    value = (value << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  }
  constexpr std::array<std::uint32_t, 5> smallest{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest[length] || value > 0x10FFFF || surrogate) return stray;
  return {value, length, true};
}

void append_code_point(std::uint32_t c, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 63)); };
  if (c < 0x80)
    out += static_cast<char>(c);
  else if (c < 0x800)
    out += static_cast<char>(0xC0 | (c >> 6)), tail(0);
  else if (c < 0x10000)
    out += static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0);
  else
    out += static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0);
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    if (!unit.valid) return false;
    at += unit.length;
  }
  return true;
}

bool is_space(const CodePoint& unit) {
  if (!unit.valid) return false;
  const std::uint32_t c = unit.value;
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xA0 || (c >= 0x2000 && c <= 0x200B) || c == 0x2028 ||
         c == 0x2029 || c == 0x3000;
}

bool is_punctuation(const CodePoint& unit) {
  if (!unit.valid) return false;
  const std::uint32_t c = unit.value;
  const bool ascii =
      (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return (ascii && c != '_') || (c >= 0xA1 && c <= 0xBF) ||
         (c >= 0x2010 && c <= 0x205E && c != 0x2028 && c != 0x2029) || (c >= 0x3001 && c <= 0x303F);
}

std::string lowercase(std::string_view text) {
  std::string result(text);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    const std::uint32_t c = unit.value;
    if (unit.length == 1 && c >= 'A' && c <= 'Z') result[at] = static_cast<char>(c + 32);
    if (unit.length == 2) {
      const bool latin = c >= 0xC0 && c <= 0xDE && c != 0xD7;
      const bool greek = c >= 0x391 && c <= 0x3A9 && c != 0x3A2;
      const bool cyrillic = c >= 0x410 && c <= 0x42F;
      const bool cyrillic_extension = c >= 0x400 && c <= 0x40F;
      const std::uint32_t small = latin || greek || cyrillic ? c + 32 : cyrillic_extension ? c + 80 : c;
      result[at] = static_cast<char>(0xC0 | (small >> 6));
      result[at + 1] = static_cast<char>(0x80 | (small & 0x3F));
    }
    at += unit.length;
  }
  return result;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view spaces = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    const bool control =
        unit.value < 0x20 || unit.value == 0x7F || (unit.valid && unit.value >= 0x80 && unit.value < 0xA0);
    if (unit.valid && !control) {
      result += text.substr(at, unit.length);
    } else {
      for (std::size_t i = 0; i < unit.length; ++i) result += escaped(static_cast<unsigned char>(text[at + i]));
    }
    at += unit.length;
  }
  return result;
}

std::string quote(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return flexformer::text("'", printable(text), "'");
  std::size_t end = limit;
  while (end > 0 && limit - end < 3 && is_continuation(text, end)) --end;
  return flexformer::text("'", printable(text.substr(0, end)), "...'");
}

std::string shell_word(std::string_view word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || c == '/' || c == '.' || c == '_' || c == '-' || c == '+' || c >= 0x80;
  });
  if (plain) return std::string(word);
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string make_command(std::string_view target, std::string_view option, std::string_view value,
                         std::string_view more) {
  std::string arguments;
  for (char c : std::string(option) + shell_word(value) + std::string(more))
    arguments += c == '$' ? std::string("$$") : std::string(1, c);
  const bool simple = arguments.find_first_of("\"\\`$!") == std::string::npos;  // nothing that "..." would change
  return "make " + std::string(target) + " ARGS=" + (simple ? "\"" + arguments + "\"" : shell_word(arguments));
}

std::string describe(const CodePoint& unit, std::string_view bytes) {
  if (!unit.valid) return "byte 0x" + hexadecimal(unit.value, 2) + " (not UTF-8)";
  return quote(bytes) + " (U+" + hexadecimal(unit.value, 4) + ")";
}

}  // namespace flexformer
