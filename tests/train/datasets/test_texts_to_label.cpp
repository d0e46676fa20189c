// What predict takes for a text: lines, or the rows of a table with the run's columns.
#include <doctest/doctest.h>

#include "tensor/error.h"
#include "train/datasets/texts_to_label.h"

using namespace flexformer;
using doctest::Contains;

namespace {

using Texts = std::vector<std::string>;

Texts texts(const std::string& bytes, const std::string& name, const LabelReading& reading = {},
            std::size_t piece = 5) {
  Texts all;
  std::size_t at = 0;
  const ByteSource pieces = [&]() -> std::string_view {
    const std::string_view part = std::string_view(bytes).substr(std::min(at, bytes.size()), piece);
    at += piece;
    return part;
  };
  read_texts_to_label(
      pieces, name, reading,
      [&](const Row& row) { all.push_back(row.text + (row.text2.empty() ? "" : "|" + row.text2)); },
      [](const std::string&) {});
  return all;
}

}  // namespace

TEST_CASE("lines and tables are told apart by name, content and the run's columns") {
  struct Case {
    std::string name, bytes;
    LabelReading reading;
    Texts wanted;
  };
  const LabelReading named{.table = {.text = "utterance"}}, pairs{.table = {.text = "a", .text2 = "b"}, .pair = true};
  const Case cases[] = {
      {"f.txt", "one\r\ntwo, three\n\nfour", {}, {"one", "two, three", "", "four"}},
      {"f.txt", "one\rtwo\r", {}, {"one", "two"}},
      {"f.txt", std::string("\xFF\xFEo\0\n\0t\0", 8), {}, {"o", "t"}},
      {"f.csv", "id,text\n0,one\n1,\"two, three\"\n", {}, {"one", "two, three"}},
      {"f.csv", "\"one\nmore\"\n\"two\"\n", {}, {"one\nmore", "two"}},
      {"f.txt", "id\ttext\n0\tone\n1\ttwo\n", {}, {"one", "two"}},
      {"f.txt", "id;utterance\n0;one\n1;two\n", named, {"one", "two"}},
      {"f.txt", "utterance\none, two\n", named, {"one, two"}},
      {"f.txt", "an utterance, or two\n", named, {"an utterance, or two"}},
      {"f.tsv", "text\tlabel\none\tpos\n", named, {"one"}},
      {"f.txt", "{\"id\": 1, \"utterance\": \"one\"}\n", named, {"one"}},
      {"f.txt", "one\ttwo\n", {.pair = true}, {"one|two"}},
      {"f.csv", "b,a\none,two\n", pairs, {"two|one"}},
      {"f.csv", "one\ntwo, three\n", {.table = {.format = "lines"}}, {"one", "two, three"}},
      {"f.txt", "__label__x one\ntwo\n", {}, {"one", "two"}},
      {"f.txt", "( [MAX 1 ( 2 ) ] )\n", {.listops = true}, {"[MAX 1 2 ]"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.bytes);
    for (const std::size_t piece : {1, 5, 1000}) CHECK(texts(c.bytes, c.name, c.reading, piece) == c.wanted);
  }
  CHECK_THROWS_WITH_AS(texts("", "f.txt"), "f.txt: no text to label", Error);
  CHECK_THROWS_WITH_AS(texts("one\n", "f.txt", {.pair = true}), Contains("f.txt:1: this model reads pairs; put a tab"),
                       Error);
  CHECK_THROWS_WITH_AS(texts("id,text\n0,one\n", "f.csv", {.pair = true}),
                       Contains("give the others by --text and --text2"), Error);
  CHECK_THROWS_WITH_AS(texts("\x7F"
                             "ELF....",
                             "f.txt"),
                       Contains("this is a program (ELF)"), Error);
}

TEST_CASE("a line that is typed is answered before the next one comes") {
  Texts all;
  std::size_t given = 0;
  const ByteSource typed = [&]() -> std::string_view {
    CHECK(all.size() == given);
    constexpr std::string_view lines[] = {"one\n", "two\n", ""};
    return lines[given++];
  };
  read_texts_to_label(
      typed, "standard input", {.waits = true}, [&](const Row& row) { all.push_back(row.text); },
      [](const std::string&) {});
  CHECK(all == Texts{"one", "two"});
}
