// How the benchmark measures. A case is prepared, called once to warm the caches up, then timed; times are CPU time on
// one thread (the steadiest figure on a shared machine) and wall-clock time on several and, until all is done, on a
// GPU. What is to be compared is measured in turns, because a machine's speed drifts.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace flexformer::bench {

inline Device target = Device::cpu;  // what is measured; set before anything is prepared

using Call = std::function<void()>;

// One measurement by name: `prepare` makes what a call needs, and the call. Short calls are repeated until a figure
// stands for `at_least` seconds.
struct Case {
  std::string name;
  double work;  // of a call: floating-point operations of a product, else tokens
  int repeats;  // figures that a table's median is taken from
  double at_least;
  std::function<Call()> prepare;
};

struct Measurement {
  std::vector<double> seconds;  // of a call, one figure per repeat
  Index peak_tensor_bytes;      // largest memory of all tensors at a time
  Index peak_rss_bytes;         // largest resident memory of the process meanwhile; 0 where the system cannot tell
};

Measurement measure(const Case& subject, int repeats);
inline Measurement measure(const Case& subject) { return measure(subject, subject.repeats); }

double median(std::vector<double> values);
// Seconds of a call: the mean over as many calls as take `at_least` seconds.
double seconds_per_call(double at_least, const Call& call);
// Median seconds of each call. Every round measures all of them, one after the other.
std::vector<double> medians_in_turns(int rounds, double at_least, const std::vector<Call>& calls);

Tensor random_tensor(const Shape& shape, std::uint64_t stream, float scale = 1);    // on the target
Tensor random_ids(const Shape& shape, Index first, Index end, std::uint64_t seed);  // i32 in [first, end)

// Cells of tables, right-aligned.
std::string cell(const std::string& value, std::size_t width);
std::string cell(double value, int decimals, std::size_t width);
std::string cell(Index value, std::size_t width);
std::string memory_cell(Index bytes, std::size_t width);  // "-" for 0

}  // namespace flexformer::bench
