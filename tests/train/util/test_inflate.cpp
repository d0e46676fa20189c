// Decompression and PNG: right for every kind of block, filter and colour, and for damaged files an Error, never more.
#include <doctest/doctest.h>

#include <functional>

#include "tensor/error.h"
#include "tensor/random.h"
#include "tests/train/util/png_writer.h"
#include "train/util/inflate.h"
#include "train/util/png.h"

using namespace flexformer;
using namespace flexformer::tests;
using doctest::Contains;

namespace {

std::string from_hex(std::string_view digits) {
  std::string out;
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) out += char(16 * value(digits[i]) + value(digits[i + 1]));
  return out;
}

// What the zlib library made (level 9) of numbers(): one block with codes of its own.
const std::string kDynamic = from_hex(
    "78da35d14b6e04310804d07d4ee12300657e7d9f2c228de6fecb94d578d7256378a63f7fdfdf25cf929fcff9d267656bbfc1"
    "9e058d8c3781476aa96fdacf528b94fd4667ececf437c6b3ac5c6a4e938daa0473b79ee512a5d3b89f155b3766aaca6b904b"
    "a2a9bdb4ef3959ba05c064c28082d464d2dc4d6da6296d599a69930f2ecd6f791e6b790d5d8f2e3cfd8e278fa7e933cec8e3"
    "52bca7bd91b7db2ca7dec82b58564e264fabf53ecf0e2f14188e91d7bb11b73f797098dd7afa6867c164fa8c9bcdf1db599f"
    "77c578707cd4e4dc077da1a2987a9cf549cb9d0ffac290315e9c3feb1bb8f9ac4f24f7bd7fd617d63dff16f4d556a93b9fbe"
    "0d1799f780bebd93cffb07b93e93eb");
std::string numbers() {
  std::string out;
  for (long long i = 0; i < 40; ++i) out += text("line ", i, ": ", i * i * 7919 % 1000003, "\n");
  return out;
}

// The same with the fixed codes.
const std::string kFixed = from_hex("78014b4c4a4e84a194449c9c8acaaa5104470081ba8e93");
std::string repeats() {
  std::string out;
  for (int i = 0; i < 3; ++i) out += "abcabcabcabcd";
  for (int i = 0; i < 90; ++i) out += "xyz";
  return out;
}

const std::string kGzip = from_hex("1f8b08000000000002032b484cce4e4d010010b4f62106000000");  // "packed"

// Every beginning of `bytes`, and copies with random bytes changed, must either be refused or give `right`.
void check_damage(const std::string& bytes, const std::string& right,
                  const std::function<std::string(std::string_view)>& read) {
  REQUIRE(read(bytes) == right);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(read(std::string_view(bytes).substr(0, size)), Error);
  }
  Random random(7);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string copy = bytes;
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes)
      copy[random.below(copy.size())] ^= char(1 + random.below(255));
    try {
      const std::string out = read(copy);
      CHECK(out == right);
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 500);
}

std::string unpack(std::string_view bytes) { return unzlib(bytes, 100000, "f"); }

// Filters `rows` (each `bytes` long, `pixel` bytes a pixel) by filter y % 5, as an encoder does.
std::string filtered(const std::vector<std::string>& rows, std::size_t pixel) {
  std::string out;
  std::string above(rows[0].size(), '\0');
  for (std::size_t y = 0; y < rows.size(); ++y) {
    out += char(y % 5);
    for (std::size_t i = 0; i < rows[y].size(); ++i) {
      const auto at = [&](const std::string& row, std::size_t back) {
        return i < back ? 0 : int(static_cast<unsigned char>(row[i - back]));
      };
      const int a = at(rows[y], pixel), b = at(above, 0), c = at(above, pixel), p = a + b - c;
      int best = a;
      if (std::abs(p - b) < std::abs(p - best)) best = b;
      if (std::abs(p - c) < std::abs(p - best)) best = c;
      const int predicted[] = {0, a, b, (a + b) / 2, best};
      out += char(static_cast<unsigned char>(rows[y][i]) - predicted[y % 5]);
    }
    above = rows[y];
  }
  return out;
}

