#include "train/util/whole_characters.h"

#include "train/util/utf8.h"

namespace flexformer {
namespace {

// Whether these one to three bytes can be completed to a character.
bool is_beginning(std::string_view bytes) {
  for (const char second : {'\x80', '\x90', '\xA0'}) {  // after some first bytes not every second one may follow
    std::string whole(bytes);
    if (whole.size() == 1) whole += second;
    while (whole.size() < 4) whole += '\x80';
    const CodePoint unit = next_code_point(whole, 0);
    if (unit.valid && unit.length > bytes.size()) return true;
  }
  return false;
}

}  // namespace

std::string WholeCharacters::add(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  std::size_t at = 0;
  for (CodePoint unit; at < held_.size(); at += unit.length) {
    unit = next_code_point(held_, at);
    if (unit.valid) {
      out.append(held_, at, unit.length);
    } else if (is_beginning(std::string_view(held_).substr(at))) {
      break;
    } else {
      append_code_point(0xFFFD, out);
    }
  }
  held_.erase(0, at);
  return out;
}

}  // namespace flexformer
