// The Unicode tables against Python's unicodedata: hashes of what it answers, for all code points and for many
// mixtures.
#include "train/util/unicode.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "train/util/files.h"
#include "train/util/utf8.h"

using namespace flexformer;

namespace {

// fnv1a64 of '\n'.join(change(text) for text in texts).
template <class Change> std::string hash_of(const std::vector<std::string>& texts, const Change& change) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) all += (i ? "\n" : "") + change(texts[i]);
  return fingerprint(all);
}

std::vector<std::string> all_characters() {
  std::vector<std::string> all;
  for (std::uint32_t c = 0; c < 0x110000; ++c)
    if (c < 0xD800 || c > 0xDFFF) append_code_point(c, all.emplace_back());
  return all;
}

// Texts of 1 to 9 characters that compose, are put in order, or are in each other's way.
std::vector<std::string> mixtures() {
  constexpr std::array<std::uint32_t, 30> pool = {0x41,   0x61,    0x301,  0x323,  0x300,  0x345,  0x1100, 0x1161,
                                                  0x11A8, 0xAC00,  0xAC01, 0x3042, 0x304B, 0x3099, 0xFB01, 0x1E9B,
                                                  0xFB2,  0xF71,   0xF80,  0x212B, 0x4E00, 0x20,   0x93C,  0x915,
                                                  0x958,  0x1D15E, 0x9C7,  0x9BE,  0xC5,   0x1EA5};
  std::uint64_t state = 1;
  const auto below = [&](std::uint64_t n) {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    return (state >> 8) % n;
  };
  std::vector<std::string> all(20000);
  for (std::string& text : all)
    for (std::uint64_t left = 1 + below(9); left > 0; --left) append_code_point(pool[below(pool.size())], text);
  return all;
}

}  // namespace

TEST_CASE("normal forms and small letters are those of Unicode 14, for every character and for mixtures") {
  const std::vector<std::string> all = all_characters(), mixed = mixtures();
  const std::array<std::array<const char*, 2>, 4> expected = {{{"81bcc8b8d7c91af9", "ba62da74fb09cbd0"},
                                                               {"6bfd55fd4c8eca45", "527f483081b06d0d"},
                                                               {"e60167bfbaf71ca3", "0c218cdb2677fb5e"},
                                                               {"7f75acca09304f10", "b325f5bc5a9dc721"}}};
  for (int form = 0; form < 4; ++form) {
    const auto change = [&](const std::string& text) { return normalized(text, NormalForm(form)); };
    CHECK(hash_of(all, change) == expected[std::size_t(form)][0]);
    CHECK(hash_of(mixed, change) == expected[std::size_t(form)][1]);
  }
  CHECK(hash_of(all, [](const std::string& text) {
          std::string lower;
          append_lower(next_code_point(text, 0).value, lower);
          return lower;
        }) == "65c7c290ac535152");
}

TEST_CASE(
    "a text's normal form is that of its parts where it may be cut; stray bytes stay; ends count the text's bytes") {
  std::string text;
  for (const std::string& mixture : mixtures()) text += mixture;
  text.resize(5000);
  text +=
      "\xFF"
      "e\xCC\x81\x80";
  for (const NormalForm form : {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc, NormalForm::nfkd}) {
    std::vector<std::size_t> ends;
    const std::string whole = normalized(text, form, &ends);
    REQUIRE(ends.size() == whole.size());
    CHECK(ends.back() == text.size());
    CHECK(std::ranges::is_sorted(ends));
    CHECK(whole.find('\xFF') != whole.npos);
    std::string parts;
    std::size_t from = 0;
    for (std::size_t at = 0; at < text.size(); at += next_code_point(text, at).length)
      if (const CodePoint unit = next_code_point(text, at); unit.valid && begins_normal_part(unit.value)) {
        parts += normalized(text.substr(from, at - from), form);
        from = at;
      }
    CHECK(parts + normalized(text.substr(from), form) == whole);
  }
}
