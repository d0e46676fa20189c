// A Huffman code of DEFLATE is canonical: codes of one length are consecutive numbers, in the order of their symbols.
// So the number of codes of each length and the sorted symbols are all there is to know; short codes go through a
// table.
#include "train/util/inflate.h"

#include <algorithm>
#include <array>
#include <span>

#include "tensor/error.h"

namespace flexformer {
namespace {

constexpr int kLongestCode = 15, kTableBits = 9;

// Numbers of 1 to 32 bits, the lowest bit of each byte first.
class BitReader {
 public:
  BitReader(const ByteSource& in, const std::string& source) : in_(in), source_(source) {}

  std::uint32_t take(int bits) {
    fill(bits);
    if (count_ < bits) ended();
    const auto value = std::uint32_t(buffer_ & ((std::uint64_t(1) << bits) - 1));
    drop(bits);
    return value;
  }
  // The next bits without taking them, zeros behind the end; those that are there are then `available()`.
  std::uint32_t peek(int bits) {
    fill(bits);
    return std::uint32_t(buffer_ & ((std::uint64_t(1) << bits) - 1));
  }
  int available() const { return count_; }
  void drop(int bits) { buffer_ >>= bits, count_ -= bits; }

  void skip_to_byte() { drop(count_ % 8); }
  bool at_end() {  // at the start of a byte
    fill(8);
    return count_ == 0;
  }
  // `count` bytes from the start of a byte on, in pieces.
  template <class Take> void bytes(std::size_t count, const Take& take_bytes) {
    while (count > 0) {
      if (count_ > 0) {
        const char byte = char(take(8));
        take_bytes(std::string_view(&byte, 1));
        --count;
        continue;
      }
      if (at_ == piece_.size() && !refill()) ended();
      const std::string_view piece = piece_.substr(at_, count);
      take_bytes(piece);
      at_ += piece.size();
      count -= piece.size();
    }
  }
  std::size_t position() const { return before_ + at_ - std::size_t(count_ / 8); }  // of the first byte not taken

  [[noreturn]] void damaged(const char* reason) const {
    fail(source_, ": damaged compressed data near byte ", position(), ": ", reason);
  }

 private:
  [[noreturn]] void ended() const { fail(source_, ": the compressed data ends too early; is the file complete?"); }
  bool refill() {
    before_ += piece_.size();
    at_ = 0;
    piece_ = in_();
    return !piece_.empty();
  }
  void fill(int bits) {
    while (count_ < bits && (at_ < piece_.size() || refill())) {
      buffer_ |= std::uint64_t(static_cast<unsigned char>(piece_[at_++])) << count_;
      count_ += 8;
    }
  }

  const ByteSource& in_;
  const std::string& source_;
  std::string_view piece_;
  std::size_t before_ = 0, at_ = 0;  // bytes before the piece; bytes of it that are in the buffer or taken
  std::uint64_t buffer_ = 0;
  int count_ = 0;  // bits in the buffer
};

class HuffmanCode {
 public:
  // lengths: bits of each symbol's code, 0 for a symbol without one. A code that leaves some bits undefined is damage,
  // unless it has a single symbol (or none), which is how a block with one distance is written.
  HuffmanCode(std::span<const std::uint8_t> lengths, const BitReader& in) {
    for (std::uint8_t length : lengths) ++count_[length];
    const int used = int(lengths.size()) - count_[0];
    count_[0] = 0;
    int left = 1;  // codes of this length that are still free
    std::array<int, kLongestCode + 2> first{};
    for (int length = 1; length <= kLongestCode; ++length) {
      left = 2 * left - count_[std::size_t(length)];
      if (left < 0) in.damaged("a code has too many symbols");
      first[std::size_t(length) + 1] = first[std::size_t(length)] + count_[std::size_t(length)];
    }
    if (left > 0 && used > 1) in.damaged("a code is incomplete");
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol)
      if (lengths[symbol]) symbols_[std::size_t(first[lengths[symbol]]++)] = std::uint16_t(symbol);
    fill_table();
  }

  int decode(BitReader& in) const {
    const std::uint32_t bits = in.peek(kLongestCode);
    if (const std::uint16_t entry = table_[bits % table_.size()]; entry && entry % 16 <= in.available()) {
      in.drop(entry % 16);
      return entry / 16;
    }
    int code = 0, first = 0, index = 0;
    for (int length = 1; length <= kLongestCode; ++length) {
      code |= int(bits >> (length - 1)) & 1;
      const int count = count_[std::size_t(length)];
      if (code - first < count) {
        in.take(length);
        return symbols_[std::size_t(index + code - first)];
      }
      index += count;
      first = 2 * (first + count);
      code *= 2;
    }
    in.take(1);  // throws where the data ended
    in.damaged("bits that are no code");
  }

