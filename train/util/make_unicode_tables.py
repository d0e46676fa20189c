#!/usr/bin/env python3
"""Writes train/util/unicode_tables.inc: what train/util/unicode.cpp asks of Unicode. Run it after changing it, or to move to the
Unicode version of a newer Python (tokens of characters that are newer than the tables may change):

    python3 train/util/make_unicode_tables.py
"""
import pathlib
import unicodedata

OTHER, LETTER, NUMBER, SPACE = range(4)  # enum class CharClass
_, PUNCTUATION, MARK, CONTROL, OTHER_MARK = range(5)  # enum class BertClass
COMPATIBLE, COMPOSED, DECOMPOSED = range(3)  # kinds of decompositions: the last two are canonical

# Categories know no White_Space: str.isspace() is that property and the four separators of ASCII.
SEPARATORS = range(0x1C, 0x20)
HANGUL = range(0xAC00, 0xD7A4)  # syllables decompose by arithmetic
ALL = range(0x110000)


def char_class(char):
    if char.isspace() and ord(char) not in SEPARATORS:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(char)[0], OTHER)


def bert_class(char):
    category = unicodedata.category(char)
    if category[0] == "P":
        return PUNCTUATION
    return {"Mn": MARK, "Mc": OTHER_MARK, "Me": OTHER_MARK, "Cc": CONTROL, "Cf": CONTROL}.get(category, OTHER)


def signed(number):
    return 2 * number if number >= 0 else -2 * number - 1


def runs_of(class_of):
    """For each run of equal classes: how long the one before was, the class."""
    numbers, start, previous = [], 0, None
    for code_point in ALL:
        value = class_of(chr(code_point))
        if value != previous:
            numbers += [code_point - start, value]
            start, previous = code_point, value
    return numbers


def lower_runs():
    """For each run: distance from the run before, 2 * count + (step - 1), what lower-casing adds."""
    runs = []  # [first, count, step, added]
    for code_point in ALL:
        lower = chr(code_point).lower()
        if len(lower) != 1 or ord(lower) == code_point:
            continue
        added = ord(lower) - code_point
        if runs and runs[-1][3] == added:
            first, count, step, _ = last = runs[-1]
            gap = code_point - (first + (count - 1) * step)
            if gap <= 2 and (count == 1 or gap == step):
                last[1:3] = [count + 1, gap]
                continue
        runs.append([code_point, 1, 1, added])
    numbers, before = [], 0
    for first, count, step, added in runs:
        numbers += [first - before, 2 * count + step - 1, signed(added)]
        before = first
    return numbers


def decompositions():
    """For each run of code points: distance from the end of the run before; 4 * length of the decomposition + kind; 3 * count +
    which element goes up by one from one to the next (0 none, 1 the first, 2 the last); the elements, each as the distance from the
    one at this place before (all but the first are one place)."""
    runs = []  # [first, count, moving, kind, elements]
    for code_point in ALL:
        parts = unicodedata.decomposition(chr(code_point)).split()
        if not parts or code_point in HANGUL:
            continue
        kind = DECOMPOSED
        if parts[0].startswith("<"):
            kind = COMPATIBLE
        elif unicodedata.normalize("NFC", chr(code_point)) == chr(code_point):
            kind = COMPOSED
        elements = [int(part, 16) for part in parts if part[0] != "<"]
        if runs:
            first, count, moving, last_kind, base = last = runs[-1]
            if code_point == first + count and kind == last_kind and len(elements) == len(base):
                changes = {0: base, 1: [base[0] + count] + base[1:], 2: base[:-1] + [base[-1] + count]}
                fits = [m for m, want in changes.items() if want == elements and (count == 1 or m == moving)]
                if fits:
                    last[1:3] = [count + 1, fits[0]]
                    continue
        runs.append([code_point, 1, 0, kind, elements])
    numbers, end, before = [], 0, [0, 0]
    for first, count, moving, kind, elements in runs:
        numbers += [first - end, 4 * len(elements) + kind, 3 * count + moving]
        end = first + count
        for place, element in enumerate(elements):
            numbers.append(signed(element - before[place > 0]))
            before[place > 0] = element
    return numbers


def packed(numbers):
    """Digits of base 32 as characters from '0' on, the lowest first; all but a number's last digit are 32 higher."""
    text = ""
    for number in numbers:
        while number >= 32:
            text += chr(48 + 32 + number % 32)
            number //= 32
        text += chr(48 + number)
    return text


def table(name, numbers):
    text, width = packed(numbers), 110
    lines = [f'    R"({text[at:at + width]})"' for at in range(0, len(text), width)]
    return f"constexpr std::string_view {name} =\n" + "\n".join(lines) + ";\n"


tables = {
    "packed_char_classes": runs_of(char_class),
    "packed_bert_classes": runs_of(bert_class),
    "packed_combining_classes": runs_of(unicodedata.combining),
    "packed_lower": lower_runs(),
    "packed_decompositions": decompositions(),
}
pathlib.Path(__file__).with_name("unicode_tables.inc").write_text(
    f"// Written by train/util/make_unicode_tables.py from Unicode {unicodedata.unidata_version}; change that instead. It says what the\n"
    "// numbers mean and how they are packed.\n" + "\n".join(table(*item) for item in tables.items()))