std::string random_bytes(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += char(random.below(256));
  return out;
}

}  // namespace

TEST_CASE("checksums are those of the standards") {
  CHECK(crc32("123456789") == 0xcbf43926u);
  CHECK(adler32("Wikipedia") == 0x11e60398u);
  CHECK(crc32("") == 0);
  CHECK(adler32("") == 1);
}

TEST_CASE("all kinds of deflate blocks are unpacked") {
  CHECK(unpack(kDynamic) == numbers());
  CHECK(unpack(kFixed) == repeats());
  const std::string long_bytes = random_bytes(70000, 1);  // two stored blocks
  CHECK(unpack(stored_zlib(long_bytes)) == long_bytes);
  CHECK(unpack(stored_zlib("")).empty());
}

TEST_CASE("gzip files of one member or several are unpacked, with whatever their headers hold") {
  CHECK(gunzip(kGzip, 100, "f") == "packed");
  CHECK(gunzip(kGzip + kGzip, 100, "f") == "packedpacked");
  std::string named = kGzip;
  named[3] = 4 + 8 + 16 + 2;
  named.insert(10, std::string("\x03\0abcname\0comment\0\x01\x02", 2 + 3 + 5 + 8 + 2));
  CHECK(gunzip(named, 100, "f") == "packed");
  CHECK_THROWS_WITH_AS(gunzip(kGzip + "x", 100, "f"), Contains("f: the gzip header is cut off"), Error);
  CHECK_THROWS_WITH_AS(gunzip(std::string(20, 'x'), 100, "f"), Contains("f: this is not gzip data"), Error);
  std::string flags = kGzip;
  flags[3] = char(0x80);
  CHECK_THROWS_WITH_AS(gunzip(flags, 100, "f"), Contains("flags nobody has defined"), Error);
  std::string sum = kGzip;
  sum[20] ^= 1;
  CHECK_THROWS_WITH_AS(gunzip(sum, 100, "f"), Contains("f: the checksum of the data is wrong"), Error);
}

TEST_CASE("no more comes out than was allowed") {
  CHECK(unzlib(kFixed, repeats().size(), "f") == repeats());
  CHECK_THROWS_WITH_AS(unzlib(kFixed, repeats().size() - 1, "f"), Contains("f: more than the expected 308 bytes"),
                       Error);
  CHECK_THROWS_WITH_AS(unzlib(stored_zlib("abc"), 2, "f"), Contains("more than the expected 2 bytes"), Error);
  CHECK_THROWS_WITH_AS(gunzip(kGzip + kGzip, 11, "f"), Contains("more than the expected 11 bytes"), Error);
}

TEST_CASE("damaged deflate data is refused with the reason") {
  const auto refused = [](std::string_view hex, const char* reason) {
    CHECK_THROWS_WITH_AS(unpack(from_hex(hex)), Contains(reason), Error);
  };
  refused("78", "f: the compressed data ends too early; is the file complete?");
  refused("7802", "f: this is not zlib data");
  refused("780107", "f: damaged compressed data near byte 3: a block of unknown type");
  refused("780101020000000000", "the two lengths of a stored block differ");
  refused("7801010200fdff61", "the compressed data ends too early");
  refused("78014b040400", "the compressed data ends too early");
  refused("78010302", "a repeat from before the beginning");
  refused("7801fdffffff", "too many codes");
  refused("78010500000000", "bits that are no code");
  refused(std::string("78010300") + "00000001" + "ff", "1 bytes too many behind the compressed data");
  refused(std::string("78010300") + "00000002", "the checksum of the data is wrong");
}