 private:
  // Each code of up to kTableBits at all places that begin with it, its first bit lowest: symbol * 16 + length.
  void fill_table() {
    int code = 0, index = 0;
    for (int length = 1; length <= kTableBits; ++length, code *= 2) {
      for (int i = 0; i < count_[std::size_t(length)]; ++i, ++code, ++index) {
        std::size_t reversed = 0;
        for (int bit = 0; bit < length; ++bit) reversed |= std::size_t(code >> bit & 1) << (length - 1 - bit);
        for (std::size_t at = reversed; at < table_.size(); at += std::size_t(1) << length)
          table_[at] = std::uint16_t(symbols_[std::size_t(index)] * 16 + length);
      }
    }
  }

  std::array<int, kLongestCode + 1> count_{};
  std::array<std::uint16_t, 288> symbols_{};  // in order of their codes
  std::array<std::uint16_t, 1 << kTableBits> table_{};
};

// Unpacks one stream after the other from the same bytes.
class Inflater {
 public:
  Inflater(BitReader& in, std::size_t most, const ByteSink& take, const std::string& source)
      : most_(most), take_(take), source_(source), in_(in) {}

  // Hands out all that one stream holds, and leaves the reader at the start of the byte behind it.
  void run() {
    for (bool last = false; !last;) {
      last = in_.take(1);
      switch (in_.take(2)) {
        case 0:
          stored();
          break;
        case 1:
          fixed();
          break;
        case 2:
          dynamic();
          break;
        default:
          in_.damaged("a block of unknown type");
      }
    }
    hand_out(out_.size());
    in_.skip_to_byte();
  }

 private:
  static constexpr std::size_t kWindow = 1 << 15, kPiece = 1 << 18;

  // Gives the first `count` bytes away.
  void hand_out(std::size_t count) {
    take_(std::string_view(out_).substr(0, count));
    out_.erase(0, count);
  }

  // A repeat may reach back over the last 32,768 bytes, so these stay.
  void need_room(std::size_t bytes) {
    if (bytes > most_ - total_)
      throw TooMuchData(text(source_, ": more than the expected ", most_, " bytes come out of it"));
    total_ += bytes;
    if (out_.size() >= kWindow + kPiece) hand_out(out_.size() - kWindow);
  }

  void stored() {
    in_.skip_to_byte();
    const std::uint32_t length = in_.take(16);
    if (in_.take(16) != (length ^ 0xFFFF)) in_.damaged("the two lengths of a stored block differ");
    need_room(length);
    in_.bytes(length, [&](std::string_view piece) { out_ += piece; });
  }

  void fixed() {
    std::array<std::uint8_t, 288> literals;
    for (std::size_t i = 0; i < literals.size(); ++i)
      literals[i] = std::uint8_t(i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8);
    std::array<std::uint8_t, 32> distances;  // the last two mean nothing
    distances.fill(5);
    block(HuffmanCode(literals, in_), HuffmanCode(distances, in_));
  }

  // The lengths of both codes, themselves run-length coded by a third.
  void dynamic() {
    const std::size_t literals = in_.take(5) + 257, distances = in_.take(5) + 1, used = in_.take(4) + 4;
    if (literals > 286 || distances > 30) in_.damaged("too many codes");
    constexpr std::uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    std::array<std::uint8_t, 19> of_lengths{};
    for (std::size_t i = 0; i < used; ++i) of_lengths[order[i]] = std::uint8_t(in_.take(3));
    const HuffmanCode code(of_lengths, in_);
    std::array<std::uint8_t, 286 + 30> lengths{};
    for (std::size_t at = 0; at < literals + distances;) {
      const int symbol = code.decode(in_);
      std::size_t repeat = 1;
      std::uint8_t length = std::uint8_t(symbol);
      if (symbol >= 16) {
        if (symbol == 16 && at == 0) in_.damaged("a length is repeated before the first");
        length = symbol == 16 ? lengths[at - 1] : 0;
        repeat = symbol == 16 ? 3 + in_.take(2) : symbol == 17 ? 3 + in_.take(3) : 11 + in_.take(7);
      }
      if (repeat > literals + distances - at) in_.damaged("more lengths than codes");
      std::fill_n(lengths.begin() + std::ptrdiff_t(at), repeat, length);
      at += repeat;
    }
    if (lengths[256] == 0) in_.damaged("a block without an end");
    const std::span all(lengths);
    block(HuffmanCode(all.first(literals), in_), HuffmanCode(all.subspan(literals, distances), in_));
  }

