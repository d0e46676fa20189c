// The file that keeps a text's tokens: a header of 256 bytes, then the ids as TokenRow holds them.
//
//   magic "FFTOKENS", version, fingerprint and size of the tokenizer, the stamp of the text, its figures, checksum
//
// All numbers are 64 bits, little end first. The header has a checksum; ids are checked when they are used, since a
// checksum of them would take as long as reading them all.
#pragma once
#include <filesystem>

#include "train/text/tokenized_text.h"

namespace flexformer {

// What a token file must have been made from.
struct TokenFileKey {
  FileStamp text;
  std::uint64_t tokenizer = 0;  // fnv1a64() of its file
  Index vocab = 0;
};

// The tokens of a file, mapped. Throws Error with the reason alone ("it is damaged: ...") if it cannot be used.
TokenizedText read_token_file(const std::filesystem::path& path, const TokenFileKey& key);

// Thrown by TokenFileWriter when the file cannot be written.
struct TokenFileFailed {
  std::string reason;
};

// A token file in the making; nothing appears under its name before finish().
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& path, const TokenFileKey& key);
  void append(std::span<const std::int32_t> ids);
  void finish(const TextFigures& figures);

 private:
  TokenFileKey key_;
  std::unique_ptr<AtomicFile> file_;
  std::string bytes_;
};

}  // namespace flexformer
