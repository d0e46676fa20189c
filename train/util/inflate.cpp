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
  BitReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}
  void go_to(std::size_t byte) { at_ = byte, buffer_ = 0, count_ = 0; }

  std::uint32_t take(int bits) {
    fill(bits);
    if (count_ < bits) fail(source_, ": the compressed data ends too early; is the file complete?");
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
  std::size_t position() const { return at_ - std::size_t(count_ / 8); }  // of the first byte no bit was taken of

  [[noreturn]] void damaged(const char* reason) const {
    fail(source_, ": damaged compressed data near byte ", position(), ": ", reason);
  }

 private:
  void fill(int bits) {
    while (count_ < bits && at_ < bytes_.size()) {
      buffer_ |= std::uint64_t(static_cast<unsigned char>(bytes_[at_++])) << count_;
      count_ += 8;
    }
  }

  std::string_view bytes_;
  const std::string& source_;
  std::size_t at_ = 0;
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

class Inflater {
 public:
  Inflater(std::string_view bytes, std::size_t most, const std::string& source)
      : bytes_(bytes), most_(most), source_(source), in_(bytes, source) {}

  std::string run() {
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
    return std::move(out_);
  }
  std::size_t used() const { return in_.position(); }  // bytes of input up to the end of the last block

 private:
  void need_room(std::size_t bytes) const {
    if (bytes > most_ - out_.size())
      throw TooMuchData(text(source_, ": more than the expected ", most_, " bytes come out of it"));
  }

  void stored() {
    in_.skip_to_byte();
    const std::uint32_t length = in_.take(16);
    if (in_.take(16) != (length ^ 0xFFFF)) in_.damaged("the two lengths of a stored block differ");
    const std::size_t at = in_.position();
    if (length > bytes_.size() - at) fail(source_, ": the compressed data ends too early; is the file complete?");
    need_room(length);
    out_.append(bytes_, at, length);
    in_.go_to(at + length);
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

  std::string_view bytes_;
  std::size_t most_;
  const std::string& source_;
  BitReader in_;
  std::string out_;
};

std::uint32_t number_at(std::string_view bytes, std::size_t at, bool big_endian) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= std::uint32_t(static_cast<unsigned char>(bytes[at + i])) << (big_endian ? 24 - 8 * i : 8 * i);
  return value;
}

// Where the data of the member begins that starts at the beginning of `bytes`.
std::size_t gzip_header(std::string_view bytes, const std::string& source) {
  const auto at_least = [&](std::size_t size) {
    if (bytes.size() < size) fail(source, ": the gzip header is cut off; is the file complete?");
  };
  at_least(10);
  if (!looks_gzipped(bytes) || bytes[2] != 8) fail(source, ": this is not gzip data (it starts otherwise)");
  const int flags = static_cast<unsigned char>(bytes[3]);
  if (flags & 0xE0) fail(source, ": the gzip header has flags nobody has defined; the file is damaged");
  std::size_t at = 10;
  if (flags & 4) {  // extra fields
    at_least(at + 2);
    at += 2 + static_cast<unsigned char>(bytes[at]) + 256u * static_cast<unsigned char>(bytes[at + 1]);
    at_least(at);
  }
  for (int text : {8, 16}) {  // the original name; a comment
    if (!(flags & text)) continue;
    const std::size_t end = bytes.find('\0', at);
    if (end == std::string_view::npos) at_least(bytes.size() + 1);
    at = end + 1;
  }
  if (flags & 2) at_least(at += 2);  // a checksum of the header
  return at;
}

}  // namespace

std::string unzlib(std::string_view bytes, std::size_t most, const std::string& source) {
  if (bytes.size() < 2) fail(source, ": the compressed data ends too early; is the file complete?");
  const int first = static_cast<unsigned char>(bytes[0]), second = static_cast<unsigned char>(bytes[1]);
  if (first % 16 != 8 || (first * 256 + second) % 31 != 0 || second & 32)
    fail(source, ": this is not zlib data (it starts otherwise)");
  Inflater inflater(bytes.substr(2), most, source);
  std::string out = inflater.run();
  const std::size_t end = 2 + inflater.used();
  if (bytes.size() < end + 4) fail(source, ": the compressed data ends too early; is the file complete?");
  if (bytes.size() > end + 4) fail(source, ": ", bytes.size() - end - 4, " bytes too many behind the compressed data");
  if (number_at(bytes, end, true) != adler32(out)) fail(source, ": the checksum of the data is wrong; it is damaged");
  return out;
}

std::string gunzip(std::string_view bytes, std::size_t most, const std::string& source) {
  std::string all;
  do {
    const std::size_t start = gzip_header(bytes, source);
    Inflater inflater(bytes.substr(start), most - all.size(), source);
    std::string out = inflater.run();
    const std::size_t end = start + inflater.used();
    if (bytes.size() < end + 8) fail(source, ": the compressed data ends too early; is the file complete?");
    if (number_at(bytes, end, false) != crc32(out) || number_at(bytes, end + 4, false) != std::uint32_t(out.size()))
      fail(source, ": the checksum of the data is wrong; it is damaged");
    all.empty() ? all.swap(out) : void(all += out);
    bytes.remove_prefix(end + 8);
  } while (!bytes.empty());
  return all;
}

std::uint32_t crc32(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> t;
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0xEDB88320u : 0);
    }
    return t;
  }();
  std::uint32_t crc = ~std::uint32_t(0);
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
