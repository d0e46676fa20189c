// A long row of token ids in as few bytes each as the vocabulary needs, in memory or in a mapped file. Parts share the
// bytes. Ids from a file are checked when they are used, so that a damaged one is an error and no wild access.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"

namespace flexformer {

class TokenRow {
 public:
  TokenRow() = default;
  TokenRow(const std::vector<std::int32_t>& ids);  // not explicit: a row in memory is as good as any
  // `size` ids of id_bytes(vocab) bytes each, little end first. `owner` keeps them alive; `name` is for messages.
  TokenRow(std::shared_ptr<const void> owner, const char* bytes, std::size_t size, Index vocab, std::string name);

  // The bytes that each id of a vocabulary of `vocab` tokens takes up: 1, 2 or 4.
  static Index id_bytes(Index vocab) { return vocab <= 0x100 ? 1 : vocab <= 0x10000 ? 2 : 4; }
  // Ids as the second constructor takes them, added to `bytes`.
  static void append_bytes(std::span<const std::int32_t> ids, Index vocab, std::string& bytes);

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Copies ids from, .., from + count - 1. Throws Error naming the row if one of them is outside the vocabulary.
  void copy(Index from, Index count, std::int32_t* to) const;
  std::vector<std::int32_t> ids() const;
  TokenRow part(std::size_t from, std::size_t count) const;

 private:
  std::shared_ptr<const void> owner_;
  const char* bytes_ = nullptr;
  std::size_t size_ = 0;
  Index vocab_ = 0;
  std::string name_;
};

// A file in the address space: its bytes are read when they are touched, and leave memory when it is needed.
struct MappedFile {
  std::shared_ptr<const void> owner;
  std::string_view bytes;
};
// Throws Error if the file cannot be opened or mapped.
MappedFile map_file(const std::filesystem::path& path);

}  // namespace flexformer
