// Files and JSON: whole or not at all, and messages that name the place.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "tests/train/util/temporary_folder.h"
#include "train/util/files.h"
#include "train/util/json_file.h"
#include "train/util/text_encoding.h"
#include "train/util/utf8.h"

using namespace flexformer;
using doctest::Contains;

namespace {

int count_files(const std::filesystem::path& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Makes every write beyond `bytes` fail, as a full disk would, while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit lower{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  rlimit old_{};
};

}  // namespace

TEST_CASE("a file is read byte for byte, also when its path has spaces") {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\r\n\xFF\n", 7);
  CHECK(read_file(folder.file("a b é.bin", bytes)) == bytes);
  CHECK(read_file(folder.file("empty", "")).empty());
}

TEST_CASE("what cannot be read is named with the reason") {
  const TemporaryFolder folder;
  const std::string missing = (folder.path() / "missing.txt").string();
  CHECK_THROWS_WITH_AS(read_file(missing), Contains("missing.txt': no such file; check the path"), Error);
  CHECK_THROWS_WITH_AS(read_file("no-such-file"), Contains("no such file; the path is relative to '/"), Error);
  CHECK_THROWS_WITH_AS(read_file(folder.path()), Contains("it is a folder, not a file"), Error);
  CHECK_THROWS_WITH_AS(read_file(folder.file("plain", "x") + "/below"), Contains("Not a directory"), Error);
  if (geteuid() != 0) {  // root may read everything
    const std::string secret = folder.file("secret", "x");
    std::filesystem::permissions(secret, std::filesystem::perms::none);
    CHECK_THROWS_WITH_AS(read_file(secret), Contains("Permission denied"), Error);
  }
}

TEST_CASE("a text file is read in every encoding that its bytes show") {
  const TemporaryFolder folder;
  const auto wide = [](std::u32string_view text, std::size_t unit, bool big_endian) {
    std::string bytes;
    const auto add = [&](std::uint32_t value) {
      for (std::size_t i = 0; i < unit; ++i) bytes += char(value >> 8 * (big_endian ? unit - 1 - i : i));
    };
    for (char32_t c : text) {
      if (unit == 4 || c < 0x10000) {
        add(c);
      } else {
        add(0xD800 + ((c - 0x10000) >> 10));
        add(0xDC00 + (c & 0x3FF));
      }
    }
    return bytes;
  };
  const std::u32string texts[] = {U"text",
                                  U"naïve text\r\n",
                                  U"日本語の文章です。\n二つ目の文章。\n",
                                  U"Привет, мир!\nпока\n",
                                  U"これは日本語の文章です。二つ目の文章もここに。",
                                  U"a smile 😀 and more of it\n"};
  for (const std::u32string& text : texts) {
    std::string utf8;
    for (char32_t c : text) append_code_point(c, utf8);
    CAPTURE(utf8);
    CHECK(read_text_file(folder.file("t", utf8)) == utf8);
    CHECK(read_text_file(folder.file("t", "\xEF\xBB\xBF" + utf8)) == utf8);
    for (const std::size_t unit : {2, 4})
      for (const bool big_endian : {false, true}) {
        CAPTURE(unit);
        CAPTURE(big_endian);
        CHECK(read_text_file(folder.file("t", wide(U"\uFEFF" + text, unit, big_endian))) == utf8);
        CHECK(read_text_file(folder.file("t", wide(text, unit, big_endian))) == utf8);
      }
    // In pieces of any size, as a pipe gives them.
    const std::string bytes = wide(text, 2, false);
    for (const std::size_t size : {1, 2, 3, 7}) {
      std::string out;
      std::size_t at = 0;
      decode_text(
          [&] { return std::string_view(bytes).substr(std::min(bytes.size(), std::exchange(at, at + size)), size); },
          "t", [&](std::string_view piece) { out += piece; });
      CHECK(out == utf8);
    }
  }
  CHECK(read_text_file(folder.file("latin1.txt", "caf\xE9")) == "caf\xE9");
  const auto refused = [&](const std::string& bytes, const char* reason) {
    CHECK_THROWS_WITH_AS(read_text_file(folder.file("t", bytes)), Contains(reason), Error);
  };
  refused(std::string("\xFF\xFEt\0e", 5), "this is UTF-16 or UTF-32, but ends within a character");
  refused(std::string("abc\0", 4), "t: this is not a text file: byte 3 is zero; if it is a text but for such bytes");
  refused(std::string("some text\0more", 14), "byte 9 is zero");
  refused(std::string("\1\0\2\0\3\0", 6), "is zero");
  refused(
      "\x7F"
      "ELF",
      "this is a program (ELF): give a text file");
}

TEST_CASE("an atomic write replaces a file and leaves nothing else") {
  const TemporaryFolder folder;
  const std::string path = folder.file("data", "old");
  write_file_atomic(path, "new");
  CHECK(read_file(path) == "new");
  CHECK(count_files(folder.path()) == 1);
}

TEST_CASE("without commit nothing appears under the name") {
  const TemporaryFolder folder;
  const std::string path = folder.file("data", "old");
  {
    AtomicFile file(path);
    file.write("half of the new ");
    CHECK(count_files(folder.path()) == 2);
  }
  CHECK(read_file(path) == "old");
  CHECK(count_files(folder.path()) == 1);
}

TEST_CASE("a failed write keeps the old file, removes its temporary and says why") {
  const TemporaryFolder folder;
  const std::string path = folder.file("data", "old");
  {
    const FileSizeLimit limit(1000);
    CHECK_THROWS_WITH_AS(write_file_atomic(path, std::string(5000, 'x')), Contains("data': File too large"), Error);
  }
  CHECK(read_file(path) == "old");
  CHECK(count_files(folder.path()) == 1);
  CHECK_THROWS_WITH_AS(write_file_atomic(folder.path() / "no" / "x", "y"), Contains("No such file or directory"),
                       Error);
  std::filesystem::create_directory(folder.path() / "folder");
  CHECK_THROWS_WITH_AS(write_file_atomic(folder.path() / "folder", "y"), Contains("cannot replace "), Error);
  CHECK(count_files(folder.path()) == 2);
}

TEST_CASE("lines are added to a file's end, or it is said why not") {
  const TemporaryFolder folder;
  append_to_file(folder.path() / "lines", "one\n");
  append_to_file(folder.path() / "lines", "two\n");
  CHECK_EQ(read_file(folder.path() / "lines"), "one\ntwo\n");
  CHECK_THROWS_WITH_AS(append_to_file(folder.path() / "missing" / "lines", "one\n"),
                       doctest::Contains("No such file or directory"), Error);
  if (std::filesystem::exists("/dev/full"))
    CHECK_THROWS_WITH_AS(append_to_file("/dev/full", "one\n"),
                         "cannot write '/dev/full': No space left on device; free some space", Error);
}

TEST_CASE("temporaries of an interrupted run are removed, other files stay") {
  const TemporaryFolder folder;
  folder.file("last.safetensors", "good");
  folder.file("last.safetensors.4711.flexformer-tmp", "half");
  folder.file("notes.tmp", "mine");
  CHECK(remove_stale_temporaries(folder.path()) == 1);
  CHECK(count_files(folder.path()) == 2);
  CHECK(remove_stale_temporaries(folder.path() / "missing") == 0);
}

TEST_CASE("FNV-1a has its published values") {
  CHECK(fnv1a64("") == 0xcbf29ce484222325u);
  CHECK(fnv1a64("a") == 0xaf63dc4c8601ec8cu);
  CHECK(fingerprint("foobar") == "85944171f73967e8");
}

TEST_CASE("JSON takes comments and a byte order mark, and keeps the order of keys") {
  const Json json =
      parse_json("\xEF\xBB\xBF{ // smaller model\n \"b\": 2, /* no */ \"a\": [1, {\"c\": null}]}", "x.json");
  CHECK(dump_json(json) == R"({"b":2,"a":[1,{"c":null}]})");
  CHECK(parse_json("3", "x") == 3);
}

TEST_CASE("JSON errors name file, line, column and reason") {
  const auto parse = [](const char* text) { return parse_json(text, "c.json"); };
  CHECK_THROWS_WITH_AS(parse("{\n  \"a\": 2,\n}"), Contains("c.json:3:1: the comma before '}' has nothing after it"),
                       Error);
  CHECK_THROWS_WITH_AS(parse("[1, 2, ]"), Contains("c.json:1:8: the comma before ']'"), Error);
  CHECK_THROWS_WITH_AS(parse("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}"), Contains("c.json:3:4: the key 'a' is given twice"),
                       Error);
  CHECK_THROWS_WITH_AS(parse("{\"a\": 1e999}"), Contains("c.json:1:12: number overflow"), Error);
  CHECK_THROWS_WITH_AS(parse("{\"a\": 1"), Contains("c.json:1:7: while parsing object - unexpected end of input"),
                       Error);
  CHECK_THROWS_WITH_AS(parse("{\"é\" x}"), Contains("c.json:1:6: "), Error);
  CHECK_THROWS_WITH_AS(parse(" \n"), Contains("c.json: the file is empty"), Error);
  CHECK_THROWS_WITH_AS(parse("{} {}"), Contains("c.json:1:4: "), Error);
  CHECK_THROWS_WITH_AS(parse("[\"\xE9\"]"), Contains("ill-formed UTF-8 byte; last read: '\"\\xE9\""), Error);
  CHECK_THROWS_WITH_AS(parse("NaN"), Contains("c.json:1:1: "), Error);
  CHECK_THROWS_WITH_AS(parse_json(std::string(100000, '['), "c.json"), Contains("nested deeper than 200 levels"),
                       Error);
  try {
    parse_json("\"" + std::string(100000, 'v'), "x.json");
    FAIL("a string without an end was taken");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).starts_with("x.json:1:"));
    CHECK(std::string(error.what()).size() < 300);
  }
}

