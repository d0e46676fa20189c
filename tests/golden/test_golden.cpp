// The golden runner itself: it must see a wrong value, and survive a damaged file.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/golden/golden_runner.h"
#include "tests/train/util/temporary_folder.h"

namespace flexformer::golden {
namespace {

// exp of 0 and 1, and its gradient.
const std::string good = R"({"about": "", "cases": [{"name": "tiny", "op": "exp",
  "inputs": {"x": {"dtype": "f64", "shape": [2], "data": [0, 1]},
             "grad_out": {"dtype": "f64", "shape": [2], "data": [1, 2]}},
  "params": {},
  "outputs": {"out": {"dtype": "f64", "shape": [2], "data": [1, 2.718281828459045]}},
  "grads": {"x": {"dtype": "f64", "shape": [2], "data": [1, 5.43656365691809]}}}]})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// What the runner prints for a folder with this one file in it.
std::string printed(const std::string& file, Totals* totals = nullptr) {
  TemporaryFolder folder;
  folder.file("some.json", file);
  std::ostringstream out;
  const Totals found = run_folder(folder.path(), out);
  if (totals) *totals = found;
  return out.str();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a golden file that is right passes") {
  Totals totals;
  const std::string output = printed(good, &totals);
  CHECK_MESSAGE(contains(output, "ok tiny "), output);
  CHECK_MESSAGE(contains(output, "\n1 passed, 0 failed\n"), output);
  CHECK(totals.passed == 1);
}

TEST_CASE("a wrong number in a golden file is reported with its error and limit") {
  const std::string value = printed(replaced(good, "2.718281828459045", "2.7184"));
  CHECK_MESSAGE(contains(value, "FAIL tiny 4.08"), value);
  CHECK_MESSAGE(contains(value, " 1e-05 (out)\n0 passed, 1 failed\n"), value);
  const std::string gradient = printed(replaced(good, "5.43656365691809", "5.4367"));
  CHECK_MESSAGE(contains(gradient, "(gradient of x)"), gradient);
  const std::string infinite = printed(replaced(good, "2.718281828459045", "\"nan\""));
  CHECK_MESSAGE(contains(infinite, "FAIL tiny nan"), infinite);
  const std::string shape =
      printed(replaced(good, R"("out": {"dtype": "f64", "shape": [2])", R"("out": {"dtype": "f64", "shape": [2, 1])"));
  CHECK_MESSAGE(contains(shape, "out has shape [2] instead of [2,1]"), shape);
}

TEST_CASE("an op that the golden runner does not know is skipped and counted") {
  Totals totals;
  const std::string output = printed(replaced(good, R"("op": "exp")", R"("op": "sorcery")"), &totals);
  CHECK_MESSAGE(output == "skip tiny\n0 passed, 0 failed, 1 skipped\n", output);
  CHECK(totals.skipped == 1);
}

TEST_CASE("a damaged golden file is a failure that names it, and the other cases still run") {
  const std::string cut = printed(good.substr(0, good.size() / 2));
  CHECK_MESSAGE(contains(cut, "FAIL some.json ("), cut);
  CHECK_MESSAGE(contains(cut, "0 passed, 1 failed"), cut);
  const std::pair<const char*, const char*> faults[] = {
      {R"("shape": [2], "data": [0, 1])", R"("shape": [3], "data": [0, 1])"},
      {R"("shape": [2], "data": [0, 1])", R"("shape": [-2], "data": [0, 1])"},
      {R"("shape": [2], "data": [0, 1])", R"("shape": [2.5], "data": [0, 1])"},
      {R"("shape": [2], "data": [0, 1])", R"("shape": [2], "data": [0, "one"])"},
      {R"("shape": [2], "data": [0, 1])", R"("shape": [2])"},
      {R"("dtype": "f64", "shape": [2], "data": [0, 1])", R"("dtype": "f16", "shape": [2], "data": [0, 1])"},
      {R"("dtype": "f64", "shape": [2], "data": [0, 1])", R"("dtype": "bool", "shape": [2], "data": [0, 2])"},
      {R"("dtype": "f64", "shape": [2], "data": [0, 1])", R"("dtype": "i64", "shape": [2], "data": [0, 0.5])"},
      {R"("x": {"dtype": "f64", "shape": [2], "data": [0, 1]},)", ""},
      {R"("params": {},)", ""},
      {R"("grad_out": {"dtype": "f64", "shape": [2])", R"("grad_out": {"dtype": "f64", "shape": [1, 2])"},
  };
  for (const auto& fault : faults) {
    const std::string from = fault.first, to = fault.second;
    const std::string second = good.substr(good.find("[{") + 1, good.rfind("]}") - good.find("[{") - 1);
    const std::string output = printed(replaced(replaced(good, from, to), "}]}", "}," + second + "]}"));
    CHECK_MESSAGE(contains(output, "FAIL tiny ("), to, " gives ", output);
    CHECK_MESSAGE(contains(output, "1 passed, 1 failed"), to, " gives ", output);
  }
}

TEST_CASE("a golden folder that is missing or empty is an error") {
  TemporaryFolder folder;
  std::ostringstream out;
  CHECK_THROWS_WITH(run_folder(folder.path() / "nowhere", out),
                    doctest::String(("there is no folder " + (folder.path() / "nowhere").string()).c_str()));
  CHECK_THROWS_AS(run_folder(folder.path(), out), Error);
}

TEST_CASE("a weight of a golden training run that is off by 2 percent is seen") {
  std::ifstream file("tests/golden/models.json");
  REQUIRE_MESSAGE(file, "run the tests from the root of the repository");
  Json json = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "models.json");
  Json& cases = json["cases"];
  cases.erase(cases.begin() + 1, cases.end());
  const std::string right = printed(dump_json(json));
  CHECK_MESSAGE(contains(right, "1 passed, 0 failed"), right);
  Json& weight = cases[0]["final"]["layer1.wv"]["data"][5];
  weight = weight.get<double>() + 0.02;
  const std::string wrong = printed(dump_json(json));
  CHECK_MESSAGE(contains(wrong, "(final layer1.wv)"), wrong);
  CHECK_MESSAGE(contains(wrong, "0 passed, 1 failed"), wrong);
}

}  // namespace flexformer::golden
