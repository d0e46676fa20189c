// Text that is written while it is made: tokens may be parts of characters, but what goes out is always valid UTF-8.
#pragma once
#include <string>
#include <string_view>

namespace flexformer {

class WholeCharacters {
 public:
  // The characters that are complete now. A byte that belongs to none becomes U+FFFD.
  std::string add(std::string_view bytes);

 private:
  std::string held_;  // the beginning of a character
};

// The same for a text that ends here.
inline std::string whole_characters(std::string_view text) { return WholeCharacters().add(text); }

}  // namespace flexformer
