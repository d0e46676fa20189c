// Most kinds are known by their first bytes; a zip file by the names in it, which say whose program wrote it.
#include "train/util/file_kind.h"

#include <algorithm>
#include <array>
#include <span>

#include "tensor/error.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view fetch_lfs = "fetch the file itself (git lfs pull)",
                           fetch_page = "download the file itself, not the page that shows it",
                           fetch_again = "check the address, and whether the file asks for a login",
                           save_as_csv = "save it as CSV", save_as_text = "save it as plain text",
                           unpack_first = "unpack it first", need_text = "give a text file",
                           convert = "save it as CSV or JSON lines with the program that wrote it",
                           convert_weights = "save the weights as safetensors";

struct Signature {
  std::size_t at;
  std::string_view bytes;
  FileKind kind;
};

constexpr FileKind archive(std::string_view name) { return {name, unpack_first}; }
constexpr FileKind picture(std::string_view name) { return {name, "a picture holds no text"}; }
constexpr FileKind program(std::string_view name) { return {name, need_text}; }

constexpr std::array signatures = {
    Signature{0, "7z\xBC\xAF\x27\x1C"sv, {"a 7z archive", "unpack it first (7z x FILE)"}},
    Signature{0,
              "\xFD"
              "7zXZ\0"sv,
              {"xz data", "unpack it first (xz -dk FILE)"}},
    Signature{0, "\x28\xB5\x2F\xFD"sv, {"zstd data", "unpack it first (zstd -d FILE)"}},
    Signature{0, "\x04\x22\x4D\x18"sv, {"lz4 data", "unpack it first (lz4 -d FILE)"}},
    Signature{0, "LZIP\1"sv, archive("lzip data")},
    Signature{0, "\x89LZO\0"sv, archive("lzop data")},
    Signature{0, "\x1F\x9D"sv, {"data packed by compress", "unpack it first (uncompress FILE)"}},
    Signature{0, "Rar!\x1A\x07"sv, archive("a RAR archive")},
    Signature{0, "MSCF\0\0\0\0"sv, archive("a cabinet archive")},
    Signature{0, "!<arch>\n"sv, archive("an ar archive")},
    Signature{257, "ustar"sv, {"a tar archive", "unpack it first (tar -xf FILE)"}},
    Signature{
        0,
        "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv,
        {"an Office file in the old format (xls, doc, ppt)", "save a spreadsheet as CSV, a document as plain text"}},
    Signature{0, "%PDF-"sv, {"a PDF document", "extract its text (pdftotext FILE)"}},
    Signature{0, "%!PS"sv, {"a PostScript document", "extract its text (ps2ascii FILE)"}},
    Signature{0, "{\\rtf"sv, {"an RTF document", save_as_text}},
    Signature{0, "\x89PNG\r\n\x1A\n"sv, picture("a PNG picture")},
    Signature{0, "\xFF\xD8\xFF"sv, picture("a JPEG picture")},
    Signature{0, "GIF87a"sv, picture("a GIF picture")},
    Signature{0, "GIF89a"sv, picture("a GIF picture")},
    Signature{0, "II*\0"sv, picture("a TIFF picture")},
    Signature{0, "MM\0*"sv, picture("a TIFF picture")},
    Signature{0, "8BPS\0\1"sv, picture("a Photoshop picture")},
    Signature{0, "\0\0\1\0"sv, picture("an icon")},
    Signature{0, "ID3\2"sv, program("a sound file (MP3)")},
    Signature{0, "ID3\3"sv, program("a sound file (MP3)")},
    Signature{0, "ID3\4"sv, program("a sound file (MP3)")},
    Signature{0, "OggS\0"sv, program("a sound or film file (Ogg)")},
    Signature{0, "fLaC"sv, program("a sound file (FLAC)")},
    Signature{0, "\x1A\x45\xDF\xA3"sv, program("a film file (Matroska)")},
    Signature{0,
              "\x7F"
              "ELF"sv,
              program("a program (ELF)")},
    Signature{0, "\xFE\xED\xFA\xCE"sv, program("a program (Mach-O)")},
    Signature{0, "\xFE\xED\xFA\xCF"sv, program("a program (Mach-O)")},
    Signature{0, "\xCE\xFA\xED\xFE"sv, program("a program (Mach-O)")},
    Signature{0, "\xCF\xFA\xED\xFE"sv, program("a program (Mach-O)")},
    Signature{0, "\xCA\xFE\xBA\xBE"sv, program("a program (Java or Mach-O)")},
    Signature{0, "\0asm"sv, program("a program (WebAssembly)")},
    Signature{0, "PAR1\x15"sv, {"a Parquet file", convert}},
    Signature{0, "ARROW1\0\0"sv, {"an Arrow file", convert}},
    Signature{0, "\xFF\xFF\xFF\xFF\x10\0\0\0"sv, {"an Arrow stream", convert}},
    Signature{0, "FEA1\0\0\0\0"sv, {"a Feather file", convert}},
    Signature{0, "Obj\1"sv, {"an Avro file", convert}},
    Signature{0, "RDX2\n"sv, {"an R data file", convert}},
    Signature{0, "RDX3\n"sv, {"an R data file", convert}},
    Signature{0, "\x89HDF\r\n\x1A\n"sv, {"an HDF5 file", "save tables as CSV, weights as safetensors"}},
    Signature{0, "\x93NUMPY"sv, {"a NumPy array", "save texts as lines, weights as safetensors"}},
    Signature{0, "SQLite format 3\0"sv, {"an SQLite database", "export the table as CSV"}},
    Signature{0, "MATLAB 5.0 MAT-file"sv, {"a MATLAB file", convert}},
    Signature{0, "GGUF\2\0\0\0"sv, {"a model in GGUF format", convert_weights}},
    Signature{0, "GGUF\3\0\0\0"sv, {"a model in GGUF format", convert_weights}},
    Signature{0, "lmgg"sv, {"a model in GGML format", convert_weights}},
    Signature{0, "fmgg"sv, {"a model in GGML format", convert_weights}},
    Signature{0, "tjgg"sv, {"a model in GGML format", convert_weights}},
};

