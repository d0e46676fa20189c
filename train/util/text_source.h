// A text that may be longer than memory: read piece by piece, as often as needed. Whoever reads it says how much of a
// piece is settled whatever follows, and the next piece begins there; so pieces give what the whole text would.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "train/util/log.h"

namespace flexformer {

// A file as it was when it was opened. Two stamps are equal if the file has not changed since: size, time of change and
// 64 samples of its bytes.
struct FileStamp {
  std::int64_t bytes = -1, modified_ns = 0;
  std::uint64_t sample = 0;
  bool operator==(const FileStamp&) const = default;
};

class TextSource {
 public:
  // A text in memory, which must live as long as this.
  TextSource(std::string_view text, std::string name) : name_(std::move(name)), text_(text) {}
  // A file as UTF-8, see text_encoding.h; lines that end in CR alone end in LF instead. What is no regular file (a
  // pipe) is read into memory at once. Throws Error for what cannot be read and for what is no text.
  static TextSource open(const std::string& path);

  const std::string& name() const { return name_; }
  Index size() const;  // bytes
  // The `count` bytes from `from` on, fewer at the end of the text. Valid until the next call. Throws Error if the file
  // became shorter meanwhile.
  std::string_view view(Index from, Index count);

  bool is_file() const { return file_ != nullptr; }
  FileStamp stamp() const;  // of a file
  // Throws Error if the file is not what it was when it was opened: what was read is then no text that ever was.
  void check_unchanged() const;

 private:
  struct File;

  std::string name_;
  std::string_view text_;
  std::shared_ptr<const std::string> owned_;  // what a pipe gave
  std::shared_ptr<File> file_;
};

// How texts are read: the sizes are here so that tests can make them small.
struct PieceReading {
  Index piece_bytes = Index(1) << 20;
  Console* console = nullptr;  // for progress on long texts; null: none
};

// A piece of a text, from a place where a token begins.
struct TextPart {
  std::string_view text;
  bool last = true;      // the text ends here; else more bytes follow
  Index first_line = 1;  // for messages
  bool first = true;     // the text begins here
};

// Hands the pieces of a text to take(), which returns how many bytes of the piece it is done with: all of the last one.
// At 0 the same place comes again with twice as many bytes. `doing` names the work: "reading words of". Throws Stopped
// (trainer.h) if stop_signal() is set on the way.
void for_each_part(TextSource& text, const PieceReading& reading, const std::string& doing,
                   const std::function<std::size_t(const TextPart&)>& take);

// Whether reading a text takes long enough for people to be told, and for the result to be kept in a file.
inline constexpr Index kLongText = Index(16) << 20;  // bytes

// The most bytes behind a token's end, or behind the place where a scanner stands, that decide where it ends.
inline constexpr std::size_t kLookahead = 16;

// Hands out the tokens of another scanner of a part, as long as no byte beyond the part could change them.
template <class Scanner> class PartScanner {
 public:
  // `lookahead`: as kLookahead.
  PartScanner(Scanner scanner, const TextPart& part, std::size_t lookahead = kLookahead)
      : scanner_(std::move(scanner)),
        settled_(part.last ? part.text.size() : part.text.size() - std::min(part.text.size(), lookahead)),
        last_(part.last) {}

  bool next(std::string_view& token) {
    if (!scanner_.next(token)) {
      // The space behind the last token belongs to the next one, unless there is nothing else here or there.
      if (last_ || done_ == 0) done_ = scanner_.position();
      return false;
    }
    if (scanner_.position() > settled_) return false;
    done_ = scanner_.position();
    return true;
  }
  // Bytes of the part that the tokens handed out cover.
  std::size_t done() const { return done_; }

 private:
  Scanner scanner_;
  std::size_t settled_, done_ = 0;
  bool last_;
};

}  // namespace flexformer
