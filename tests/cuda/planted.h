// Kernels with a planted fault: what is said about them. Faults that end the program (memory touched from the wrong
// side, findings of the sanitizers) run in a process of their own.
#pragma once
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "cuda/emulation/fence.h"
#include "cuda/emulation/memory.h"
#include "cuda/emulation/scheduler.h"
#include "cuda/kernel.h"

namespace flexformer::cuda {

constexpr bool finds_races = EMU_RACES, finds_addresses = EMU_ASAN;

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
#define CHECK_SAYS(call, part)                                                               \
  do {                                                                                       \
    const std::string said = error_of([&] { call; });                                        \
    CHECK_MESSAGE(said.find(part) != std::string::npos, "expected '", part, "' in: ", said); \
  } while (false)

// What a process of its own that runs f prints on stderr, and whether it ended well. The test program starts itself
// again, for this test case alone, and there the same call of this function runs f: a process that was only forked
// would carry half of the sanitizer's state.
struct Ending {
  std::string said;
  bool well = false;
};
inline Ending ending_of(const std::function<void()>& f) {
  static std::map<std::string, int> calls;
  const std::string test = doctest::getContextOptions()->currentTest->m_name;
  const std::string call = std::to_string(++calls[test]);
  if (const char* wanted = std::getenv("EMULATION_CALL")) {
    if (wanted != call) return {};
    try {
      f();
    } catch (const Error& error) {
      std::cerr << error.what() << std::endl;
      _exit(3);
    }
    _exit(0);
  }
  int ends[2];
  REQUIRE_EQ(pipe(ends), 0);
  if (const pid_t child = fork(); child == 0) {
    dup2(ends[1], STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    setenv("EMULATION_CALL", call.c_str(), 1);
    std::string pattern = test;
    std::replace(pattern.begin(), pattern.end(), ',', '*');  // a comma would begin another pattern
    execl("/proc/self/exe", "tests", ("-tc=" + pattern).c_str(), nullptr);
    _exit(4);
  } else {
    close(ends[1]);
    Ending ending;
    char part[4096];
    for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) ending.said.append(part, std::size_t(n));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ending.well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return ending;
  }
}
// A race is reported by the thread sanitizer and by no other build.
inline void check_race(const std::string& name, bool expected, const std::function<void()>& f) {
  if (!finds_races) return;
  const Ending ending = ending_of(f);
  const bool found = ending.said.find("ThreadSanitizer: data race") != std::string::npos;
  CHECK_MESSAGE(found == expected, name, ": ", ending.said);
}
inline void check_ends_with(const std::function<void()>& f, const std::string& part) {
  const Ending ending = ending_of(f);
  CHECK_FALSE(ending.well);
  CHECK_MESSAGE(ending.said.find(part) != std::string::npos, "expected '", part, "' in: ", ending.said);
}

inline Tensor numbers(Index n) {
  std::vector<float> values;
  for (Index i = 0; i < n; ++i) values.push_back(float(i));
  return Tensor::from({n}, values, Device::cuda);
}
inline Tensor empty(Index n) { return Tensor::empty({n}, DType::f32, Device::cuda); }

// Kernels without a fault, for the launches.
__global__ inline void own_element(float* y) { y[blockIdx.x] = float(blockIdx.x); }
__global__ inline void twice(float* y, const float* x, Index n) {
  for (Index i = thread_number(); i < n; i += thread_count()) y[i] = 2 * x[i];
}

}  // namespace flexformer::cuda
