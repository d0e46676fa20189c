#!/usr/bin/env python3
"""Writes train/tokenizer_unicode.cpp: which code points are letters, numbers and white space. Run it after changing it,
or to move to the Unicode version of a newer Python (tokens of characters that are newer than the table may change):

    python3 train/make_tokenizer_unicode.py
"""
import pathlib
import unicodedata

OTHER, LETTER, NUMBER, SPACE = range(4)  # enum class CharClass

# Categories know no White_Space: str.isspace() is that property and the four separators of ASCII.
SEPARATORS = range(0x1C, 0x20)


def class_of(code_point):
    char = chr(code_point)
    if char.isspace() and code_point not in SEPARATORS:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(char)[0], OTHER)


runs, previous = [], None
for code_point in range(0x110000):
    if class_of(code_point) != previous:
        previous = class_of(code_point)
        runs.append(f"0x{4 * code_point + previous:06X}")

lines, line = [], "   "
for run in runs:
    if len(line) + len(run) + 2 > 120:
        lines.append(line)
        line = "   "
    line += f" {run},"
lines.append(line)

newline = "\n"
pathlib.Path(__file__).with_name("tokenizer_unicode.cpp").write_text(f"""\
// Written by train/make_tokenizer_unicode.py from Unicode {unicodedata.unidata_version}; change that instead. The classes of
// all code points as runs, each given by 4 * its first code point + its class; it ends where the next one begins.
#include "train/tokenizer_unicode.h"

#include <algorithm>
#include <array>

namespace flexformer {{
namespace {{

constexpr std::array<std::uint32_t, {len(runs)}> runs = {{
{newline.join(lines)}
}};

}}  // namespace

CharClass char_class(std::uint32_t code_point) {{
  const auto next = std::upper_bound(runs.begin(), runs.end(), 4 * code_point + 3);
  return static_cast<CharClass>(*(next - 1) & 3);
}}

}}  // namespace flexformer
""")
