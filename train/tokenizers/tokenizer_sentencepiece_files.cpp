// The two files that sentencepiece vocabularies come in. A .model is a protobuf message; of its fields only the pieces
// (1: text, score and type) and the trainer's (2) and normaliser's (3) few that decide the tokens are read.
#include <algorithm>
#include <cstring>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_sentencepiece.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

enum PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, byte = 6 };

template <class T> T number_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The fields of a protobuf message, one after another.
class Message {
 public:
  Message(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}

  // Goes on to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field = tag >> 3;
    switch (tag & 7) {
      case 0:
        number = varint();
        break;
      case 1:
        bytes = take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        bytes = take(4);
        break;
      default:
        damaged();
    }
    return true;
  }

  std::uint64_t field = 0, number = 0;
  std::string_view bytes;

  [[noreturn]] void damaged() const { fail(source_, ": this is not a sound sentencepiece model"); }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) damaged();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
    damaged();
  }

  std::string_view rest_;
  const std::string& source_;
};

SentencePieceVocabulary read_model(std::string_view bytes, const std::string& source) {
  SentencePieceVocabulary vocabulary;
  std::uint64_t kind = 1, dummy_prefix = 1, remove_blanks = 1;  // what counts where a field is not there
  Message model(bytes, source);
  while (model.next()) {
    if (model.field == 1) {
      Message piece(model.bytes, source);
      std::string text;
      float score = 0;
      std::uint64_t type = normal;
      while (piece.next()) {
        if (piece.field == 1) text = piece.bytes;
        if (piece.field == 2 && piece.bytes.size() == 4) score = number_at<float>(piece.bytes, 0);
        if (piece.field == 3) type = piece.number;
      }
      if (type == user_defined) fail(source, ": the piece ", quote(text), " is user-defined, which is not supported");
      if (type == unknown || type == control) vocabulary.special_ids.push_back(std::int32_t(vocabulary.pieces.size()));
      vocabulary.pieces.push_back(type == byte ? text : with_spaces(text));
      vocabulary.scores.push_back(score);
    } else if (model.field == 2) {
      Message trainer(model.bytes, source);
      while (trainer.next())
        if (trainer.field == 3) kind = trainer.number;
    } else if (model.field == 3) {
      Message normaliser(model.bytes, source);
      while (normaliser.next()) {
        if (normaliser.field == 2 && !normaliser.bytes.empty())
          fail(source, ": a normaliser that changes characters is not supported");
        if (normaliser.field == 3) dummy_prefix = normaliser.number;
        if (normaliser.field == 4) remove_blanks = normaliser.number;
      }
    }
  }
  if (kind != 2) fail(source, ": a model of type ", kind, " is not supported; only BPE (2) can be read");
  if (dummy_prefix == 0) vocabulary.prefix = SentencePieceVocabulary::never;
  if (remove_blanks != 0) fail(source, ": remove_extra_whitespaces=true is not supported");
  return vocabulary;
}

// The first three pieces are special: llama2.c writes them as "<unk>", "\n<s>\n" and "\n</s>\n".
SentencePieceVocabulary read_llama2c(std::string_view bytes, const std::string& source) {
  constexpr std::size_t head = 8, first_piece = 4;
  SentencePieceVocabulary vocabulary;
  for (std::size_t at = first_piece; at < bytes.size();) {
    const std::size_t left = bytes.size() - at;
    const auto length = left < head ? -1 : std::int64_t(number_at<std::int32_t>(bytes, at + 4));
    if (length < 0 || std::size_t(length) > left - head)
      fail(source, ": this is not a sound tokenizer of llama2.c: piece ", vocabulary.pieces.size(), " at byte ", at,
           " passes the end of the file");
    vocabulary.scores.push_back(number_at<float>(bytes, at));
    vocabulary.pieces.emplace_back(bytes.substr(at + head, std::size_t(length)));
    at += head + std::size_t(length);
  }
  for (std::size_t id = 0; id < std::min<std::size_t>(3, vocabulary.pieces.size()); ++id) {
    vocabulary.pieces[id] = std::string(trim(vocabulary.pieces[id]));
    vocabulary.special_ids.push_back(std::int32_t(id));
  }
  return vocabulary;
}

}  // namespace

