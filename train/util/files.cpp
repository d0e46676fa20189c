// Files through POSIX calls, because only they say why something failed and can flush a folder.
#include "train/util/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tensor/error.h"
#include "train/util/inflate.h"
#include "train/util/text_encoding.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

std::string shown(const std::filesystem::path& path) { return quote(path.string(), 400); }

[[noreturn]] void fail_to_read(const std::filesystem::path& path, int error) {
  if (error == ENOENT) {
    std::error_code ignored;
    const std::filesystem::path here = std::filesystem::current_path(ignored);
    fail("cannot read ", shown(path), ": no such file",
         path.is_relative() ? "; the path is relative to " + shown(here) : "; check the path");
  }
  fail("cannot read ", shown(path), ": ", reason(error));
}

[[noreturn]] void fail_to_write(const char* doing, const std::filesystem::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  fail(doing, shown(path), ": ", reason(error), full ? "; free some space" : "");
}

struct Descriptor {
  int value;
  ~Descriptor() { close(value); }
};

// False, with errno, where not all could be written. At most 1 GiB a call: Linux takes no more than about 2 GiB at
// once.
bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) fail_to_read(path, errno);
  struct stat status {};
  if (fstat(file.value, &status) != 0) fail_to_read(path, errno);
  if (S_ISDIR(status.st_mode)) fail("cannot read ", shown(path), ": it is a folder, not a file");
  std::string bytes;
  try {
    bytes.reserve(static_cast<std::size_t>(status.st_size));
  } catch (const std::exception&) {
    fail("cannot read ", shown(path), ": its ", status.st_size, " bytes do not fit into the memory that is free");
  }
  std::array<char, 1 << 16> block;
  for (;;) {
    const ssize_t count = read(file.value, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to_read(path, errno);
    if (count == 0) return bytes;
    bytes.append(block.data(), static_cast<std::size_t>(count));
  }
}

std::string read_text_file(const std::filesystem::path& path) {
  return decode_text(read_unpacked(path), path.string());
}

std::string read_unpacked(const std::filesystem::path& path) {
  std::string bytes = read_file(path);
  if (!looks_gzipped(bytes)) return bytes;
  const std::size_t most = most_unpacked(bytes.size());
  try {
    return gunzip(bytes, most, path.string());
  } catch (const TooMuchData&) {
    refuse_bomb(path.string(), most);
  }
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  // In another container a process of the same number may be writing the same file.
  for (int n = 0; descriptor_ < 0; ++n) {
    const std::filesystem::path name = text(path_.string(), ".", getpid(), "-", n, kTemporarySuffix);
    descriptor_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0)
      temporary_ = name;
    else if (errno != EEXIST)
      fail_with_reason("cannot write ");
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail_with_reason(const char* doing) {
  const int error = errno;
  discard();
  fail_to_write(doing, path_, error);
}

void AtomicFile::write(std::string_view bytes) {
  if (!write_all(descriptor_, bytes)) fail_with_reason("cannot write ");
}

void AtomicFile::overwrite_start(std::string_view bytes) {
  if (pwrite(descriptor_, bytes.data(), bytes.size(), 0) != std::ssize(bytes)) fail_with_reason("cannot write ");
}

void AtomicFile::commit() {
  int failed;
  while ((failed = fsync(descriptor_)) != 0 && errno == EINTR) continue;
  // EINVAL: a file system that cannot flush (some network mounts); the rename alone is then the best there is.
  if (failed && errno != EINVAL) fail_with_reason("cannot write ");
  if (close(std::exchange(descriptor_, -1)) != 0) fail_with_reason("cannot write ");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_reason("cannot replace ");
  temporary_.clear();
  const std::filesystem::path parent = path_.parent_path();
  const int folder = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const Descriptor closing{folder};
  fsync(folder);
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void append_to_file(const std::filesystem::path& path, std::string_view bytes) {
  const Descriptor file{open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)};
  if (file.value < 0 || !write_all(file.value, bytes)) fail_to_write("cannot write ", path, errno);
}

int remove_stale_temporaries(const std::filesystem::path& folder) {
  int removed = 0;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    std::error_code error;
    if (!entry.path().filename().string().ends_with(kTemporarySuffix) || !entry.is_regular_file(error)) continue;
    removed += std::filesystem::remove(entry.path(), error) ? 1 : 0;
  }
  return removed;
}

std::uint64_t fnv1a64(std::string_view bytes, std::uint64_t hash) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

std::string fingerprint(std::string_view bytes) { return fingerprint(fnv1a64(bytes)); }

std::string fingerprint(std::uint64_t hash) {
  std::string digits(16, '0');
  for (std::size_t i = digits.size(); i-- > 0; hash >>= 4) digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace flexformer
