// One function for each reader of bytes from outside: whatever it is given, it must end in an Error or in a result that
// keeps what the reader promises (what was read can be written and read again, a text comes back from its tokens ...).
// libFuzzer calls them by fuzz_main.cpp, and test_fuzz_corpus.cpp with the files under corpus/.
#pragma once
#include <string_view>
#include <vector>

namespace flexformer::tests {

struct FuzzTarget {
  std::string_view name;
  void (*read)(std::string_view bytes);
};

const std::vector<FuzzTarget>& fuzz_targets();
// Null if there is none of this name.
const FuzzTarget* find_fuzz_target(std::string_view name);

// Calls the target. Takes an Error for the refusal it is, if its message is one printable line of bounded length; all
// else that is thrown goes through, and a promise that was broken is a std::logic_error.
void run_fuzz_target(const FuzzTarget& target, std::string_view bytes);

}  // namespace flexformer::tests
