// What BERT's tokenizer asks of Unicode: punctuation, accents, control characters, and small letters without accents.
#pragma once
#include <cstdint>

namespace flexformer {

enum class BertClass : std::uint8_t {
  other,
  punctuation,  // general category P
  mark,         // general category Mn: accents that stand for themselves
  control,      // general categories Cc and Cf
};

// The class of a code point up to U+10FFFF.
BertClass bert_class(std::uint32_t code_point);

// The code point in small letters and without its accent, "É" -> "e"; others, and all from U+3000 on, stay.
std::uint32_t bert_fold(std::uint32_t code_point);

}  // namespace flexformer
