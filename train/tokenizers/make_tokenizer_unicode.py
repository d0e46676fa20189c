#!/usr/bin/env python3
"""Writes what the tokenizers ask of Unicode: train/tokenizers/tokenizer_unicode.cpp (letters, numbers and white space) and
train/tokenizers/tokenizer_bert_unicode.cpp (punctuation, accents, control characters, and letters without accents up to U+2FFF, for
characters that become one character). Run it after changing it, or to move to the Unicode version of a newer Python
(tokens of characters that are newer than the tables may change):

    python3 train/tokenizers/make_tokenizer_unicode.py
"""
import pathlib
import unicodedata

OTHER, LETTER, NUMBER, SPACE = range(4)  # enum class CharClass
_, PUNCTUATION, MARK, CONTROL = range(4)  # enum class BertClass
LAST_FOLDED = 0x2FFF

# Categories know no White_Space: str.isspace() is that property and the four separators of ASCII.
SEPARATORS = range(0x1C, 0x20)


def char_class(code_point):
    char = chr(code_point)
    if char.isspace() and code_point not in SEPARATORS:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(char)[0], OTHER)


def bert_class(code_point):
    category = unicodedata.category(chr(code_point))
    if category[0] == "P":
        return PUNCTUATION
    return {"Mn": MARK, "Cc": CONTROL, "Cf": CONTROL}.get(category, OTHER)


def folded(char):
    return "".join(c for c in unicodedata.normalize("NFD", char.lower()) if unicodedata.category(c) != "Mn")


def lines_of(entries):
    lines, line = [], "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 120:
            lines.append(line)
            line = "   "
        line += f" {entry},"
    return "\n".join(lines + [line])


def runs_of(class_of):
    runs, previous = [], None
    for code_point in range(0x110000):
        if class_of(code_point) != previous:
            previous = class_of(code_point)
            runs.append(f"0x{4 * code_point + previous:06X}")
    return f"""constexpr std::array<std::uint32_t, {len(runs)}> runs = {{
{lines_of(runs)}
}};"""


def write(name, comment, body):
    pathlib.Path(__file__).with_name(name + ".cpp").write_text(f"""\
// Written by train/tokenizers/make_tokenizer_unicode.py from Unicode {unicodedata.unidata_version}; change that instead. {comment}
#include "train/{name}.h"

#include <algorithm>
#include <array>
{body}
}}  // namespace flexformer
""")


folds = []  # [first, count, step, what is added]
for code_point in range(LAST_FOLDED + 1):
    to = folded(chr(code_point))
    if len(to) != 1 or ord(to) == code_point:
        continue
    added = ord(to) - code_point
    if folds and folds[-1][3] == added:
        first, count, step, _ = last = folds[-1]
        if (count == 1 and code_point - first <= 2) or (count > 1 and code_point == first + count * step):
            last[1:3] = [count + 1, code_point - first if count == 1 else step]
            continue
    folds.append([code_point, 1, 1, added])
folds = ["{0x%04X, %d, %d, %d}" % tuple(fold) for fold in folds]


write("tokenizer_unicode", "Runs are those of class_in_runs().", f"""
namespace flexformer {{
namespace {{

{runs_of(char_class)}

}}  // namespace

unsigned class_in_runs(std::span<const std::uint32_t> runs, std::uint32_t code_point) {{
  return *(std::upper_bound(runs.begin(), runs.end(), 4 * code_point + 3) - 1) & 3;
}}

CharClass char_class(std::uint32_t code_point) {{ return CharClass(class_in_runs(runs, code_point)); }}
""")

write("tokenizer_bert_unicode", """Runs are those of
// class_in_runs(); folds are for `count` code points from `first` on, `step` apart.""", f"""
#include "train/tokenizers/tokenizer_unicode.h"

namespace flexformer {{
namespace {{

{runs_of(bert_class)}

struct Fold {{
  std::uint32_t first, count, step;
  std::int32_t added;
}};

constexpr std::array<Fold, {len(folds)}> folds = {{{{
{lines_of(folds)}
}}}};

}}  // namespace

BertClass bert_class(std::uint32_t code_point) {{ return BertClass(class_in_runs(runs, code_point)); }}

std::uint32_t bert_fold(std::uint32_t code_point) {{
  // Folds of step 2 may lie between each other's code points, so the one before may be the right one too.
  auto fold = std::upper_bound(folds.begin(), folds.end(), code_point,
                               [](std::uint32_t c, const Fold& f) {{ return c < f.first; }});
  for (int tries = 0; tries < 2 && fold != folds.begin(); ++tries) {{
    --fold;
    const std::uint32_t distance = code_point - fold->first;
    if (distance % fold->step == 0 && distance / fold->step < fold->count)
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(code_point) + fold->added);
  }}
  return code_point;
}}
""")
