// Small PNG, zlib and IDX files for tests, written without compression.
#pragma once
#include <string>
#include <string_view>

#include "train/inflate.h"

namespace flexformer::tests {

inline std::string big_endian(std::uint32_t value) {
  std::string out;
  for (int shift : {24, 16, 8, 0}) out += char(value >> shift);
  return out;
}

// A zlib stream of stored blocks.
inline std::string stored_zlib(std::string_view bytes) {
  std::string out = "\x78\x01";
  const std::string_view all = bytes;
  do {
    const std::string_view part = bytes.substr(0, 65535);
    bytes.remove_prefix(part.size());
    out += char(bytes.empty());
    for (unsigned length : {unsigned(part.size()), ~unsigned(part.size())}) {
      out += char(length);
      out += char(length >> 8);
    }
    out += part;
  } while (!bytes.empty());
  return out + big_endian(adler32(all));
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  return big_endian(std::uint32_t(data.size())) + type + data + big_endian(crc32(type + data));
}

constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n";

// `rows` are the filtered rows, each behind the number of its filter.
inline std::string png(unsigned width, unsigned height, int depth, int colour, const std::string& rows,
                       const std::string& palette = "", int interlace = 0) {
  const std::string header =
      big_endian(width) + big_endian(height) + char(depth) + char(colour) + std::string(2, '\0') + char(interlace);
  return std::string(kPngStart) + png_chunk("IHDR", header) + png_chunk("tEXt", "a comment") +
         (palette.empty() ? "" : png_chunk("PLTE", palette)) + png_chunk("IDAT", stored_zlib(rows)) +
         png_chunk("IEND", "");
}

// An 8-bit grey picture, rows without a filter.
inline std::string grey_png(unsigned width, const std::string& pixels) {
  std::string rows;
  for (std::size_t at = 0; at < pixels.size(); at += width) rows += '\0' + pixels.substr(at, width);
  return png(width, unsigned(pixels.size()) / width, 8, 0, rows);
}

}  // namespace flexformer::tests
