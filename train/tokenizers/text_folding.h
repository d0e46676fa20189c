// What is done to a text before a vocabulary of its own cuts it, so that equal words are equal bytes: canonical
// composition (NFC), and small letters.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "train/util/text_source.h"

namespace flexformer {

struct TextFolding {
  bool lowercase = false;
  bool unicode =
      false;  // small letters of all scripts; false: of ASCII, Latin-1, Greek and Cyrillic, as lowercase() has
  bool nfc = false;
  bool drop_soft_hyphens = false;  // which only say where a word may be broken at a line's end
  bool changes() const { return lowercase || nfc || drop_soft_hyphens; }
};

// A text in small letters, of all scripts. Sigma has one small form here also at a word's end, and dotted I loses its
// dot: so words are equal whether their capitals were made small here or by their writer.
std::string fold_case(std::string_view text);

// A part of a text after folding. Of a part that goes on, the end may be left out: what follows could change it.
class FoldedText {
 public:
  FoldedText(const TextPart& part, const TextFolding& folding);
  FoldedText(const FoldedText&) = delete;
  FoldedText& operator=(const FoldedText&) = delete;

  std::string_view text() const { return text_; }
  bool is_last() const { return last_; }  // the text ends here
  // Where in the part the characters end that the first `count` bytes of text() were made from.
  std::size_t original(std::size_t count) const;
  // The last place up to `count` that does not lie within what one character, or several that belong together, became.
  std::size_t boundary(std::size_t count) const;

 private:
  void compose();

  std::string_view text_;
  std::string folded_;
  std::vector<std::size_t> ends_;  // by byte of text_; empty: as many bytes as before
  bool last_;
  bool by_characters_ = false;  // a place within a character is behind it
};

// Has `cut(part)` cut a folded part: it returns how many bytes are settled, and may be asked again for less where its
// token ends within a character. Then calls accept() while the folded text is still there. Returns how many bytes of
// the part that are.
template <class Cut, class Accept>
std::size_t cut_folded(const TextPart& part, const TextFolding& folding, const Cut& cut, const Accept& accept) {
  if (!folding.changes()) {
    const std::size_t done = cut(part);
    accept();
    return done;
  }
  const FoldedText folded(part, folding);
  TextPart changed = part;
  changed.text = folded.text();
  changed.last = folded.is_last();
  for (;;) {
    const std::size_t done = cut(changed), boundary = folded.boundary(done);
    if (boundary == done) {
      accept();
      return folded.original(done);
    }
    changed.text = changed.text.substr(0, boundary);
    changed.last = false;
  }
}
template <class Cut> std::size_t cut_folded(const TextPart& part, const TextFolding& folding, const Cut& cut) {
  return cut_folded(part, folding, cut, [] {});
}

}  // namespace flexformer