  void block(const HuffmanCode& literals, const HuffmanCode& distances) {
    for (;;) {
      const int symbol = literals.decode(in_);
      if (symbol == 256) return;
      if (symbol < 256) {
        need_room(1);
        out_ += char(symbol);
      } else {
        const std::size_t length = repeat_length(symbol - 257);
        repeat(length, distance(distances.decode(in_)));
      }
    }
  }

  // 3 to 10 without extra bits, then four lengths each with 1, 2 ... 5 extra bits, and 258 alone.
  std::size_t repeat_length(int code) {
    if (code > 28) in_.damaged("an unknown length");
    if (code == 28) return 258;
    if (code < 8) return std::size_t(code) + 3;
    const int extra = code / 4 - 1;
    return (std::size_t(4 + code % 4) << extra) + 3 + in_.take(extra);
  }
  // 1 to 4 without extra bits, then two distances each with 1, 2 ... 13 extra bits.
  std::size_t distance(int code) {
    if (code > 29) in_.damaged("an unknown distance");
    if (code < 4) return std::size_t(code) + 1;
    const int extra = code / 2 - 1;
    return (std::size_t(2 + code % 2) << extra) + 1 + in_.take(extra);
  }

  void repeat(std::size_t length, std::size_t distance) {
    if (distance > out_.size()) in_.damaged("a repeat from before the beginning");
    need_room(length);
    const std::size_t from = out_.size() - distance;
    for (std::size_t i = 0; i < length; ++i) out_ += out_[from + i];  // may run into what it writes
  }

  std::size_t most_, total_ = 0;
  const ByteSink& take_;
  const std::string& source_;
  BitReader& in_;
  std::string out_;  // what was not handed out yet
};

// Goes over the header of a gzip member.
void skip_gzip_header(BitReader& in, const std::string& source) {
  const auto byte = [&] {
    if (in.at_end()) fail(source, ": the gzip header is cut off; is the file complete?");
    return in.take(8);
  };
  const std::uint32_t first = byte();
  if (in.at_end()) byte();
  if (first != 0x1F || byte() != 0x8B || byte() != 8) fail(source, ": this is not gzip data (it starts otherwise)");
  const std::uint32_t flags = byte();
  if (flags & 0xE0) fail(source, ": the gzip header has flags nobody has defined; the file is damaged");
  for (int i = 0; i < 6; ++i) byte();  // time, and where it was written
  if (flags & 4) {                     // extra fields
    const std::uint32_t low = byte();
    for (std::uint32_t count = low + 256 * byte(); count > 0; --count) byte();
  }
  for (std::uint32_t text : {8u, 16u})  // the original name; a comment
    while (flags & text && byte() != 0) continue;
  if (flags & 2) byte(), byte();  // a checksum of the header
}

constexpr const char* kWrongSum = ": the checksum of the data is wrong; it is damaged";

}  // namespace

std::string unzlib(std::string_view bytes, std::size_t most, const std::string& source) {
  const ByteSource memory = bytes_of(bytes);
  BitReader in(memory, source);
  const std::uint32_t first = in.take(8), second = in.take(8);
  if (first % 16 != 8 || (first * 256 + second) % 31 != 0 || second & 32)
    fail(source, ": this is not zlib data (it starts otherwise)");
  std::string out;
  const ByteSink take = [&](std::string_view piece) { out += piece; };
  Inflater(in, most, take, source).run();
  std::uint32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum = sum << 8 | in.take(8);
  if (const std::size_t rest = bytes.size() - in.position(); rest > 0)
    fail(source, ": ", rest, " bytes too many behind the compressed data");
  if (sum != adler32(out)) fail(source, kWrongSum);
  return out;
}

void gunzip(const ByteSource& bytes, std::size_t most, const std::string& source, const ByteSink& take) {
  BitReader in(bytes, source);
  std::uint32_t sum = 0, size = 0;
  const ByteSink add = [&](std::string_view piece) {
    sum = crc32(piece, sum);
    size += std::uint32_t(piece.size());
    take(piece);
  };
  Inflater inflater(in, most, add, source);
  do {
    skip_gzip_header(in, source);
    sum = size = 0;
    inflater.run();
    if (in.take(32) != sum || in.take(32) != size) fail(source, kWrongSum);
    // Zeros fill a tape's last block.
    while (!in.at_end() && in.peek(8) == 0) in.drop(8);
  } while (!in.at_end());
}

std::string gunzip(std::string_view bytes, std::size_t most, const std::string& source) {
  std::string all;
  gunzip(bytes_of(bytes), most, source, [&](std::string_view piece) { all += piece; });
  return all;
}

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> t;
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0xEDB88320u : 0);
    }
    return t;
  }();
  std::uint32_t crc = ~before;
  for (char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 255];
  return ~crc;
}

std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (char byte : bytes) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

}  // namespace flexformer
