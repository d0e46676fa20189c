// Bytes go through up to two stages, gzip and then the encoding; what an unpacked file is, is looked at anew.
#include "train/util/text_encoding.h"

#include <algorithm>

#include "tensor/error.h"
#include "train/util/file_kind.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

using namespace std::string_view_literals;

constexpr std::uint32_t kReplacement = 0xFFFD;

std::uint32_t byte_at(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

bool is_surrogate(std::uint32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// Reads units of 2 or 4 bytes; a character may go on in the next piece.
class WideDecoder {
 public:
  explicit WideDecoder(Encoding encoding)
      : unit_(encoding == Encoding::utf16_le || encoding == Encoding::utf16_be ? 2 : 4),
        big_endian_(encoding == Encoding::utf16_be || encoding == Encoding::utf32_be) {}

  // Appends what is complete to `out`.
  void add(std::string_view bytes, std::string& out) {
    held_ += bytes;
    std::size_t at = 0;
    for (; at + unit_ <= held_.size(); at += unit_) {
      const std::uint32_t value = number(at);
      if (unit_ == 4 || !is_surrogate(value)) {
        append(value, out);
        continue;
      }
      if (value < 0xDC00 && at + 4 > held_.size()) break;  // the second half is still to come
      const std::uint32_t second = value < 0xDC00 ? number(at + 2) : 0;
      const bool pair = second >= 0xDC00 && second <= 0xDFFF;
      append(pair ? 0x10000 + ((value - 0xD800) << 10) + (second - 0xDC00) : kReplacement, out);
      at += pair ? 2 : 0;
    }
    held_.erase(0, at);
  }
  bool is_complete() const { return held_.empty(); }

 private:
  std::uint32_t number(std::size_t at) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < unit_; ++i) value = value << 8 | byte_at(held_, at + (big_endian_ ? i : unit_ - 1 - i));
    return value;
  }
  static void append(std::uint32_t c, std::string& out) {
    append_code_point(c > 0x10FFFF || is_surrogate(c) ? kReplacement : c, out);
  }

  std::size_t unit_;
  bool big_endian_;
  std::string held_;
};

// How well bytes read as text in an encoding: -1 if some of them make none, else the characters all texts are full of.
int plausibility(std::string_view head, Encoding encoding) {
  std::string text;
  WideDecoder(encoding).add(head, text);
  int common = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    at += unit.length;
    const std::uint32_t c = unit.value;
    const bool control = (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7F && c < 0xA0);
    const bool unused = (c >= 0xE000 && c < 0xF900) || (c & 0xFFFE) == 0xFFFE || c > 0x3FFFF;
    // A head may end within a pair, which gives no replacement yet.
    if (control || unused || c == kReplacement) return -1;
    common += c < 0x80 || (c >= 0x3000 && c < 0x3100) || (c >= 0xFF00 && c < 0xFF60);
  }
  return common;
}

// One text on its way: the first piece decides what all are.
class TextDecoder {
 public:
  TextDecoder(const std::string& source, const ByteSink& take) : source_(source), take_(take) {}

  void start(std::string_view head, bool whole) {
    refuse_foreign(head, source_, whole);
    const EncodingGuess guess = guess_encoding(head.substr(0, kFileKindBytes));
    is_wide_ = guess.encoding != Encoding::utf8;
    wide_ = WideDecoder(guess.encoding);
    skip_ = guess.mark;
  }
  // A character of UTF-8 may go on in the next piece.
  void add(std::string_view bytes) {
    const std::size_t skipped = std::min(skip_, bytes.size());
    skip_ -= skipped;
    bytes.remove_prefix(skipped);
    if (is_wide_) {
      text_.clear();
      wide_.add(bytes, text_);
      bytes = text_;
    }
    if (const std::size_t zero = bytes.find('\0'); zero != bytes.npos)
      fail(source_, ": this is not a text file: byte ", done_ + zero,
           " is zero; if it is a text but for such bytes, remove them: tr -d '\\000' < OLD > NEW");
    done_ += bytes.size();
    if (!bytes.empty()) take_(bytes);
  }
  void finish() const {
    if (is_wide_ && !wide_.is_complete())
      fail(source_, ": this is UTF-16 or UTF-32, but ends within a character; is the file complete?");
  }

 private:
  const std::string& source_;
  const ByteSink& take_;
  bool is_wide_ = false;
  WideDecoder wide_{Encoding::utf8};
  std::size_t skip_ = 0, done_ = 0;
  std::string text_;
};

// Keeps the first bytes until there are enough to tell the kind of a file by.
class PushedText {
 public:
  PushedText(const std::string& source, const ByteSink& take, bool whole) : decoder_(source, take), whole_(whole) {}

