// Files are read with pread(), so that a text of any size takes up one piece of memory. What must be unpacked or
// decoded first is so once, into a file without a name.
#include "train/util/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "tensor/error.h"
#include "train/training/trainer.h"
#include "train/util/file_kind.h"
#include "train/util/files.h"
#include "train/util/program.h"
#include "train/util/text_encoding.h"

namespace flexformer {

namespace {

// What is unpacked stays in memory up to this size, and goes to a file without a name beyond.
constexpr std::size_t kUnpackedInMemory = std::size_t(16) << 20;

std::string system_reason() { return std::generic_category().message(errno); }

struct OpenedFile {
  int value = -1;
  OpenedFile() = default;
  explicit OpenedFile(int opened) : value(opened) {}
  ~OpenedFile() {
    if (value >= 0) close(value);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
};

// Appends the bytes from `from` on, fewer at the end of the file.
void read_at(const OpenedFile& file, Index from, Index count, std::string& bytes, const std::string& name) {
  const std::size_t before = bytes.size();
  bytes.resize(before + std::size_t(count));
  Index done = 0;
  while (done < count) {
    const ssize_t got =
        pread(file.value, bytes.data() + before + std::size_t(done), std::size_t(count - done), from + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read ", name, ": ", system_reason());
    if (got == 0) break;
    done += got;
  }
  bytes.resize(before + std::size_t(done));
}

// Text that a file became: the first bytes in memory, then in a file that vanishes with this.
class Spool {
 public:
  void add(std::string_view bytes, const std::string& source) {
    if (file_.value < 0 && memory_.size() + bytes.size() <= kUnpackedInMemory) {
      memory_ += bytes;
      return;
    }
    if (file_.value < 0) {
      create(source);
      write(std::exchange(memory_, {}), source);
    }
    write(bytes, source);
  }
  Index size() const { return file_.value < 0 ? Index(memory_.size()) : written_; }
  void read(Index from, Index count, std::string& piece, const std::string& name) const {
    if (file_.value >= 0) return read_at(file_, from, count, piece, name);
    piece = memory_.substr(std::size_t(from), std::size_t(count));
  }

 private:
  void create(const std::string& source) {
    std::error_code unknown;
    folder_ = std::filesystem::temp_directory_path(unknown).string();
    std::string name = folder_ + "/flexformer-XXXXXX";
    file_.value = mkostemp(name.data(), O_CLOEXEC);
    if (file_.value < 0) fail_to_write(source);
    unlink(name.c_str());
  }
  void write(std::string_view bytes, const std::string& source) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.value, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_to_write(source);
      written_ += written;
      bytes.remove_prefix(std::size_t(written));
    }
  }
  [[noreturn]] void fail_to_write(const std::string& source) const {
    fail("cannot unpack ", source, " into the folder ", folder_, ": ", system_reason(),
         "; let TMPDIR name one with more room, or unpack the file first");
  }

  std::string memory_, folder_;
  OpenedFile file_;
  Index written_ = 0;
};

}  // namespace

struct TextSource::File {
  OpenedFile descriptor;
  Index start = 0;  // bytes of the byte order mark
  bool cr_lines = false;
  FileStamp stamp;
  std::optional<Spool> text;  // of a file that had to be unpacked or decoded
  std::string piece;

  explicit File(int opened) : descriptor(opened) {}

  Index size() const { return text ? text->size() : stamp.bytes - start; }
  // Fewer bytes at the end of the text.
  std::string_view read(Index from, Index count, const std::string& name) {
    piece.clear();
    if (text)
      text->read(from, count, piece, name);
    else
      read_at(descriptor, start + from, count, piece, name);
    if (const std::size_t zero = piece.find('\0'); zero != piece.npos)
      fail(name, ": this is not a text file: byte ", start + from + Index(zero), " is zero");
    if (cr_lines) std::ranges::replace(piece, '\r', '\n');
    return piece;
  }

