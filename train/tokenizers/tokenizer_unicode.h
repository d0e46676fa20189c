// Letters, numbers and white space of Unicode, as the patterns of regular expressions name them: \p{L}, \p{N} and \s.
#pragma once
#include <cstdint>
#include <span>

namespace flexformer {

enum class CharClass : std::uint8_t {
  other,   // everything else: marks, symbols, control characters, what Unicode has not assigned
  letter,  // general category L
  number,  // general category N
  space,   // the property White_Space
};

// The class of a code point up to U+10FFFF.
CharClass char_class(std::uint32_t code_point);

// The class of a code point in a table of runs of equal classes, each 4 * its first code point + its class (0 to 3).
unsigned class_in_runs(std::span<const std::uint32_t> runs, std::uint32_t code_point);

}  // namespace flexformer