TEST_CASE("numbers that are not finite are written as words and read back") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Json json = {{"loss", std::nan("")}, {"best", infinity}, {"deep", {{"x", {1.5, -infinity}}}}};
  CHECK(dump_json(json) == R"({"loss":"nan","best":"inf","deep":{"x":[1.5,"-inf"]}})");
  const Json back = parse_json(dump_json(json), "x");
  CHECK(std::isnan(number_from_json(back["loss"], "x")));
  CHECK(number_from_json(back["best"], "x") == infinity);
  CHECK(number_from_json(json_number(-infinity), "x") == -infinity);
  CHECK(number_from_json(parse_json("0.1", "x"), "x") == 0.1);
  CHECK_THROWS_WITH_AS(number_from_json(Json(nullptr), "s.json"), Contains("s.json: expected a number"), Error);
}

TEST_CASE("bytes that are not UTF-8 never stop a save") {
  CHECK(dump_json(Json{{"label", "caf\xE9"}}) == "{\"label\":\"caf\xEF\xBF\xBD\"}");
  for (const std::string& bytes :
       {std::string("caf\xE9"), std::string("café"), std::string("\0\xFF", 2), std::string()})
    CHECK(bytes_from_json(parse_json(dump_json(json_bytes(bytes)), "x"), "x") == bytes);
  CHECK_THROWS_WITH_AS(bytes_from_json(Json{300}, "t.json"), Contains("t.json: expected text or an array"), Error);
  CHECK_THROWS_WITH_AS(bytes_from_json(Json(), "t.json"), Contains("t.json: expected text or an array"), Error);
}