  FileStamp look(const std::string& name) {
    struct stat status {};
    if (fstat(descriptor.value, &status) != 0) fail("cannot read ", name, ": ", system_reason());
    constexpr Index samples = 64, sample_bytes = 1024;
    FileStamp seen{Index(status.st_size), Index(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec,
                   kFnvStart};
    const Index last = seen.bytes - std::min(seen.bytes, sample_bytes);
    for (Index i = 0; i < samples; ++i) {
      piece.clear();
      read_at(descriptor, last * i / (samples - 1), sample_bytes, piece, name);
      seen.sample = fnv1a64(piece, seen.sample);
    }
    return seen;
  }

  void open(const std::string& name) {
    stamp = look(name);
    std::string head;
    read_at(descriptor, 0, kHeadBytes, head, name);
    const EncodingGuess guess = guess_encoding(std::string_view(head).substr(0, kFileKindBytes));
    if (guess.encoding == Encoding::utf8 && !looks_gzipped(head)) {
      refuse_foreign(head, name, Index(head.size()) == stamp.bytes);
      start = Index(guess.mark);
      cr_lines = ends_lines_with_cr(head);
      return;
    }
    text.emplace();
    Index at = 0;
    std::string bytes;
    const ByteSource pieces = [&]() -> std::string_view {
      if (stop_signal()) throw Stopped{};
      bytes.clear();
      read_at(descriptor, at, kHeadBytes, bytes, name);
      at += Index(bytes.size());
      return bytes;
    };
    const std::size_t most = most_unpacked(std::size_t(stamp.bytes));
    try {
      decode_text(
          pieces, name, [&](std::string_view unpacked) { text->add(unpacked, name); }, true, most);
    } catch (const TooMuchData&) {
      refuse_bomb(name, most);
    }
    text->read(0, std::min(size(), kHeadBytes), piece, name);
    cr_lines = ends_lines_with_cr(piece);
  }
  static constexpr Index kHeadBytes = 1 << 16;
};

TextSource TextSource::open(const std::string& path) {
  TextSource source({}, path);
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    if (const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); opened >= 0) {
      source.file_ = std::make_shared<File>(opened);
      source.file_->open(path);
      return source;
    }
  }
  std::string text = read_text_file(path);  // or says why it cannot be read
  settle_line_ends(text);
  source.owned_ = std::make_shared<const std::string>(std::move(text));
  source.text_ = *source.owned_;
  return source;
}

Index TextSource::size() const { return file_ ? file_->size() : Index(text_.size()); }

std::string_view TextSource::view(Index from, Index count) {
  count = std::min(count, size() - from);
  if (!file_) return text_.substr(std::size_t(from), std::size_t(count));
  const std::string_view bytes = file_->read(from, count, name_);
  if (Index(bytes.size()) != count) fail(name_, " became shorter while it was read; start again when it is complete");
  return bytes;
}

FileStamp TextSource::stamp() const { return file_ ? file_->stamp : FileStamp{}; }

void TextSource::check_unchanged() const {
  if (file_ && file_->look(name_) != file_->stamp)
    fail(name_, " was changed while it was read; start again when it is complete");
}

void for_each_part(TextSource& text, const PieceReading& reading, const std::string& doing,
                   const std::function<std::size_t(const TextPart&)>& take) {
  const Index size = text.size();
  Console* console = size >= kLongText ? reading.console : nullptr;
  Stopwatch since_start, since_line;
  Index count = reading.piece_bytes;
  TextPart part;
  for (Index at = 0; at < size || size == 0;) {
    if (stop_signal()) throw Stopped{};
    part.text = text.view(at, count);
    part.first = at == 0;
    part.last = at + Index(part.text.size()) == size;
    const std::size_t done = take(part);
    if (part.last && done != part.text.size()) fail(text.name(), ": a tokenizer left the end of the text");
    if (size == 0) break;
    part.first_line += std::count(part.text.begin(), part.text.begin() + std::ptrdiff_t(done), '\n');
    at += Index(done);
    count = done == 0 ? 2 * count : reading.piece_bytes;
    if (!console) continue;
    const double seconds = since_start.seconds(), rate = double(at) / std::max(seconds, 1e-9);
    const bool line = since_line.seconds() >= 10;
    if (line) since_line.reset();
    console->progress(flexformer::text(doing, " ", text.name(), ": ", 100 * at / size, " %, ", fixed(rate / 1e6, 1),
                                       " MB/s, ", duration(double(size - at) / std::max(rate, 1.0)), " left"),
                      line);
  }
}

}  // namespace flexformer
