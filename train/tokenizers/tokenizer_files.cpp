// GPT-2's files spell bytes as characters, the inverse of what tokenizer_vocabulary.cpp reads.
#include "train/tokenizers/tokenizer_files.h"

#include <array>

#include "train/tokenizers/tokenizer_sentencepiece.h"
#include "train/tokenizers/tokenizer_wordpiece.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

std::string spelled(const std::string& bytes) {
  static const std::array<std::uint32_t, 256> character_of = [] {
    std::array<std::uint32_t, 256> characters{};
    std::uint32_t next = 0x100;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      characters[byte] = printable ? byte : next++;
    }
    return characters;
  }();
  std::string out;
  for (const char byte : bytes) append_code_point(character_of[static_cast<unsigned char>(byte)], out);
  return out;
}

std::vector<std::string> write_gpt2(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
  const auto spelling = [&](std::int32_t id) {
    return tokenizer.is_special(id) ? tokenizer.token(id) : spelled(tokenizer.token(id));
  };
  Json vocabulary = Json::object();
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) vocabulary[spelling(id)] = id;
  std::string merges = "#version: 0.2\n";
  const Json tokenizer_json = tokenizer.to_json();
  for (const Json& merge : tokenizer_json.at("merges"))
    merges += spelling(merge[0].get<std::int32_t>()) + " " + spelling(merge[1].get<std::int32_t>()) + "\n";
  write_file_atomic(folder / "vocab.json", dump_json(vocabulary));
  write_file_atomic(folder / "merges.txt", merges);
  return {"vocab.json", "merges.txt"};
}

}  // namespace

std::vector<std::string> write_tokenizer_files(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
  if (tokenizer.name() == "gpt2") return write_gpt2(tokenizer, folder);
  if (const auto* wordpiece = dynamic_cast<const WordPieceTokenizer*>(&tokenizer)) {
    write_file_atomic(folder / "vocab.txt", write_wordpiece(*wordpiece));
    return {"vocab.txt"};
  }
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer)) {
    write_file_atomic(folder / "tokenizer.bin", write_sentencepiece(*pieces));
    return {"tokenizer.bin"};
  }
  write_json_atomic(folder / "tokenizer.json", tokenizer.to_json());
  return {"tokenizer.json"};
}

}  // namespace flexformer
