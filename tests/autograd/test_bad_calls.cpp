// Refusals: every row of the table of bad calls, and that the table is complete.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

// The longest string literal of each check(..) in a source text: the part of its message that names it.
std::vector<std::string> check_messages(const std::string& source) {
  std::vector<std::string> messages;
  const std::string call = " check(";
  for (std::size_t at = source.find(call); at != std::string::npos; at = source.find(call, at + 1)) {
    std::string longest, literal;
    bool quoted = false;
    int depth = 1;
    for (std::size_t i = at + call.size(); i < source.size() && depth > 0; ++i) {
      if (source[i] == '"') {
        quoted = !quoted;
        if (!quoted && literal.size() > longest.size()) longest = literal;
        literal.clear();
      } else if (quoted) {
        literal += source[i];
      } else {
        depth += (source[i] == '(') - (source[i] == ')');
      }
    }
    messages.push_back(longest);
  }
  return messages;
}

}  // namespace

TEST_CASE("the table of bad calls: each is refused with a message that helps") {
  for (const BadCase& row : bad_cases()) {
    INFO(row.name);
    const std::string said = refusal(row);
    CHECK_MESSAGE(said.find(row.message) != std::string::npos, "expected: ", row.message, "; said: ", said);
    CHECK_MESSAGE(said.find(".cpp:") != std::string::npos, "no source line in: ", said);
  }
}

TEST_CASE("every check of the ops has a row in the table of bad calls") {
  std::string all;
  for (const BadCase& row : bad_cases()) all += refusal(row) + "\n";
  int checks = 0;
  REQUIRE_MESSAGE(std::filesystem::is_directory("autograd"), "run the tests from the root of the repository");
  for (const auto& entry : std::filesystem::directory_iterator("autograd")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("ops_") && name != "op_util.h") continue;
    std::ifstream file(entry.path());
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    for (const std::string& message : check_messages(source)) {
      ++checks;
      if (message == "; move them to one device") continue;  // a build without CUDA has but one
      CHECK_MESSAGE(all.find(message) != std::string::npos, name, " refuses with '", message,
                    "', but no row of the table does it");
    }
  }
  CHECK(checks > 30);  // else the search itself is broken
}

}  // namespace flexformer::testing
