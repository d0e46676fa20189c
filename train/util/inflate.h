// Decompression: DEFLATE data (RFC 1951) in its two wrappings, zlib (RFC 1950, inside PNG pictures) and gzip (RFC
// 1952), with their checksums. It is written here, in three hundred lines, because data sets come compressed and a
// library for it would be the project's only dependency that has to be linked.
//
// Whatever the bytes are, the result is the right data or an Error that names `source`: the output grows only as data
// comes out, at most 1,032 bytes for each byte that went in, and never beyond `most`.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/error.h"

namespace flexformer {

// More comes out of a stream than `most` bytes.
struct TooMuchData : Error {
  using Error::Error;
};

// `bytes` is one zlib stream, nothing more.
std::string unzlib(std::string_view bytes, std::size_t most, const std::string& source);

// Bytes that come in pieces: the next ones, valid until the next call; none at the end.
using ByteSource = std::function<std::string_view()>;
using ByteSink = std::function<void(std::string_view)>;
inline ByteSource bytes_of(std::string_view bytes) {
  return [bytes]() mutable { return std::exchange(bytes, {}); };
}

// `bytes` is a whole .gz file: one member or several, one after the other. What comes out goes to `take` in pieces;
// what is found to be wrong later is an Error then.
void gunzip(const ByteSource& bytes, std::size_t most, const std::string& source, const ByteSink& take);
std::string gunzip(std::string_view bytes, std::size_t most, const std::string& source);
inline bool looks_gzipped(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

// CRC-32 of gzip and PNG: polynomial 0xEDB88320 on reflected bits, start and end inverted.
// `before`: the sum of the bytes before these.
std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);
// Adler-32 of zlib: sums a = 1 + bytes and b = all values of a, modulo 65521; b * 65536 + a.
std::uint32_t adler32(std::string_view bytes);

}  // namespace flexformer
