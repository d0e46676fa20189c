// Files are read with pread(), so that a text of any size takes up one piece of memory.
#include "train/util/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tensor/error.h"
#include "train/training/trainer.h"
#include "train/util/files.h"
#include "train/util/program.h"

namespace flexformer {

struct TextSource::File {
  int descriptor = -1;
  Index start = 0;  // bytes of the byte order mark
  FileStamp stamp;
  std::string piece;

  explicit File(int opened) : descriptor(opened) {}
  ~File() { close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Fewer bytes at the end of the file.
  std::string_view read(Index from, Index count, const std::string& name) {
    piece.resize(std::size_t(count));
    Index done = 0;
    while (done < count) {
      const ssize_t got = pread(descriptor, piece.data() + done, std::size_t(count - done), from + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot read ", name, ": ", std::generic_category().message(errno));
      if (got == 0) break;
      done += got;
    }
    return std::string_view(piece).substr(0, std::size_t(done));
  }

  FileStamp look(const std::string& name) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) fail("cannot read ", name, ": ", std::generic_category().message(errno));
    constexpr Index samples = 64, sample_bytes = 1024;
    FileStamp seen{Index(status.st_size), Index(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec,
                   kFnvStart};
    const Index last = seen.bytes - std::min(seen.bytes, sample_bytes);
    for (Index i = 0; i < samples; ++i)
      seen.sample = fnv1a64(read(last * i / (samples - 1), sample_bytes, name), seen.sample);
    return seen;
  }
};

TextSource TextSource::open(const std::string& path) {
  TextSource source({}, path);
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    if (const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); opened >= 0) {
      source.file_ = std::make_shared<File>(opened);
      const std::string head(source.file_->read(0, 64, path));
      source.file_->start = Index(head.size() - without_byte_order_mark(head, path).size());
      source.file_->stamp = source.file_->look(path);
      return source;
    }
  }
  source.owned_ = std::make_shared<const std::string>(read_text_file(path));  // or says why it cannot be read
  source.text_ = *source.owned_;
  return source;
}

Index TextSource::size() const { return file_ ? file_->stamp.bytes - file_->start : Index(text_.size()); }

std::string_view TextSource::view(Index from, Index count) {
  count = std::min(count, size() - from);
  if (!file_) return text_.substr(std::size_t(from), std::size_t(count));
  const std::string_view bytes = file_->read(file_->start + from, count, name_);
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
