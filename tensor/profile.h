// Where the time goes: calls, seconds, bytes and operations of every kernel and of every op, forward and backward. Off
// unless start() was called (--profile): then launch() times each kernel, and op_ended() or an Op says whose it was.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/device_memory.h"

namespace flexformer {

// The least that a kernel must do: bytes of every operand read once and every result written once, and its additions,
// multiplications, divisions and elementary functions, each counted as one operation.
struct Cost {
  double bytes = 0, operations = 0;
};

namespace profile {

inline bool on = false;
void start();  // from now on, from zero
void stop();

// Times one kernel: by the clock on the CPU, by two marks in the stream on a GPU.
class Timing {
 public:
  explicit Timing(Device device);
  void stop(const char* kernel, Cost cost);

 private:
  std::chrono::steady_clock::time_point begin_;
  std::optional<device::Moment> mark_;
};

// An op's result was made: the kernels since the last op were its own. record() calls it.
void op_ended(const char* op);

// While it lives, all kernels belong to this op: backward functions, and whatever does not end in record().
constexpr const char* backward = " backward";
class Op {
 public:
  explicit Op(const char* name, const char* direction = "");
  ~Op();
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

 private:
  std::string outer_;
};

struct Row {
  std::string name;  // of a kernel's struct, or of an op, with " backward" behind it
  Index calls = 0;
  double seconds = 0;
  Cost cost;
};
// Largest first. What belongs to no op is in "other". On a GPU these wait for it.
std::vector<Row> kernels();
std::vector<Row> ops();
// Both as a table, with the rates reached, and how much of the time since start() was spent outside kernels.
std::string table();

}  // namespace profile
}  // namespace flexformer
