// A PNG file is chunks with checksums; the IDAT chunks together are one zlib stream of rows, each behind a byte that
// says how its bytes were predicted from those to the left (A), above (B) and above to the left (C).
#include "train/util/png.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>

#include "tensor/error.h"
#include "train/util/inflate.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr std::uint64_t kMostPixels = std::uint64_t(1) << 24;

enum ColourType { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgb_alpha = 6 };

struct Header {
  std::uint32_t width, height;
  unsigned depth, colour;

  unsigned samples() const {  // of a pixel, as stored
    return colour == rgb ? 3 : colour == grey_alpha ? 2 : colour == rgb_alpha ? 4 : 1;
  }
  std::size_t row_bytes() const { return (std::size_t(width) * samples() * depth + 7) / 8; }
  std::size_t pixel_bytes() const { return std::max(1u, samples() * depth / 8); }
};

unsigned byte(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
  return byte(bytes, at) << 24 | byte(bytes, at + 1) << 16 | byte(bytes, at + 2) << 8 | byte(bytes, at + 3);
}

struct Chunk {
  std::string_view type, data;
};

// The chunk at `at`, which then stands behind it.
Chunk next_chunk(std::string_view bytes, std::size_t& at, const std::string& source) {
  if (bytes.size() - at < 12) fail(source, ": the PNG file ends too early; is it complete?");
  const std::size_t length = big_endian(bytes, at);
  if (length > bytes.size() - at - 12) fail(source, ": the PNG file ends too early; is it complete?");
  const Chunk chunk{bytes.substr(at + 4, 4), bytes.substr(at + 8, length)};
  if (big_endian(bytes, at + 8 + length) != crc32(bytes.substr(at + 4, 4 + length)))
    fail(source, ": the checksum of the PNG chunk ", quote(chunk.type), " at byte ", at, " is wrong; it is damaged");
  at += 12 + length;
  return chunk;
}

Header read_header(const Chunk& chunk, const std::string& source) {
  if (chunk.type != "IHDR" || chunk.data.size() != 13) fail(source, ": a PNG file without its header; it is damaged");
  const std::string_view d = chunk.data;
  const Header h{big_endian(d, 0), big_endian(d, 4), byte(d, 8), byte(d, 9)};
  if (h.width == 0 || h.height == 0) fail(source, ": a PNG picture of ", h.width, " x ", h.height, " pixels");
  if (std::uint64_t(h.width) * h.height > kMostPixels)
    fail(source, ": ", h.width, " x ", h.height, " pixels are too many; at most ", kMostPixels, " are read");
  const bool whole = h.depth == 8 || h.depth == 16, part = h.depth == 1 || h.depth == 2 || h.depth == 4;
  const bool known = h.colour == grey                                                     ? whole || part
                     : h.colour == palette                                                ? part || h.depth == 8
                     : h.colour == rgb || h.colour == grey_alpha || h.colour == rgb_alpha ? whole
                                                                                          : false;
  if (!known || byte(d, 10) != 0 || byte(d, 11) != 0 || byte(d, 12) > 1)
    fail(source, ": PNG colour type ", h.colour, " with ", h.depth, " bits, compression ", byte(d, 10), ", filter ",
         byte(d, 11), ", interlacing ", byte(d, 12), ": the standard has no such picture");
  if (byte(d, 12) == 1) fail(source, ": interlaced PNG is not read; save the picture without interlacing");
  return h;
}

// Undoes the prediction of one row in place; `above` is the row before, or null.
void unfilter(char* row, const char* above, const Header& h, unsigned filter) {
  for (std::size_t i = 0; i < h.row_bytes(); ++i) {
    const bool has_left = i >= h.pixel_bytes();
    const int a = has_left ? static_cast<unsigned char>(row[i - h.pixel_bytes()]) : 0;
    const int b = above ? static_cast<unsigned char>(above[i]) : 0;
    const int c = above && has_left ? static_cast<unsigned char>(above[i - h.pixel_bytes()]) : 0;
    int predicted = 0;
    if (filter == 1) predicted = a;
    if (filter == 2) predicted = b;
    if (filter == 3) predicted = (a + b) / 2;
    if (filter == 4) {  // Paeth: the neighbour nearest to a + b - c
      const int to_a = std::abs(b - c), to_b = std::abs(a - c), to_c = std::abs(a + b - 2 * c);
      predicted = to_a <= to_b && to_a <= to_c ? a : to_b <= to_c ? b : c;
    }
    row[i] = char(static_cast<unsigned char>(row[i]) + predicted);
  }
}

// The n-th sample of a row, scaled to 8 bits unless it is a number in a palette.
unsigned sample(const char* row, std::size_t n, const Header& h) {
  if (h.depth >= 8) return static_cast<unsigned char>(row[n * h.depth / 8]);
  const std::size_t bit = n * h.depth;
  const unsigned most = (1u << h.depth) - 1;
  const unsigned value = static_cast<unsigned char>(row[bit / 8]) >> (8 - h.depth - bit % 8) & most;
  return h.colour == palette ? value : value * 255 / most;
}

