#!/usr/bin/env python3
"""Writes train/tokenizer_bert_unicode.cpp: what BERT's tokenizer asks of Unicode. Run it after changing it:

    python3 train/make_tokenizer_bert.py

Small letters without accents are kept up to U+2FFF, for characters that become one character.
"""
import pathlib
import unicodedata

OTHER, PUNCTUATION, MARK, CONTROL = range(4)  # enum class BertClass
LAST_FOLDED = 0x2FFF


def class_of(code_point):
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


runs, previous = [], None
for code_point in range(0x110000):
    if class_of(code_point) != previous:
        previous = class_of(code_point)
        runs.append(f"0x{4 * code_point + previous:06X}")

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

pathlib.Path(__file__).with_name("tokenizer_bert_unicode.cpp").write_text(f"""\
// Written by train/make_tokenizer_bert.py from Unicode {unicodedata.unidata_version}; change that instead. The classes of all
// code points as runs, each given by 4 * its first code point + its class; it ends where the next one begins. Folds are
// for `count` code points from `first` on, `step` apart.
#include "train/tokenizer_bert_unicode.h"

#include <algorithm>
#include <array>

namespace flexformer {{
namespace {{

constexpr std::array<std::uint32_t, {len(runs)}> runs = {{
{lines_of(runs)}
}};

struct Fold {{
  std::uint32_t first, count, step;
  std::int32_t added;
}};

constexpr std::array<Fold, {len(folds)}> folds = {{{{
{lines_of(folds)}
}}}};

}}  // namespace

BertClass bert_class(std::uint32_t code_point) {{
  const auto next = std::upper_bound(runs.begin(), runs.end(), 4 * code_point + 3);
  return static_cast<BertClass>(*(next - 1) & 3);
}}

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

}}  // namespace flexformer
""")
