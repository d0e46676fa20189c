// Small PNG files for tests, of all kinds that the standard has, written without compression.
#pragma once
#include <string>
#include <string_view>

#include "train/util/inflate.h"
#include "train/util/png.h"

namespace flexformer::tests {

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

// An 8-bit grey picture.
inline std::string grey_png(unsigned width, const std::string& pixels) {
  return encode_png({Index(width), Index(pixels.size() / width), 1, pixels});
}

}  // namespace flexformer::tests
