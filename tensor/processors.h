// How many processors a process may use: not those of the machine, but those of its affinity mask (taskset, job
// systems, containers) and of the CPU quota of its control groups (containers again).
#pragma once
#include <functional>
#include <string>

namespace flexformer {

// The text of a file; empty if it cannot be read.
using ReadText = std::function<std::string(const std::string& path)>;

// The CPU time that the control groups of this process may use per time, as processors, rounded up; 0: no limit. Reads
// /proc/self/cgroup, /proc/self/mountinfo and, from the group up to its mount, cpu.max (version 2) or cpu.cfs_quota_us
// and cpu.cfs_period_us (version 1).
int quota_processors(const ReadText& read);

// At least 1.
int usable_processors();

}  // namespace flexformer
