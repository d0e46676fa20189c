// Targets for texts as files hold them: encodings, lines and tables to label, and the pieces of a long text.
#include <algorithm>
#include <array>

#include "tests/fuzz/fuzz_tools.h"
#include "tests/train/util/temporary_folder.h"
#include "train/datasets/texts_to_label.h"
#include "train/tokenizers/scored_merges.h"
#include "train/util/text_encoding.h"
#include "train/util/text_source.h"
#include "train/util/utf8.h"
#include "train/util/whole_characters.h"

namespace flexformer::tests {

// The bytes of a file, as text and as what predict is to label, in pieces of any size.
void text_file(std::string_view bytes) {
  Choices choose(bytes);
  const std::size_t size = 1 + choose.below(40);
  LabelReading reading;
  reading.pair = choose.below(4) == 3;
  reading.listops = choose.below(3) == 2;
  reading.table.text = choose.of({"", "text", "2"});
  const std::string name = choose.of({"f", "f.csv", "f.html", "f.jsonl"});
  const auto in_pieces = [&](std::size_t count) {
    return [bytes, count]() mutable {
      const std::string_view piece = bytes.substr(0, count);
      bytes.remove_prefix(piece.size());
      return piece;
    };
  };
  const std::string text = decode_text(std::string(bytes), name);
  promise(text.find('\0') == std::string::npos, "text file: no zero bytes");
  std::string again;
  decode_text(in_pieces(size), name, [&](std::string_view piece) { again += piece; });
  promise(again == text, "text file: pieces are the whole");
  static const TemporaryFolder home;
  home.file("text", bytes);
  std::string opened;
  TextSource source = TextSource::open((home.path() / "text").string());
  for (Index at = 0; at < source.size(); at += Index(size)) opened += source.view(at, Index(size));
  settle_line_ends(again);
  promise(name == "f.html" || opened == again || text.size() > 60000, "text file: a source reads the same");
  std::vector<std::string> whole, parts;
  read_texts_to_label(
      in_pieces(bytes.size() + 1), name, reading, [&](const Row& row) { whole.push_back(row.text + "|" + row.text2); },
      [](const std::string&) {});
  read_texts_to_label(
      in_pieces(size), name, reading, [&](const Row& row) { parts.push_back(row.text + "|" + row.text2); },
      [](const std::string&) {});
  promise(whole == parts, "text file: pieces give the same texts");
  WholeCharacters stream;
  std::string characters;
  for (std::size_t at = 0; at < bytes.size(); at += size) characters += stream.add(bytes.substr(at, size));
  promise(is_valid_utf8(characters) && characters == whole_characters(bytes), "text file: whole characters go out");
}

// Pieces with scores, one a line, and a text.
void scored(std::string_view bytes) {
  const std::vector<std::string_view> files = parts(bytes);
  std::array<std::int32_t, 256> byte_ids;
  for (std::size_t byte = 0; byte < 256; ++byte) byte_ids[byte] = std::int32_t(byte);
  std::vector<ScoredMerges::Piece> pieces;
  std::string_view lines = files[0];
  for (std::size_t end; !lines.empty() && pieces.size() < 500; lines.remove_prefix(std::min(end + 1, lines.size()))) {
    end = std::min(lines.find('\n'), lines.size());
    if (end >= 2) pieces.push_back({lines.substr(1, end - 1), float(lines[0]), std::int32_t(256 + pieces.size())});
  }
  const ScoredMerges merges(pieces, byte_ids);
  const std::string_view text = files.back();
  std::vector<std::int32_t> whole, cut;
  promise(merges.append(text, true, whole) == text.size(), "scored: all of a text has tokens");
  std::size_t at = 0, count = 1;
  while (at < text.size()) {
    const std::string_view part = text.substr(at, count);
    const std::size_t done = merges.append(part, at + part.size() == text.size(), cut);
    at += done;
    count = done ? 1 : 2 * count;
  }
  promise(cut == whole, "scored: pieces give the same tokens");
}

}  // namespace flexformer::tests