// Names within a zip file, in the order in which they decide.
constexpr std::array zip_members = {
    Signature{0, "xl/"sv, {"a spreadsheet", save_as_csv}},
    Signature{0, "word/"sv, {"a Word document", save_as_text}},
    Signature{0, "ppt/"sv, {"a presentation", save_as_text}},
    Signature{0, "opendocument.spreadsheet"sv, {"a spreadsheet", save_as_csv}},
    Signature{0, "opendocument.text"sv, {"a text document (OpenDocument)", save_as_text}},
    Signature{0, "opendocument."sv, {"an OpenDocument file", save_as_text}},
    Signature{0, "application/epub"sv, {"an e-book (EPUB)", save_as_text}},
    Signature{0, "data.pkl"sv, {"a PyTorch file", convert_weights}},
    Signature{0, ".npy"sv, {"a NumPy archive", "save texts as lines, weights as safetensors"}},
    Signature{0, "AndroidManifest.xml"sv, program("a program (Android)")},
    Signature{0, "META-INF/"sv, program("a program (Java)")},
};

// Texts that other files hold in place of what they stand for.
constexpr std::array pointers = {
    Signature{0, "version https://git-lfs.github.com/"sv, {"a Git LFS pointer", fetch_lfs}},
    Signature{0, "version https://hawser.github.com/"sv, {"a Git LFS pointer", fetch_lfs}},
    Signature{0, "version http://git-media.io/"sv, {"a Git LFS pointer", fetch_lfs}},
    Signature{0, "/annex/objects/"sv, {"a git-annex pointer", "fetch the file itself (git annex get FILE)"}},
    Signature{0, "outs:\n- md5: "sv, {"a DVC pointer", "fetch the file itself (dvc pull)"}},
    Signature{0, "outs:\n- hash: "sv, {"a DVC pointer", "fetch the file itself (dvc pull)"}},
};

// In lower case: how a page begins, and what servers answer in place of a file.
constexpr std::array pages = {"<!doctype html"sv, "<html"sv, "<head>"sv, "<head "sv, "<body"sv};
constexpr std::array refusals = {"404: not found"sv,
                                 "404 not found"sv,
                                 "not found"sv,
                                 "entry not found"sv,
                                 "repository not found"sv,
                                 "file not found"sv,
                                 "access denied"sv,
                                 "403 forbidden"sv,
                                 "forbidden"sv,
                                 "401 unauthorized"sv,
                                 "unauthorized"sv,
                                 "too many requests"sv,
                                 "429 too many requests"sv,
                                 "429: too many requests"sv,
                                 "bad gateway"sv,
                                 "502 bad gateway"sv,
                                 "internal server error"sv,
                                 "service unavailable"sv,
                                 "invalid username or password."sv};

