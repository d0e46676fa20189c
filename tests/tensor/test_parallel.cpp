// Threads: every piece runs once, whoever comes late, and the processors that a process may use.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "tensor/parallel.h"
#include "tensor/processors.h"

namespace flexformer {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Threads {
  explicit Threads(int count) : before(threads()) { set_threads(count); }
  ~Threads() { set_threads(before); }
  int before;
};

// Whether parallel_for gave each of [0, count) to one thread once, in pieces of `grain`, with valid indices.
bool runs_each_once(Index count, Index grain) {
  std::vector<unsigned char> runs(std::size_t(count), 0);
  const Index pieces = (count + grain - 1) / grain;
  std::atomic<bool> right = true;
  parallel_for(count, grain, [&](Index begin, Index end) {
    if (begin % grain != 0 || end != std::min(count, begin + grain)) right = false;
    if (thread_index() < 0 || thread_index() >= std::min<Index>(threads(), pieces)) right = false;
    for (Index i = begin; i < end; ++i) ++runs[std::size_t(i)];
  });
  return right && std::count(runs.begin(), runs.end(), 1) == count && thread_index() == 0;
}

// Whether a helper took one of two pieces: the caller's piece waits for that, the helper's then takes `extra` longer.
bool helped(Clock::duration most, Clock::duration extra) {
  std::atomic<bool> joined = false;
  parallel_for(2, 1, [&](Index, Index) {
    if (thread_index() == 0) {
      for (const auto end = Clock::now() + most; !joined && Clock::now() < end;) std::this_thread::sleep_for(50us);
    } else {
      joined = true;
      std::this_thread::sleep_for(extra);
    }
  });
  return joined.load();
}

bool a_helper_comes() {
  for (const auto end = Clock::now() + 20s; Clock::now() < end;)
    if (helped(10ms, 0ms)) return true;
  return false;
}

// The exit status of body() in a child process, or 128 and the signal that ended it.
template <class Body> int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("parallel_for runs every piece once, with threads that change from call to call") {
  const Threads restore(1);
  for (int round = 0; round < 20; ++round)
    for (int count : {3, 1, 2, 8, 5}) {
      set_threads(count);
      for (Index n : {0, 1, 2, 3, 7, 64, 1001})
        for (Index grain : {1, 2, 63}) REQUIRE(runs_each_once(n, grain));
    }
  set_threads(2);
  CHECK(runs_each_once((Index(1) << 22) + 5, 1));  // more pieces than fit in one ticket
}

TEST_CASE("a parallel_for within another stays on its thread") {
  const Threads three(3);
  std::atomic<int> inner = 0, elsewhere = 0;
  parallel_for(20, 1, [&](Index, Index) {
    const auto here = std::this_thread::get_id();
    const int index = thread_index();
    parallel_for(10, 1, [&](Index, Index) {
      ++inner;
      if (std::this_thread::get_id() != here || thread_index() != index) ++elsewhere;
    });
  });
  CHECK_EQ(inner, 200);
  CHECK_EQ(elsewhere, 0);
}

TEST_CASE("two threads of a program may call parallel_for at the same time") {
  const Threads two(2);
  std::atomic<int> wrong = 0;
  std::atomic<int> ready = 0;
  const auto calls = [&] {
    for (++ready; ready < 2;) {
    }
    for (int i = 0; i < 3000; ++i) wrong += !runs_each_once(100, 7);
  };
  std::thread other(calls);
  calls();
  other.join();
  CHECK_EQ(wrong, 0);
}

TEST_CASE("more threads than processors, beside busy ones, make progress") {
  const Threads many(4 * usable_processors());
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 2 * usable_processors(); ++i)
    busy.emplace_back([&] {
      while (!stop) {
      }
    });
  bool right = true;
  for (int i = 0; i < 200; ++i) right = right && runs_each_once(1000, 50);
  stop = true;
  for (std::thread& thread : busy) thread.join();
  CHECK(right);
}