TEST_CASE("a JSON file survives a round trip, and a wrong member is named") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.json";
  write_json_atomic(path, Json{{"name", "byte"}, {"size", 256}, {"lower", false}});
  const Json json = read_json(path);
  CHECK(json_get<std::string>(json, "name", "x") == "byte");
  CHECK(json_get<std::int64_t>(json, "size", "x") == 256);
  CHECK(json_get<bool>(json, "lower", "x") == false);
  CHECK_THROWS_WITH_AS(json_get<bool>(json, "size", "x"),
                       Contains("x: the key 'size' has a value of the wrong type: '256'"), Error);
  CHECK_THROWS_WITH_AS(json_get<std::int64_t>(parse_json("{\"size\": 18446744073709551615}", "x"), "size", "x"),
                       Contains("has a value of the wrong type: '18446744073709551615'"), Error);
  CHECK_THROWS_WITH_AS(json_get<bool>(json, "none", "x"), Contains("x: the key 'none' is missing"), Error);
  CHECK_THROWS_WITH_AS(json_member(Json(3), "a", "x"), Contains("x: expected an object {...}, found number"), Error);
}

TEST_CASE("UTF-8 is read by the letter of the standard, and stray bytes are units of their own") {
  const auto first = [](const char* text) { return next_code_point(text, 0); };
  CHECK(first("ω").value == 0x3C9);
  CHECK(first("€").length == 3);
  CHECK(first("😀").value == 0x1F600);
  for (const char* stray :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xFF"}) {
    CHECK_FALSE(first(stray).valid);
    CHECK(first(stray).length == 1);
  }
  CHECK(is_valid_utf8("aω😀"));
  CHECK_FALSE(is_valid_utf8("caf\xE9"));
}

TEST_CASE("messages stay one printable line") {
  CHECK(printable("a\n\tb\x1B[1m\xE9 é") == "a\\n\\tb\\x1B[1m\\xE9 é");
  CHECK(quote(std::string(100, 'x'), 10) == "'xxxxxxxxxx...'");
  CHECK(quote("ééé", 3) == "'é...'");
  CHECK(describe(next_code_point("ω", 0), "ω") == "'ω' (U+03C9)");
  CHECK(describe(next_code_point("\xE9", 0), "\xE9") == "byte 0xE9 (not UTF-8)");
  CHECK(describe(next_code_point("\n", 0), "\n") == "'\\n' (U+000A)");
}

TEST_CASE("lower case keeps the length and leaves stray bytes alone") {
  CHECK(lowercase("ABC xyz ÄÖÜ ÀÞ × Ω Жё Ё \xC9 ß") == "abc xyz äöü àþ × ω жё ё \xC9 ß");
  CHECK(trim(" \t a b \r\n") == "a b");
  CHECK(trim("  ") == "");
}

TEST_CASE("two writers of one file that have the same process number do not meet in a temporary") {
  const TemporaryFolder home;
  const std::filesystem::path path = home.path() / "file";
  AtomicFile first(path), second(path);
  first.write("the first, longer one");
  second.write("the second");
  first.commit();
  CHECK(read_file(path) == "the first, longer one");
  second.commit();
  CHECK(read_file(path) == "the second");
}