FileKind zip_kind(std::string_view head) {
  for (const Signature& member : zip_members)
    if (head.find(member.bytes) != std::string_view::npos) return member.kind;
  return {"a zip archive", "unpack it first (unzip FILE)"};
}

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// tar before "ustar": its checksum, in octal, is the sum of the header's bytes with blanks in its own place.
bool is_old_tar(std::string_view head) {
  if (head.size() < 512 || head[0] == '\0') return false;
  std::uint32_t sum = 8 * ' ', written = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += i < 148 || i >= 156 ? static_cast<unsigned char>(head[i]) : 0;
  std::size_t digits = 0;
  for (std::size_t i = 148; i < 156; ++i) {
    if (head[i] >= '0' && head[i] <= '7')
      written = 8 * written + std::uint32_t(head[i] - '0'), ++digits;
    else if (head[i] != ' ' && head[i] != '\0')
      return false;
  }
  return digits > 0 && written == sum;
}

// Kinds whose signature is too short to be believed alone.
FileKind kind_by_structure(std::string_view head, bool whole) {
  if (head.starts_with("PK\3\4") || head.starts_with("PK\5\6") || head.starts_with("PK\7\10")) return zip_kind(head);
  if (head.starts_with("BZh") && head.size() >= 10 &&
      (head.substr(4, 6) == "1AY&SY" || head.substr(4, 6) == "\x17\x72\x45\x38\x50\x90"))
    return {"bzip2 data", "unpack it first (bunzip2 -k FILE)"};
  if (is_old_tar(head)) return {"a tar archive", "unpack it first (tar -xf FILE)"};
  const bool has_zero = head.find('\0') != std::string_view::npos;
  if (head.starts_with("MZ") && has_zero) return program("a program (Windows)");
  if (head.starts_with("RIFF") && head.size() >= 12) {
    if (head.substr(8, 4) == "WEBP") return picture("a WebP picture");
    if (head.substr(8, 4) == "WAVE") return program("a sound file (WAV)");
    if (head.substr(8, 4) == "AVI ") return program("a film file (AVI)");
  }
  if (head.size() >= 12 && head[0] == '\0' && head.substr(4, 4) == "ftyp")
    return program("a film or picture file (MP4, HEIC)");
  // A bitmap's header says where its pixels begin.
  if (head.starts_with("BM") && head.size() >= 14 && little_endian(head, 6) == 0 && little_endian(head, 10) < 4096)
    return picture("a BMP picture");
  if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 && has_zero)
    return {"a Python pickle", "save tables as CSV, weights as safetensors"};
  if (head.size() >= 13 && head.starts_with("\x5D\0\0"sv) && head[4] == '\0')
    return {"LZMA data", "unpack it first (xz -dk FILE)"};
  // A safetensors file starts with the length of its JSON header.
  if (head.size() > 9 && head[8] == '{' && head.substr(4, 4) == "\0\0\0\0"sv && (!whole || head.size() > 10))
    return {"a file of weights (safetensors)", "import it with import_model"};
  return {};
}

bool names_an_error(std::string_view lowered) {
  if (lowered.starts_with("<?xml")) {
    const std::size_t end = lowered.find("?>");
    if (end == std::string_view::npos) return false;
    return trim(lowered.substr(end + 2)).starts_with("<error>");
  }
  if (lowered.find('\n') != std::string_view::npos) return false;
  return lowered.starts_with("<error>") || lowered.starts_with("{\"error\":") ||
         lowered.starts_with("{\"message\":\"not found") || std::ranges::find(refusals, lowered) != refusals.end() ||
         (lowered.starts_with("access to ") && lowered.find(" is restricted") != std::string_view::npos);
}

}  // namespace

FileKind foreign_kind(std::string_view head, std::string_view name, bool whole) {
  head = head.substr(0, kFileKindBytes);
  for (const Signature& signature : signatures)
    if (head.size() >= signature.at && head.substr(signature.at).starts_with(signature.bytes)) return signature.kind;
  if (const FileKind kind = kind_by_structure(head, whole)) return kind;
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const std::string_view text = trim(head);
  for (const Signature& pointer : pointers)
    if (text.starts_with(pointer.bytes)) return pointer.kind;
  const std::string lowered = lowercase(text.substr(0, 1024)), file = lowercase(name);
  const bool wanted = file.ends_with(".html") || file.ends_with(".htm") || file.ends_with(".xhtml");
  if (!wanted && std::ranges::any_of(pages, [&](std::string_view page) { return lowered.starts_with(page); }))
    return {"a web page", fetch_page};
  if (whole && names_an_error(lowered)) return {"a web server's answer that there is no such file", fetch_again};
  return {};
}

void refuse_foreign(std::string_view head, const std::string& source, bool whole) {
  if (const FileKind kind = foreign_kind(head, source, whole)) fail(source, ": this is ", kind.name, ": ", kind.cure);
}

}  // namespace flexformer
