// Pictures: PNG files and grey values. Like inflate.h, one format in two hundred lines instead of a library: data sets
// of pictures need no more.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "tensor/shape.h"

namespace flexformer {

struct Picture {
  Index width = 0, height = 0;
  Index channels = 1;   // 1: grey; 3: red, green, blue
  std::string samples;  // [height, width, channels], one byte each, 0 black to 255 white
};

// Reads a PNG file (ISO 15948) of grey values, colours or a palette, with 1 to 16 bits a sample. Samples of fewer than
// 8 bits are scaled to 0 .. 255, of 16 bits the upper 8 are kept, and transparency is left out: colours count as they
// are stored. Throws Error naming `source` for anything damaged (every checksum is verified), for interlaced pictures,
// and for more than 16 million pixels.
Picture decode_png(std::string_view bytes, const std::string& source);
inline bool looks_like_png(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1a\n"); }

// A PNG file with 8 bits a sample, not compressed. `picture` has 1 or 3 channels and all its samples. With a palette
// (red, green and blue bytes of up to 256 colours) the samples of its one channel are numbers of colours.
std::string encode_png(const Picture& picture, std::string_view palette = "");
// The parts of such a file: a chunk with its length and checksum, and a whole number as PNG and zlib store it.
std::string png_chunk(std::string_view type, std::string_view data);
std::string big_endian(std::uint32_t value);
// A zlib stream (RFC 1950) of `bytes` as they are: the inverse of unzlib() of inflate.h.
std::string stored_zlib(std::string_view bytes);

// The grey value of a colour, by the weights of ITU-R BT.601 and the rounding with which TensorFlow's rgb_to_grayscale,
// and so the Long Range Arena benchmark, computes it: floor((0.2989 red + 0.5870 green + 0.1140 blue) 255.5 / 255).
unsigned char grey_value(unsigned char red, unsigned char green, unsigned char blue);
// One byte a pixel, row by row from the top.
std::string grey_values(const Picture& picture);

}  // namespace flexformer
