// UTF-8 reading that cannot fail: a byte that belongs to no valid character is itself a unit of length 1. Text from
// users is kept byte for byte everywhere; only messages escape what a terminal or a JSON reader could not show.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace flexformer {

// One unit of a text: a valid code point, or one stray byte.
struct CodePoint {
  std::uint32_t value = 0;  // the code point, or the byte where `valid` is false
  std::size_t length = 1;   // bytes it takes up
  bool valid = true;
};

// The unit at byte `at` (< text.size()). Overlong forms, surrogates and values above U+10FFFF are stray bytes.
CodePoint next_code_point(std::string_view text, std::size_t at);

// Appends the UTF-8 of a code point.
void append_code_point(std::uint32_t code_point, std::string& out);

bool is_valid_utf8(std::string_view text);

// White space: the ASCII kinds, the no-break space, U+2000..U+200B, the line separators and the ideographic space.
bool is_space(const CodePoint& unit);

// ASCII punctuation and symbols, and the punctuation blocks of Latin-1, U+2010..U+205E and U+3001..U+303F.
bool is_punctuation(const CodePoint& unit);

// Capitals of ASCII, Latin-1, Greek and Cyrillic become small letters; all else stays. The length in bytes stays too.
std::string lowercase(std::string_view text);

// Without the ASCII white space at both ends.
std::string_view trim(std::string_view text);

// For messages: control characters and stray bytes as \n, \t, \xNN, so that a message stays one printable line.
std::string printable(std::string_view text);

// printable() in single quotes, cut after about `limit` bytes.
std::string quote(std::string_view text, std::size_t limit = 60);

// A word of a shell command that stands for these bytes: in quotes where they need some.
std::string shell_word(std::string_view word);
// `make TARGET ARGS="..."` with one option as its argument: the bytes pass through the shell, make, and make's shell.
std::string make_command(std::string_view target, std::string_view option, std::string_view value,
                         std::string_view more = "");

// "'ω' (U+03C9)", or "byte 0xE9 (not UTF-8)": how messages name one character.
std::string describe(const CodePoint& unit, std::string_view bytes);

}  // namespace flexformer