TEST_CASE("codes and repeats that cannot be are refused") {
  // Bits in the order of the stream; spaces are for the reader.
  const auto refused = [](const std::string& bits, const char* reason) {
    std::string bytes = "\x78\x01";
    int count = 0;
    for (char bit : bits) {
      if (bit == ' ') continue;
      if (count % 8 == 0) bytes += '\0';
      bytes.back() = char(bytes.back() | (bit - '0') << count++ % 8);
    }
    CHECK_THROWS_WITH_AS(unpack(bytes + "more"), Contains(reason), Error);
  };
  const auto repeated = [](const std::string& part, int times) {
    std::string out;
    while (times-- > 0) out += part;
    return out;
  };
  const std::string dynamic = "1 01 00000 00000 1111 ", none = "000";  // 257 + 1 codes, by lengths of 19 symbols
  refused(dynamic + repeated("100", 19), "a code has too many symbols");
  refused(dynamic + "010 010" + repeated(none, 17), "a code is incomplete");
  refused(dynamic + "100 100" + repeated(none, 17) + " 0", "a length is repeated before the first");
  const std::string zeros = dynamic + none + "100 100" + repeated(none, 16);  // 0: 3 to 10 zeros, 1: 11 to 138
  refused(zeros + " 1 1111111 1 1111111", "more lengths than codes");
  refused(zeros + " 1 1111111 1 1011011", "a block without an end");
  const std::string fixed = "1 10 10010001 ";  // an 'a'
  refused(fixed + "0000001 11110", "an unknown distance");
  refused(fixed + "11000110", "an unknown length");
  refused(fixed + "0000001 00001", "a repeat from before the beginning");
}

TEST_CASE("a truncated or changed stream gives the right bytes or an error") {
  check_damage(kDynamic, numbers(), unpack);
  check_damage(kFixed, repeats(), unpack);
  check_damage(kGzip, "packed", [](std::string_view bytes) { return gunzip(bytes, 1000, "f"); });
  Random random(3);
  for (int i = 0; i < 3000; ++i) {  // mere noise behind a right header
    try {
      unpack("\x78\x01" + random_bytes(1 + random.below(60), std::uint64_t(i)));
    } catch (const Error&) {
    }
  }
}

TEST_CASE("pictures of every colour type and depth are read, through all five filters") {
  struct Kind {
    int colour, samples;
    std::vector<int> depths;
  };
  for (const Kind& kind : {Kind{0, 1, {1, 2, 4, 8, 16}}, Kind{2, 3, {8, 16}}, Kind{3, 1, {1, 2, 4, 8}},
                           Kind{4, 2, {8, 16}}, Kind{6, 4, {8, 16}}}) {
    for (int depth : kind.depths) {
      CAPTURE(kind.colour);
      CAPTURE(depth);
      const unsigned width = 7, height = 11;
      const std::size_t bits = std::size_t(kind.samples * depth), row_bytes = (width * bits + 7) / 8;
      std::vector<std::string> rows;
      for (unsigned y = 0; y < height; ++y) rows.push_back(random_bytes(row_bytes, y + 1));
      const std::string palette = kind.colour == 3 ? random_bytes(3u << depth, 99) : "";
      std::string wanted;
      for (const std::string& row : rows) {
        for (unsigned x = 0; x < width; ++x) {
          const auto value = [&](int sample) {
            const std::size_t bit = x * bits + std::size_t(sample * depth);
            const int byte = static_cast<unsigned char>(row[bit / 8]);
            return depth >= 8 ? byte : byte >> (8 - depth - int(bit % 8)) & ((1 << depth) - 1);
          };
          if (kind.colour == 3)
            wanted += palette.substr(3 * std::size_t(value(0)), 3);
          else
            for (int s = 0; s < (kind.samples >= 3 ? 3 : 1); ++s)
              wanted += char(depth >= 8 ? value(s) : value(s) * 255 / ((1 << depth) - 1));
        }
      }
      const Picture picture = decode_png(
          png(width, height, depth, kind.colour, filtered(rows, std::max<std::size_t>(1, bits / 8)), palette), "f");
      CHECK(picture.width == 7);
      CHECK(picture.height == 11);
      CHECK(picture.channels == (kind.samples >= 3 || kind.colour == 3 ? 3 : 1));
      CHECK(picture.samples == wanted);
    }
  }
}

