// Ids are widened and checked in one pass over a window.
#include "train/text/token_row.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>

#include "tensor/error.h"

namespace flexformer {
namespace {

static_assert(std::endian::native == std::endian::little, "token files hold numbers little end first");

// Returns whether all ids are below `vocab`. A negative one is far above it.
template <class Stored> bool widen(const char* from, Index count, Index vocab, std::int32_t* to) {
  std::uint32_t largest = 0;
  for (Index i = 0; i < count; ++i) {
    Stored id;
    std::memcpy(&id, from + i * Index(sizeof id), sizeof id);
    to[i] = static_cast<std::int32_t>(id);
    largest = std::max(largest, static_cast<std::uint32_t>(id));
  }
  return count == 0 || Index(largest) < vocab;
}

template <class Stored> void narrow(std::span<const std::int32_t> ids, std::string& bytes) {
  const std::size_t start = bytes.size();
  bytes.resize(start + ids.size() * sizeof(Stored));
  char* to = bytes.data() + start;
  for (const std::int32_t id : ids) {
    const auto stored = static_cast<Stored>(id);
    std::memcpy(to, &stored, sizeof stored);
    to += sizeof stored;
  }
}

}  // namespace

TokenRow::TokenRow(const std::vector<std::int32_t>& ids)
    : size_(ids.size()), vocab_(std::numeric_limits<std::int32_t>::max()), name_("the text") {
  const auto bytes = std::make_shared<std::string>();
  append_bytes(ids, vocab_, *bytes);
  bytes_ = bytes->data();
  owner_ = bytes;
}

TokenRow::TokenRow(std::shared_ptr<const void> owner, const char* bytes, std::size_t size, Index vocab,
                   std::string name)
    : owner_(std::move(owner)), bytes_(bytes), size_(size), vocab_(vocab), name_(std::move(name)) {}

void TokenRow::append_bytes(std::span<const std::int32_t> ids, Index vocab, std::string& bytes) {
  switch (id_bytes(vocab)) {
    case 1:
      return narrow<std::uint8_t>(ids, bytes);
    case 2:
      return narrow<std::uint16_t>(ids, bytes);
    default:
      return narrow<std::int32_t>(ids, bytes);
  }
}

void TokenRow::copy(Index from, Index count, std::int32_t* to) const {
  check("TokenRow::copy", from >= 0 && count >= 0 && from + count <= Index(size_), "tokens ", from, " to ",
        from + count, " of a row of ", size_);
  const Index width = id_bytes(vocab_);
  const char* bytes = bytes_ + from * width;
  const bool valid = width == 1   ? widen<std::uint8_t>(bytes, count, vocab_, to)
                     : width == 2 ? widen<std::uint16_t>(bytes, count, vocab_, to)
                                  : widen<std::int32_t>(bytes, count, vocab_, to);
  if (!valid)
    fail(name_, " is damaged: among its tokens ", from, " to ", from + count - 1, " is one outside the vocabulary of ",
         vocab_, "; delete the file and start again");
}

std::vector<std::int32_t> TokenRow::ids() const {
  std::vector<std::int32_t> ids(size_);
  copy(0, Index(size_), ids.data());
  return ids;
}

TokenRow TokenRow::part(std::size_t from, std::size_t count) const {
  return {owner_, bytes_ + Index(from) * id_bytes(vocab_), count, vocab_, name_};
}

MappedFile map_file(const std::filesystem::path& path) {
  const auto failed = [&] { fail("cannot map ", path.string(), ": ", std::generic_category().message(errno)); };
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) failed();
  struct stat status {};
  const bool known = fstat(descriptor, &status) == 0;
  const auto size = known ? static_cast<std::size_t>(status.st_size) : 0;
  void* address = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  const int error = errno;
  close(descriptor);
  errno = error;
  if (!known || address == MAP_FAILED) failed();
  if (size == 0) return {};
  madvise(address, size, MADV_RANDOM);  // windows are far apart: reading ahead would only fill the memory
  return {std::shared_ptr<const void>(address, [size](const void* at) { munmap(const_cast<void*>(at), size); }),
          {static_cast<const char*>(address), size}};
}

}  // namespace flexformer
