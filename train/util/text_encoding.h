// What the bytes of a text file mean. All that a program reads as text comes through here: it is unpacked where it is
// gzip data, becomes UTF-8 where it is UTF-16 or UTF-32, loses its byte order mark, and is refused where it is no text.
// Bytes of other encodings are kept as they are: they are not UTF-8, but may still be learned from.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "train/util/inflate.h"

namespace flexformer {

enum class Encoding { utf8, utf16_le, utf16_be, utf32_le, utf32_be };

struct EncodingGuess {
  Encoding encoding = Encoding::utf8;
  std::size_t mark = 0;  // bytes of the byte order mark
};

// By the byte order mark; without one, UTF-16 by its zero bytes, if all of `head` makes sense so.
EncodingGuess guess_encoding(std::string_view head);

// Hands the text in `bytes` to `take` as UTF-8, in pieces as they come; a character of UTF-8 may go on in the next one.
// `whole`: the first 8,192 bytes may be waited for; else a line is handed on as soon as it is there. Throws Error
// naming `source`: foreign files (file_kind.h), zero bytes, damaged gzip data, UTF-16 that ends within a character, and
// more than `most` bytes.
void decode_text(const ByteSource& bytes, const std::string& source, const ByteSink& take, bool whole = true,
                 std::size_t most = std::string::npos);
std::string decode_text(std::string bytes, const std::string& source);

// Throws the Error of a file of which more than `most` bytes came, see read_unpacked().
[[noreturn]] void refuse_bomb(const std::string& source, std::size_t most);

// Texts with lines that end in CR alone, as old Macs wrote them, get LF instead; others stay.
void settle_line_ends(std::string& text);
bool ends_lines_with_cr(std::string_view text);

}  // namespace flexformer
