#include "tensor/processors.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace flexformer {
namespace {

std::string read_file_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// A mounted hierarchy: the group `root` is seen at the folder `at`.
struct Mount {
  std::string root, at;
};

// 36 35 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
std::vector<Mount> mounts_of(const std::string& table, const std::string& type, const std::string& controller) {
  std::vector<Mount> found;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skip, root, at, file_system, source, options;
    before >> skip >> skip >> skip >> root >> at;
    after >> file_system >> source >> options;
    if (file_system == type && (controller.empty() || has_word(options, controller))) found.push_back({root, at});
  }
  return found;
}

// Quota by period of one group; infinity without a limit.
double quota_of(const ReadText& read, const std::string& folder, bool version2) {
  std::istringstream text(version2 ? read(folder + "/cpu.max")
                                   : read(folder + "/cpu.cfs_quota_us") + " " + read(folder + "/cpu.cfs_period_us"));
  double quota = 0, period = 0;
  return text >> quota >> period && quota > 0 && period > 0 ? quota / period : INFINITY;  // "max 100000", "-1 100000"
}

}  // namespace

int quota_processors(const ReadText& read) {
  double least = INFINITY;
  const std::string mounts = read("/proc/self/mountinfo");
  std::istringstream groups(read("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool version2 = controllers.empty();
    if (!version2 && !has_word(controllers, "cpu")) continue;
    for (const Mount& mount : version2 ? mounts_of(mounts, "cgroup2", "") : mounts_of(mounts, "cgroup", "cpu")) {
      // A container sees its own group as the mount's root, though the path may be the host's.
      const std::string root = mount.root == "/" ? "" : mount.root;
      const bool below = path.compare(0, root.size(), root) == 0 && path.find("/..") == std::string::npos;
      std::string group = below ? path.substr(root.size()) : "";
      for (;; group.resize(group.rfind('/'))) {
        while (!group.empty() && group.back() == '/') group.pop_back();
        least = std::min(least, quota_of(read, mount.at + group, version2));
        if (group.empty() || group.front() != '/') break;
      }
    }
  }
  return std::isinf(least) ? 0 : std::max(1, int(std::ceil(std::min(least, 1e6))));
}

int usable_processors() {
  int count = std::max(1, int(std::thread::hardware_concurrency()));
#if defined(__linux__)
  cpu_set_t set[8];  // of 1,024 processors each
  if (sched_getaffinity(0, sizeof set, set) == 0) count = std::max(1, CPU_COUNT_S(sizeof set, set));
  if (const int quota = quota_processors(read_file_text)) count = std::min(count, quota);
#endif
  return count;
}

}  // namespace flexformer