TEST_CASE("helpers that keep the caller waiting are left out for a while") {
  const Threads two(2);
  if (threads() == 1) return;
  CHECK(a_helper_comes());
  int count = 0;
  for (int i = 0; i < 60; ++i) count += helped(1ms, 5ms);
  CHECK_LT(count, 30);
  CHECK(a_helper_comes());
}

#if !defined(__SANITIZE_THREAD__)  // which lets no child of a process with threads start threads
TEST_CASE("the child of a fork has helpers of its own, and a body that throws ends the program") {
  const Threads two(2);
  REQUIRE(runs_each_once(100, 1));
  CHECK_EQ(status_of_child([] { return runs_each_once(1000, 1) && (threads() == 1 || a_helper_comes()) ? 7 : 1; }), 7);
  if (threads() == 1) return;
  const auto throws = [] {
    std::set_terminate([] { _exit(9); });
    parallel_for(10, 1, [](Index, Index) { throw std::runtime_error("a piece"); });
    return 0;
  };
  CHECK_EQ(status_of_child(throws), 9);
}
#endif

TEST_CASE("a number of threads out of range is refused") {
  CHECK_THROWS_AS(set_threads(-1), Error);
  CHECK_THROWS_AS(set_threads(1025), Error);
}

TEST_CASE("the quota of control groups is read as processors") {
  const std::string version2 = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  const std::string version1 =
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
      "32 31 0:29 /docker/a1 /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
      "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
  const std::string path = "/sys/fs/cgroup/";
  struct Case {
    const char* name;
    std::string mounts, groups;
    std::map<std::string, std::string> files;
    int processors;
  };
  const Case cases[] = {
      {"nothing to read", "", "", {}, 0},
      {"version 2, no limit", version2, "0::/a\n", {{path + "a/cpu.max", "max 100000\n"}}, 0},
      {"version 2, rounded up", version2, "0::/a\n", {{path + "a/cpu.max", "150000 100000\n"}}, 2},
      {"less than one", version2, "0::/\n", {{path + "cpu.max", "1000 100000\n"}}, 1},
      {"a limit further up",
       version2,
       "0::/a/b/c\n",
       {{path + "a/cpu.max", "300000 100000"}, {path + "a/b/c/cpu.max", "400000 100000"}},
       3},
      {"a path outside", version2, "0::/../x\n", {{path + "cpu.max", "200000 100000"}}, 2},
      {"version 1 in a container",
       version1,
       "4:cpuset:/x\n3:cpu,cpuacct:/docker/a1\n0::/\n",
       {{path + "cpu,cpuacct/cpu.cfs_quota_us", "250000\n"}, {path + "cpu,cpuacct/cpu.cfs_period_us", "50000\n"}},
       5},
      {"version 1, below",
       version1,
       "3:cpu,cpuacct:/docker/a1/job\n",
       {{path + "cpu,cpuacct/job/cpu.cfs_quota_us", "400000"}, {path + "cpu,cpuacct/job/cpu.cfs_period_us", "100000"}},
       4},
      {"version 1, no limit",
       version1,
       "3:cpu,cpuacct:/docker/a1\n",
       {{path + "cpu,cpuacct/cpu.cfs_quota_us", "-1\n"}, {path + "cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
       0},
      {"damaged", "x - \n - cgroup2\n", "0:\n::\nx\n0::\n", {}, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const int found = quota_processors([&](const std::string& file) -> std::string {
      if (file == "/proc/self/mountinfo") return c.mounts;
      if (file == "/proc/self/cgroup") return c.groups;
      return c.files.count(file) ? c.files.at(file) : "";
    });
    CHECK_EQ(found, c.processors);
  }
}

#if defined(__linux__)
TEST_CASE("all processors are those of the affinity mask") {
  cpu_set_t before, one;
  REQUIRE_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CHECK_LE(usable_processors(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Threads all(0);
  CHECK_EQ(usable_processors(), 1);
  CHECK_EQ(threads(), 1);
  CHECK_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}
#endif

}  // namespace flexformer
