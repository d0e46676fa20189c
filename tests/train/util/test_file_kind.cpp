// Foreign files are named with their cure, and texts that only look a little like them are left alone.
#include <doctest/doctest.h>

#include "tensor/error.h"
#include "train/util/file_kind.h"

using namespace flexformer;
using namespace std::string_literals;

TEST_CASE("file kind: a foreign file is named with its cure") {
  const auto zip = [](const std::string& member) {
    return "PK\3\4"s + std::string(26, '\0') + member + "PK\1\2" + member;
  };
  std::string old_tar = "a.txt" + std::string(507, '\0');
  old_tar.replace(148, 8, "001357\0 "s);  // in octal 757 for the name and 400 for 8 blanks
  const std::string tar = std::string(257, 'x') + "ustar\0"s;
  struct Case {
    std::string bytes, name, cure;
  };
  const Case cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n", "a Git LFS pointer", "git lfs pull"},
      {"\xEF\xBB\xBFversion https://hawser.github.com/spec/v1\r\noid", "a Git LFS pointer", "git lfs pull"},
      {"/annex/objects/SHA256E-s1--a\n", "a git-annex pointer", "git annex get"},
      {"outs:\n- md5: abc\n  path: a\n", "a DVC pointer", "dvc pull"},
      {"\n <!DOCTYPE html>\n<html>", "a web page", "download the file itself"},
      {"<HTML lang=en><body>", "a web page", "download the file itself"},
      {"404: Not Found", "a web server's answer", "check the address"},
      {"Entry not found\n", "a web server's answer", "check the address"},
      {"{\"error\":\"Invalid credentials\"}", "a web server's answer", "check the address"},
      {"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>", "a web server's answer", "check the address"},
      {zip("xl/worksheets/sheet1.xml"), "a spreadsheet", "save it as CSV"},
      {zip("mimetypeapplication/vnd.oasis.opendocument.spreadsheet"), "a spreadsheet", "save it as CSV"},
      {zip("word/document.xml"), "a Word document", "plain text"},
      {zip("archive/data.pkl"), "a PyTorch file", "safetensors"},
      {zip("readme.txt"), "a zip archive", "unzip"},
      {"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"s, "an Office file in the old format", "CSV"},
      {"%PDF-1.4\n", "a PDF document", "pdftotext"},
      {"7z\xBC\xAF\x27\x1C"s, "a 7z archive", "unpack"},
      {"\xFD"
       "7zXZ\0"s,
       "xz data", "xz -dk"},
      {"BZh91AY&SY", "bzip2 data", "bunzip2"},
      {"\x28\xB5\x2F\xFD$"s, "zstd data", "zstd -d"},
      {tar, "a tar archive", "tar -xf"},
      {old_tar, "a tar archive", "tar -xf"},
      {"\x89PNG\r\n\x1A\n"s, "a PNG picture", "no text"},
      {"\xFF\xD8\xFF\xE0"s, "a JPEG picture", "no text"},
      {"BM\x36\x10\0\0\0\0\0\0\x36\0\0\0"s, "a BMP picture", "no text"},
      {"\x7F"
       "ELF\2"s,
       "a program", "give a text file"},
      {"MZ\x90\0\3"s, "a program", "give a text file"},
      {"PAR1\x15\0"s, "a Parquet file", "CSV"},
      {"SQLite format 3\0"s, "an SQLite database", "CSV"},
      {"\x80\4\x95\0"s, "a Python pickle", "CSV"},
      {"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}"s, "a file of weights", "import_model"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const FileKind kind = foreign_kind(c.bytes, "data.csv", true);
    CHECK(kind.name.starts_with(c.name));
    CHECK(kind.cure.find(c.cure) != std::string_view::npos);
  }
  CHECK_THROWS_WITH_AS(refuse_foreign(cases[0].bytes, "data/train.csv"),
                       "data/train.csv: this is a Git LFS pointer: fetch the file itself (git lfs pull)", Error);
}

TEST_CASE("file kind: a text is not taken for something else") {
  const char* texts[] = {"",
                         "PK is a club",
                         "BM,text",
                         "MZ",
                         "GIF8 pictures",
                         "ID3 is a format",
                         "RIFF raff",
                         "version https://example.org",
                         "<p>a page's part</p>",
                         "html",
                         "404",
                         "not found,1\nfound,0",
                         "{\"error\": \"I goed\", \"right\": \"I went\"}\n{\"error\": \"\"}",
                         "<?xml?>\n<text/>",
                         "RDX was found",
                         "PAR1 and PAR2",
                         "outs: 3"};
  for (const char* text : texts) {
    CAPTURE(text);
    CHECK_FALSE(foreign_kind(text, "a.txt", true));
  }
  CHECK_FALSE(foreign_kind("404: Not Found", "a.txt"));  // the file goes on
  CHECK_FALSE(foreign_kind("<!DOCTYPE html>", "pages/a.HTML", true));
}