  void add(std::string_view piece) {
    if (!started_) {
      const std::size_t count = std::min(piece.size(), kFileKindBytes - head_.size());
      head_ += piece.substr(0, count);
      piece.remove_prefix(count);
      // A line that was typed is not kept waiting for more.
      if (head_.size() == kFileKindBytes || (!whole_ && head_.find('\n') != head_.npos)) start(false);
    }
    if (!piece.empty()) decoder_.add(piece);
  }
  void finish() {
    if (!started_) start(true);
    decoder_.finish();
  }

 private:
  void start(bool whole) {
    started_ = true;
    decoder_.start(head_, whole);
    decoder_.add(head_);
  }

  TextDecoder decoder_;
  bool whole_, started_ = false;
  std::string head_;
};

// Whether these are the bytes of a text of bytes, but for a few zeros in it.
bool is_bytes_with_zeros(std::string_view head) {
  if (5 * std::ranges::count(head, '\0') >= 2 * std::ssize(head)) return false;
  for (std::size_t at = 0; at + 4 <= head.size();) {
    const CodePoint unit = next_code_point(head, at);
    if (!unit.valid || (unit.value > 0 && unit.value < ' ' && !is_space(unit))) return false;
    at += unit.length;
  }
  return true;
}

// UTF-8, or an encoding that agrees with ASCII in most bytes.
bool is_bytes_of_text(std::string_view head) {
  const auto ascii = std::ranges::count_if(head, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (10 * ascii >= 8 * std::ssize(head)) return true;
  std::size_t at = 0;
  while (at < head.size() && next_code_point(head, at).valid) at += next_code_point(head, at).length;
  return at + 4 > head.size();  // all but a character that the end cuts off
}

}  // namespace

EncodingGuess guess_encoding(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) return {Encoding::utf8, 3};
  if (head.starts_with("\xFF\xFE\0\0"sv)) return {Encoding::utf32_le, 4};
  if (head.starts_with("\0\0\xFE\xFF"sv)) return {Encoding::utf32_be, 4};
  if (head.starts_with("\xFF\xFE")) return {Encoding::utf16_le, 2};
  if (head.starts_with("\xFE\xFF")) return {Encoding::utf16_be, 2};
  EncodingGuess best;
  const bool has_zeros = head.find('\0') != head.npos;
  if (has_zeros ? is_bytes_with_zeros(head) : is_bytes_of_text(head)) return best;
  // Without a zero byte there is no line's end in UTF-16: kana or wide punctuation must speak for it.
  int most = has_zeros ? 0 : int(head.size() / 40);
  for (const Encoding encoding : {Encoding::utf32_le, Encoding::utf32_be, Encoding::utf16_le, Encoding::utf16_be}) {
    const int common = plausibility(head, encoding);
    if (common > most) most = common, best.encoding = encoding;
  }
  return best;
}

void decode_text(const ByteSource& bytes, const std::string& source, const ByteSink& take, bool whole,
                 std::size_t most) {
  std::string first(bytes());
  while (first == "\x1f") {
    const std::string_view more = bytes();
    if (more.empty()) break;
    first += more;
  }
  const ByteSource all = [&, given = false]() mutable {
    return std::exchange(given, true) || first.empty() ? bytes() : std::string_view(first);
  };
  PushedText text(source, take, whole);
  if (looks_gzipped(first))
    gunzip(all, most, source, [&](std::string_view piece) { text.add(piece); });
  else
    for (std::string_view piece; !(piece = all()).empty();) text.add(piece);
  text.finish();
}

std::string decode_text(std::string bytes, const std::string& source) {
  // Most texts need nothing done, and are not copied.
  const EncodingGuess guess = guess_encoding(std::string_view(bytes).substr(0, kFileKindBytes));
  if (guess.encoding == Encoding::utf8 && !looks_gzipped(bytes)) {
    decode_text(bytes_of(bytes), source, [](std::string_view) {});  // says what is wrong
    bytes.erase(0, guess.mark);
    return bytes;
  }
  std::string text;
  decode_text(bytes_of(bytes), source, [&](std::string_view piece) { text += piece; });
  return text;
}

void refuse_bomb(const std::string& source, std::size_t most) {
  fail(source, ": unpacked, it has more than ", most, " bytes, over ", kMostUnpackedRatio,
       " times its size; if that is right, unpack it first: gunzip -k ", quote(source, 400));
}

bool ends_lines_with_cr(std::string_view text) { return text.find('\r') != text.npos && text.find('\n') == text.npos; }

void settle_line_ends(std::string& text) {
  if (ends_lines_with_cr(text)) std::ranges::replace(text, '\r', '\n');
}

}  // namespace flexformer
