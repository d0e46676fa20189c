// Every file of tests/fuzz/corpus goes through its reader: inputs that start the fuzzer, and all that it has ever
// found.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/fuzz/fuzz_targets.h"
#include "train/util/files.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace fs = std::filesystem;

namespace {
const fs::path kCorpus = "tests/fuzz/corpus";
}  // namespace

TEST_CASE("no input of the fuzzer's corpus breaks its reader") {
  for (const FuzzTarget& target : fuzz_targets()) {
    CAPTURE(target.name);
    std::set<fs::path> files;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(kCorpus / target.name, missing)) files.insert(entry.path());
    CHECK_MESSAGE(!files.empty(), "the target has no inputs");
    run_fuzz_target(target, "");
    for (const fs::path& file : files) {
      CAPTURE(file.string());
      CHECK_NOTHROW(run_fuzz_target(target, read_file(file)));
    }
  }
}

TEST_CASE("each folder of the fuzzer's corpus belongs to a target") {
  REQUIRE(fs::is_directory(kCorpus));
  for (const auto& folder : fs::directory_iterator(kCorpus))
    CHECK_MESSAGE(find_fuzz_target(folder.path().filename().string()), folder.path().string());
}
