// libFuzzer's entry; FUZZ_TARGET=NAME chooses the target. Whatever run_fuzz_target() throws ends the program, and
// libFuzzer keeps the bytes.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace flexformer::tests;
  static const FuzzTarget* const target = [] {
    const char* name = std::getenv("FUZZ_TARGET");
    const FuzzTarget* found = find_fuzz_target(name ? name : "");
    if (found) return found;
    std::fprintf(stderr, "FUZZ_TARGET must be one of:");
    for (const FuzzTarget& known : fuzz_targets()) std::fprintf(stderr, " %s", known.name.data());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }();
  run_fuzz_target(*target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