TEST_CASE("what is no picture, or one that is not read, is refused in words") {
  const auto refused = [](const std::string& bytes, const char* reason) {
    CHECK_THROWS_WITH_AS(decode_png(bytes, "f"), Contains(reason), Error);
  };
  const std::string rows("\0a\0b", 4);
  refused("GIF89a", "f: this is not a PNG file");
  refused(std::string(kPngStart) + png_chunk("IDAT", ""), "f: a PNG file without its header");
  refused(png(1, 2, 8, 0, rows, "", 1), "f: interlaced PNG is not read; save the picture without interlacing");
  refused(png(1, 2, 3, 0, rows), "PNG colour type 0 with 3 bits");
  refused(png(0, 2, 8, 0, rows), "a PNG picture of 0 x 2 pixels");
  refused(png(1u << 31, 1u << 31, 16, 6, rows), "2147483648 x 2147483648 pixels are too many; at most 16777216");
  refused(png(4096, 4096, 16, 6, rows), "4 bytes of pixels in the PNG file, 4096 x 4096 need 134221824");
  refused(png(1, 1, 8, 0, rows), "more than the expected 2 bytes come out of it");
  refused(png(1, 2, 8, 0,
              std::string("\0a\x05"
                          "b",
                          4)),
          "row 2 of the PNG picture has the unknown filter 5");
  refused(png(1, 2, 8, 3, std::string("\0\1\0\2", 4), "abcdef"), "uses colour 2, but its palette has 2");
  refused(png(1, 2, 8, 3, rows, "abcd"), "a PNG palette of 4 bytes");
  std::string changed = png(1, 2, 8, 0, rows);
  changed[19] = 3;
  refused(changed, "f: the checksum of the PNG chunk 'IHDR' at byte 8 is wrong");
  std::string unknown = png(1, 2, 8, 0, rows);
  unknown.insert(33, png_chunk("ABCD", ""));
  refused(unknown, "the PNG chunk 'ABCD' is needed to show the picture, but unknown here");
  refused(png(1, 2, 8, 0, rows).substr(0, 60), "f: the PNG file ends too early");
}

TEST_CASE("a truncated or changed picture gives the right pixels or an error, also under right checksums") {
  const std::string pixels = random_bytes(35, 5), file = grey_png(7, pixels);
  check_damage(file, pixels, [](std::string_view bytes) { return decode_png(bytes, "f").samples; });
  Random random(9);
  for (int i = 0; i < 1500; ++i) {  // changed inside the chunks, whose checksums are then made right again
    std::string header = big_endian(7) + big_endian(5) + std::string("\x08\0\0\0\0", 5), data = stored_zlib(pixels);
    std::string& victim = i % 2 ? header : data;
    victim[random.below(victim.size())] ^= char(1 + random.below(255));
    try {
      decode_png(std::string(kPngStart) + png_chunk("IHDR", header) + png_chunk("IDAT", data) + png_chunk("IEND", ""),
                 "f");
    } catch (const Error&) {
    }
  }
}

TEST_CASE("grey values follow the formula with its rounding") {
  CHECK(grey_value(0, 0, 0) == 0);
  CHECK(grey_value(255, 255, 255) == 255);
  CHECK(grey_value(255, 0, 0) == 76);   // 0.2989 * 255.5 = 76.4
  CHECK(grey_value(0, 255, 0) == 149);  // 0.5870 * 255.5 = 149.98
  CHECK(grey_value(0, 0, 255) == 29);   // 0.1140 * 255.5 = 29.1
  CHECK(grey_values({1, 1, 3, std::string("\xff\0\0", 3)}) == std::string(1, char(76)));
  CHECK(grey_values({2, 1, 1, "ab"}) == "ab");
}

TEST_CASE("a picture is what it was after it went through a PNG file") {
  for (const Index channels : {1, 3})
    for (const Index width : {1, 7, 300}) {
      Picture picture{width, 90, channels, {}};
      for (Index i = 0; i < width * 90 * channels; ++i) picture.samples += char(i * i % 251);
      const Picture read = decode_png(encode_png(picture), "f");
      CHECK(read.width == width);
      CHECK(read.height == 90);
      CHECK(read.channels == channels);
      CHECK(read.samples == picture.samples);
    }
}

TEST_CASE("a file of very many small members is unpacked in no quadratic time") {
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes += kGzip;
  const std::string all = gunzip(bytes, 1 << 20, "f");
  CHECK(all.size() == 6 * 20000);
  CHECK(all.ends_with("packedpacked"));
}
