// Whole files in, whole files out. A file under its final name is always complete: AtomicFile writes to a temporary
// name in the same folder and renames it only after the bytes have reached the disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace flexformer {

// All bytes of a file (or a pipe). Throws Error when it is missing, a folder, or unreadable.
std::string read_file(const std::filesystem::path& path);

// read_unpacked() for text: as UTF-8 without byte order mark, see text_encoding.h. Throws Error for what is no text.
std::string read_text_file(const std::filesystem::path& path);

// read_file(), unpacked if it is gzip data. Throws Error where a file becomes more than 64 times as large (and more
// than 64 MB): texts and pictures do not, but a small file made to fill the memory does.
std::string read_unpacked(const std::filesystem::path& path);
inline constexpr std::size_t kMostUnpackedRatio = 64;
constexpr std::size_t most_unpacked(std::size_t packed) {
  return (std::size_t{64} << 20) + kMostUnpackedRatio * packed;
}

// A file in the making. Without commit() nothing appears under its name and the temporary is removed.
// Every failure (no such folder, read-only, disk full) throws Error with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void overwrite_start(std::string_view bytes);  // replaces the first bytes written: a header whose figures come last
  void commit();  // flushes to disk, renames, then flushes the folder so that the new name survives a power cut

 private:
  [[noreturn]] void fail_with_reason(const char* doing);
  void discard() noexcept;

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// For files that grow by lines, where the last may be cut off: it is the reader's to leave that out. Throws Error with
// the path and the system's reason.
void append_to_file(const std::filesystem::path& path, std::string_view bytes);

// What the name of a file in the making ends in.
inline constexpr std::string_view kTemporarySuffix = ".flexformer-tmp";

// Deletes what an interrupted AtomicFile left in `folder`; returns how many files that were. A missing folder has none.
int remove_stale_temporaries(const std::filesystem::path& folder);

// FNV-1a, 64 bit: h = (h ^ byte) * 0x100000001b3 from 0xcbf29ce484222325. Notices changed data; no cryptographic hash.
// `hash` is that of the bytes before, for data that comes in pieces.
inline constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325;
std::uint64_t fnv1a64(std::string_view bytes, std::uint64_t hash = kFnvStart);

// fnv1a64() as 16 hexadecimal digits, as run folders store it.
std::string fingerprint(std::string_view bytes);
std::string fingerprint(std::uint64_t hash);

}  // namespace flexformer
