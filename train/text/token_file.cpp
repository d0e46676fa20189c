// The header is written last, over the zeros that hold its place: the figures are only known then.
#include "train/text/token_file.h"

#include <array>
#include <cstring>

#include "tensor/error.h"
#include "train/util/files.h"

namespace flexformer {
namespace {

constexpr std::size_t kIdsStart = 256;

struct Header {
  std::array<char, 8> magic = {'F', 'F', 'T', 'O', 'K', 'E', 'N', 'S'};
  std::uint64_t version = 1, tokenizer = 0;
  Index vocab = 0;
  FileStamp text;
  TextFigures figures;
  std::uint64_t checksum = 0;  // fnv1a64() of all before it
};
static_assert(sizeof(Header) == 8 * 17 && std::has_unique_object_representations_v<Header>);  // nothing but its numbers

std::string_view bytes_of(const Header& header) { return {reinterpret_cast<const char*>(&header), sizeof header}; }

std::uint64_t checksum(const Header& header) {
  return fnv1a64(bytes_of(header).substr(0, sizeof header - sizeof header.checksum));
}

// Runs what writes, and tells its failure from those of tokenising.
template <class Write> void written(const Write& write) {
  try {
    write();
  } catch (const Error& error) {
    throw TokenFileFailed{error.what()};
  }
}

}  // namespace

TokenizedText read_token_file(const std::filesystem::path& path, const TokenFileKey& key) {
  const MappedFile file = map_file(path);
  Header header;
  if (file.bytes.size() < kIdsStart) fail("it is damaged: it has ", file.bytes.size(), " bytes");
  std::memcpy(&header, file.bytes.data(), sizeof header);
  if (header.magic != Header{}.magic) fail("it is no token file");
  if (header.version != Header{}.version)
    fail("it has format ", header.version, ", this program reads ", Header{}.version);
  if (header.checksum != checksum(header)) fail("it is damaged: the checksum of its header is wrong");
  if (header.tokenizer != key.tokenizer || header.vocab != key.vocab) fail("it belongs to another tokenizer");
  if (header.text != key.text) fail("the text has changed since");
  const Index expected = Index(kIdsStart) + header.figures.tokens * TokenRow::id_bytes(key.vocab);
  if (Index(file.bytes.size()) != expected)
    fail("it is damaged: it has ", file.bytes.size(), " bytes instead of ", expected);
  return {{file.owner, file.bytes.data() + kIdsStart, std::size_t(header.figures.tokens), key.vocab, path.string()},
          header.figures};
}

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, const TokenFileKey& key) : key_(key) {
  written([&] {
    file_ = std::make_unique<AtomicFile>(path);
    file_->write(std::string(kIdsStart, '\0'));
  });
}

void TokenFileWriter::append(std::span<const std::int32_t> ids) {
  bytes_.clear();
  TokenRow::append_bytes(ids, key_.vocab, bytes_);
  written([&] { file_->write(bytes_); });
}

void TokenFileWriter::finish(const TextFigures& figures) {
  Header header{.tokenizer = key_.tokenizer, .vocab = key_.vocab, .text = key_.text, .figures = figures};
  header.checksum = checksum(header);
  written([&] {
    file_->overwrite_start(bytes_of(header));
    file_->commit();
  });
}

}  // namespace flexformer
