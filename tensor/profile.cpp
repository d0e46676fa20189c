#include "tensor/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

namespace flexformer::profile {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Launch {
  const char* kernel;
  double seconds;
  Cost cost;
};
struct OnDevice {  // a launch on a GPU, whose seconds are not known yet
  std::string op;  // "": not known yet, either
  Launch launch;
  device::Moment begin, end;
};

struct Profile {
  Clock::time_point begin;
  std::map<std::string, Row> kernels, ops;
  std::string op;                 // of the Op that is open; "": none
  std::vector<Launch> unclaimed;  // since the last op ended
  std::vector<OnDevice> on_device;
};
Profile& profile() {
  static Profile only;
  return only;
}

constexpr const char* nobody = "other";

void count(Row& row, const Launch& launch, Index calls) {
  row.calls += calls;
  row.seconds += launch.seconds;
  row.cost.bytes += launch.cost.bytes;
  row.cost.operations += launch.cost.operations;
}

void add(const std::string& op, const Launch& launch) {
  count(profile().kernels[launch.kernel], launch, 1);
  count(profile().ops[op], launch, op == nobody ? 1 : 0);  // of an op, its results are counted
}

void wait_for_device() {
  Profile& p = profile();
  for (OnDevice& each : p.on_device) {
    each.launch.seconds = each.end.seconds_since(each.begin);
    add(each.op, each.launch);
  }
  p.on_device.clear();
}

// The kernels that have run since the last op ended are this one's.
void claim(const std::string& op) {
  Profile& p = profile();
  for (const Launch& launch : p.unclaimed) add(op, launch);
  p.unclaimed.clear();
  for (OnDevice& each : p.on_device)
    if (each.op.empty()) each.op = op;
  constexpr std::size_t enough = 4096;  // marks that wait to be read
  if (p.on_device.size() >= enough) wait_for_device();
}

std::vector<Row> sorted(const std::map<std::string, Row>& by_name) {
  std::vector<Row> rows;
  for (const auto& [name, row] : by_name) {
    rows.push_back(row);
    rows.back().name = name;
  }
  std::ranges::stable_sort(rows, std::ranges::greater(), &Row::seconds);
  return rows;
}

void settle() {
  claim(profile().op.empty() ? nobody : profile().op);
  wait_for_device();
}

std::string line(const char* name, Index calls, double seconds, double share, const Cost* cost) {
  char words[160];
  const double ns = 1e9 * std::max(seconds, 1e-12);
  int n = std::snprintf(words, sizeof words, "%-32s%10lld%12.3f%8.1f %%", name, static_cast<long long>(calls), seconds,
                        100 * share);
  if (cost && seconds > 0)
    std::snprintf(words + n, sizeof words - std::size_t(n), "%10.1f%12.1f", cost->bytes / ns, cost->operations / ns);
  return std::string(words) + "\n";
}

std::string rows_text(const char* what, const std::vector<Row>& rows, double all) {
  char head[120];
  std::snprintf(head, sizeof head, "%-32s%10s%12s%10s%10s%12s\n", what, "calls", "seconds", "share", "GB/s", "GFLOP/s");
  std::string out = head;
  for (const Row& row : rows) out += line(row.name.c_str(), row.calls, row.seconds, row.seconds / all, &row.cost);
  return out;
}

}  // namespace

void start() {
  profile() = {};
  profile().begin = Clock::now();
  on = true;
}
void stop() { on = false; }

Timing::Timing(Device device) {
  if (device == Device::cpu)
    begin_ = Clock::now();
  else
    mark_.emplace();
}

void Timing::stop(const char* kernel, Cost cost) {
  Profile& p = profile();
  const Launch launch{kernel, mark_ ? 0 : seconds_since(begin_), cost};
  if (mark_) {
    p.on_device.push_back({p.op, launch, std::move(*mark_), device::Moment()});
  } else if (p.op.empty()) {
    p.unclaimed.push_back(launch);
  } else {
    add(p.op, launch);
  }
}

void op_ended(const char* op) {
  if (!profile().op.empty()) return;
  ++profile().ops[op].calls;
  claim(op);
}

Op::Op(const char* name, const char* direction) {
  if (!on) return;
  outer_ = profile().op;
  if (outer_.empty()) claim(nobody);
  profile().op = std::string(name) + direction;
  ++profile().ops[profile().op].calls;
}
Op::~Op() {
  if (!on) return;
  claim(profile().op);
  profile().op = outer_;
}

std::vector<Row> kernels() {
  settle();
  return sorted(profile().kernels);
}
std::vector<Row> ops() {
  settle();
  return sorted(profile().ops);
}

std::string table() {
  const double all = std::max(1e-9, seconds_since(profile().begin));
  const std::vector<Row> by_kernel = kernels();
  double inside = 0;
  for (const Row& row : by_kernel) inside += row.seconds;
  return rows_text("profile by op", ops(), all) + line("outside kernels", 0, all - inside, 1 - inside / all, nullptr) +
         "\n" + rows_text("by kernel", by_kernel, all);
}

}  // namespace flexformer::profile
