// Files that are something else than their reader expects: what they are, by their first bytes, and what to do about
// it. Pointers to a file, web pages in place of a download, archives, spreadsheets, pictures, programs and the like.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace flexformer {

// "a Git LFS pointer" and "fetch the file itself (git lfs pull)".
struct FileKind {
  std::string_view name = {}, cure = {};
  explicit operator bool() const { return !name.empty(); }
};

// The bytes at the start of a file that decide.
inline constexpr std::size_t kFileKindBytes = 8192;

// What a file is that starts with `head`; none for what may be text, gzip data, pictures in IDX format, or a format
// that is not known here. `name` is the file's: an ".html" file is meant to be a web page. `whole`: `head` is all of
// it.
FileKind foreign_kind(std::string_view head, std::string_view name = {}, bool whole = false);

// Throws Error "source: this is a Git LFS pointer: fetch the file itself (git lfs pull)" for a foreign kind.
void refuse_foreign(std::string_view head, const std::string& source, bool whole = false);

}  // namespace flexformer
