// What the rest of the code needs of a GPU besides kernels: whether there is one, its memory, and copies. Implemented
// by cuda/device.cu; a build without CUDA has device_memory.cpp instead, where there never is one.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "tensor/shape.h"

namespace flexformer::device {

// "" if a GPU can be used, else why not and what to do about it, as one sentence. Asked once, then remembered.
const std::string& trouble();

// At least `bytes` bytes, aligned to 256; null when the device has no more. Memory that kernels still use may be
// released: it is handed out again in the order of the stream.
void* allocate(std::size_t bytes);
void release(void* block) noexcept;

// Copies and fills take their place in the order of the stream that kernels run in. to_host() waits until the bytes
// are there; to_device() has read its source when it returns.
void copy_to_device(void* to, const void* from, std::size_t bytes);
void copy_to_host(void* to, const void* from, std::size_t bytes);
void copy_within(void* to, const void* from, std::size_t bytes);
void fill(void* to, int byte, std::size_t bytes);
void fill_floats(float* to, float value, Index n);

// The most blocks that a launch has; what is left is done by the same blocks in further rounds. Results do not depend
// on it, and tests lower it to see the rounds.
inline Index block_limit = 65536;

// Waits for everything launched so far. Errors of kernels show here.
void synchronize();

// A moment in the stream: when all that was launched before is done.
class Moment {
 public:
  Moment();
  ~Moment();
  Moment(Moment&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Moment& operator=(Moment&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  double seconds_since(const Moment& earlier) const;  // waits until it has come

 private:
  void* event_;
};

// Work that is recorded once and then given to the device as often as wanted, by one call each time. While it is
// recorded nothing runs: kernels, copies on the device and fills are noted with the arguments that they have, numbers
// and addresses, and launch() repeats them with the same. What shall differ from launch to launch must lie in the
// device's memory, and all that memory must stay in place (memory::Reservation). In `work`, copying from the host or to
// it and waiting for the device throw Error.
class Graph {
 public:
  explicit Graph(const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const;  // takes its place in the order of the stream

 private:
  void* recorded_ = nullptr;
};

}  // namespace flexformer::device
