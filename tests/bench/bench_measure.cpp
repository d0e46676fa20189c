#include "tests/bench/bench_measure.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "tensor/device_memory.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "train/util/log.h"
#include "train/util/program.h"

namespace flexformer::bench {
namespace {

double now() {
  if (target != Device::cpu) device::synchronize();
  timespec time{};
  clock_gettime(threads() == 1 && target == Device::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// Gives all unused memory back, then lets Linux begin its record of the process's resident memory anew. False where
// that cannot be done.
bool reset_peak_rss() {
  memory::trim(Device::cpu);
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ofstream record("/proc/self/clear_refs");
  record << 5 << std::flush;
  return bool(record);
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + Index(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_per_call(double at_least, const Call& call) {
  const double start = now();
  double seconds = 0;
  int calls = 0;
  do {
    call();
    ++calls;
    seconds = now() - start;
  } while (seconds < at_least);
  return seconds / calls;
}

std::vector<double> medians_in_turns(int rounds, double at_least, const std::vector<Call>& calls) {
  std::vector<std::vector<double>> seconds(calls.size());
  for (const Call& call : calls) call();
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < calls.size(); ++i) seconds[i].push_back(seconds_per_call(at_least, calls[i]));
  std::vector<double> medians;
  for (auto& values : seconds) medians.push_back(median(std::move(values)));
  return medians;
}

Measurement measure(const Case& subject, int repeats) {
  const bool rss_known = reset_peak_rss();
  memory::reset_peak(target);
  const Call call = subject.prepare();
  call();
  Measurement result{};
  for (int i = 0; i < repeats; ++i) result.seconds.push_back(seconds_per_call(subject.at_least, call));
  result.peak_tensor_bytes = memory::stats(target).peak_bytes;
  if (rss_known) result.peak_rss_bytes = peak_rss_bytes();
  return result;
}

Tensor random_tensor(const Shape& shape, std::uint64_t stream, float scale) {
  Tensor x = Tensor::empty(shape);
  launch(Device::cpu, FillNormal{.y = x.data(), .n = x.numel(), .scale = scale, .key = {1, stream}});
  return x.to(target);
}

Tensor random_ids(const Shape& shape, Index first, Index end, std::uint64_t seed) {
  Random random(seed);
  Tensor ids = Tensor::empty(shape, DType::i32);
  for (Index i = 0; i < ids.numel(); ++i)
    ids.ints()[i] = std::int32_t(first + Index(random.below(std::uint64_t(end - first))));
  return ids;
}

std::string cell(const std::string& value, std::size_t width) {
  return std::string(width > value.size() ? width - value.size() : 0, ' ') + value;
}
std::string cell(double value, int decimals, std::size_t width) { return cell(fixed(value, decimals), width); }
std::string cell(Index value, std::size_t width) { return cell(grouped(value), width); }
std::string memory_cell(Index bytes, std::size_t width) { return cell(bytes ? megabytes(bytes) : "-", width); }

}  // namespace flexformer::bench