std::string with_spaces(std::string_view piece) {
  std::string out;
  for (std::size_t at = 0; at < piece.size();) {
    const bool is_blank = piece.substr(at).starts_with(kSpaceMark);
    out += is_blank ? ' ' : piece[at];
    at += is_blank ? kSpaceMark.size() : 1;
  }
  return out;
}

std::string with_space_marks(std::string_view piece) {
  std::string out;
  for (const char c : piece) c == ' ' ? out += kSpaceMark : out += c;
  return out;
}

bool is_sentencepiece_file(const std::filesystem::path& path) {
  return path.extension() == ".bin" || path.extension() == ".model";
}

SentencePieceVocabulary read_sentencepiece(const std::filesystem::path& path) {
  const std::string source = path.string(), bytes = read_file(path);
  SentencePieceVocabulary vocabulary =
      path.extension() == ".bin" ? read_llama2c(bytes, source) : read_model(bytes, source);
  if (vocabulary.pieces.empty()) fail(source, ": there are no pieces");
  return vocabulary;
}

std::string write_llama2c_tokenizer(const SentencePieceTokenizer& tokenizer) {
  std::string bytes;
  std::int32_t longest = 0;
  const auto add = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string piece = tokenizer.piece(id);
    if (id == 1 || id == 2) piece = "\n" + piece + "\n";
    longest = std::max(longest, std::int32_t(piece.size()));
    add(tokenizer.scores()[std::size_t(id)]);
    add(std::int32_t(piece.size()));
    bytes += piece;
  }
  return std::string(reinterpret_cast<const char*>(&longest), sizeof longest) + bytes;
}

namespace {

// The fields of a protobuf message in the making.
class MessageWriter {
 public:
  MessageWriter& number(std::uint64_t field, std::int64_t value) {
    varint(field << 3);
    varint(std::uint64_t(value));
    return *this;
  }
  MessageWriter& bytes(std::uint64_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    message += value;
    return *this;
  }
  MessageWriter& real(std::uint64_t field, float value) {
    varint(field << 3 | 5);
    message.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  std::string message;

 private:
  void varint(std::uint64_t value) {
    for (; value > 127; value >>= 7) message += static_cast<char>(value | 128);
    message += static_cast<char>(value);
  }
};

}  // namespace

std::string write_sentencepiece_model(const SentencePieceTokenizer& tokenizer, std::int64_t count) {
  MessageWriter model, trainer, normaliser;
  for (std::int32_t id = 0; id < count; ++id) {
    const std::string piece = tokenizer.piece(id);
    const bool is_byte = !tokenizer.is_special(id) && piece != tokenizer.token(id);
    const int kind = tokenizer.is_special(id) ? (piece == "<unk>" ? unknown : control) : is_byte ? byte : normal;
    model.bytes(1, MessageWriter()
                       .bytes(1, with_space_marks(piece))
                       .real(2, tokenizer.scores()[std::size_t(id)])
                       .number(3, kind)
                       .message);
  }
  trainer.number(3, 2).number(4, count).number(35, 1);
  const std::pair<int, const char*> roles[] = {{40, "<unk>"}, {41, "<s>"}, {42, "</s>"}, {43, "<pad>"}};
  for (const auto& [field, name] : roles) trainer.number(std::uint64_t(field), tokenizer.special_id(name));
  const bool prefix = tokenizer.vocabulary().prefix != SentencePieceVocabulary::never;
  normaliser.bytes(1, "identity").number(3, prefix).number(4, 0).number(5, 1);
  return model.bytes(2, trainer.message).bytes(3, normaliser.message).message;
}

}  // namespace flexformer