Picture unpack(std::string raw, const Header& h, std::string_view colours, const std::string& source) {
  const bool coloured = h.colour == rgb || h.colour == rgb_alpha || h.colour == palette;
  Picture picture{Index(h.width), Index(h.height), coloured ? 3 : 1, {}};
  picture.samples.reserve(std::size_t(picture.width * picture.height * picture.channels));
  const char* above = nullptr;
  for (std::uint32_t y = 0; y < h.height; ++y) {
    char* row = raw.data() + y * (h.row_bytes() + 1) + 1;
    const unsigned filter = static_cast<unsigned char>(row[-1]);
    if (filter > 4) fail(source, ": row ", y + 1, " of the PNG picture has the unknown filter ", filter);
    unfilter(row, above, h, filter);
    above = row;
    for (std::size_t x = 0; x < h.width; ++x) {
      if (h.colour == palette) {
        const std::size_t entry = sample(row, x, h);
        if (3 * entry >= colours.size())
          fail(source, ": the PNG picture uses colour ", entry, ", but its palette has ", colours.size() / 3);
        picture.samples += colours.substr(3 * entry, 3);
      } else {
        for (Index c = 0; c < picture.channels; ++c)
          picture.samples += char(sample(row, x * h.samples() + std::size_t(c), h));
      }
    }
  }
  return picture;
}

}  // namespace

Picture decode_png(std::string_view bytes, const std::string& source) {
  if (!looks_like_png(bytes)) fail(source, ": this is not a PNG file (it starts otherwise)");
  std::size_t at = 8;
  const Header header = read_header(next_chunk(bytes, at, source), source);
  std::string packed;
  std::string_view colours;
  for (;;) {
    const Chunk chunk = next_chunk(bytes, at, source);
    if (chunk.type == "IEND") break;
    const bool optional = chunk.type[0] & 32;  // a small first letter
    if (chunk.type == "IDAT") {
      packed += chunk.data;
    } else if (chunk.type == "PLTE") {
      if (chunk.data.empty() || chunk.data.size() % 3 || chunk.data.size() > 768)
        fail(source, ": a PNG palette of ", chunk.data.size(), " bytes; it is damaged");
      colours = chunk.data;
    } else if (!optional) {
      fail(source, ": the PNG chunk ", quote(chunk.type), " is needed to show the picture, but unknown here");
    }
  }
  const std::size_t expected = header.height * (header.row_bytes() + 1);
  std::string raw = unzlib(packed, expected, source);
  if (raw.size() != expected)
    fail(source, ": ", raw.size(), " bytes of pixels in the PNG file, ", header.width, " x ", header.height, " need ",
         expected);
  return unpack(std::move(raw), header, colours, source);
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift : {24, 16, 8, 0}) bytes += char(value >> shift);
  return bytes;
}

std::string stored_zlib(std::string_view bytes) {
  constexpr std::size_t most = 65535;  // of one block
  std::string stream = "\x78\x01";
  std::size_t at = 0;
  do {
    const std::string_view block = bytes.substr(at, most);
    at += block.size();
    stream += char(at == bytes.size());  // the last one
    for (unsigned length : {unsigned(block.size()), ~unsigned(block.size())}) {
      stream += char(length);
      stream += char(length >> 8);
    }
    stream += block;
  } while (at < bytes.size());
  return stream + big_endian(adler32(bytes));
}

std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string checked = text(type, data);
  return big_endian(std::uint32_t(data.size())) + checked + big_endian(crc32(checked));
}

std::string encode_png(const Picture& picture, std::string_view colours) {
  const std::size_t row_bytes = std::size_t(picture.width * picture.channels);
  assert((picture.channels == 1 || (picture.channels == 3 && colours.empty())) &&
         picture.samples.size() == row_bytes * std::size_t(picture.height));
  const std::string header = big_endian(std::uint32_t(picture.width)) + big_endian(std::uint32_t(picture.height)) +
                             char(8) +
                             char(picture.channels == 3 ? rgb
                                  : colours.empty()     ? grey
                                                        : palette) +
                             std::string(3, '\0');
  std::string rows;
  for (std::size_t at = 0; at < picture.samples.size(); at += row_bytes)
    rows += '\0' + picture.samples.substr(at, row_bytes);  // 0: not predicted
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + (colours.empty() ? "" : png_chunk("PLTE", colours)) +
         png_chunk("IDAT", stored_zlib(rows)) + png_chunk("IEND", "");
}

unsigned char grey_value(unsigned char red, unsigned char green, unsigned char blue) {
  return static_cast<unsigned char>((2989 * red + 5870 * green + 1140 * blue) * 511LL / 5'100'000);
}

std::string grey_values(const Picture& picture) {
  if (picture.channels == 1) return picture.samples;
  std::string values;
  values.reserve(picture.samples.size() / 3);
  const auto* p = reinterpret_cast<const unsigned char*>(picture.samples.data());
  for (std::size_t i = 0; i + 2 < picture.samples.size(); i += 3) values += char(grey_value(p[i], p[i + 1], p[i + 2]));
  return values;
}

}  // namespace flexformer
