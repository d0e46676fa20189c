// Caching allocator, one pool per device: freed blocks are kept by size and handed out again, so that a training step
// takes nothing from the system after the first one. Every byte in use is counted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "tensor/shape.h"

namespace flexformer {

enum class Device { cpu, cuda };

namespace memory {

struct Stats {
  Index live_bytes = 0;      // handed out and not yet returned
  Index peak_bytes = 0;      // largest live_bytes since reset_peak()
  Index reserved_bytes = 0;  // taken from the system: live plus cached
  Index system_calls = 0;    // how often the system was asked for memory
};

// At least `bytes` bytes, aligned to 64. The contents are arbitrary (see set_poison).
// Throws Error, saying what was needed, what is in use and how to need less, when the system has no more; and saying
// why, when there is no such device.
void* allocate(Device device, std::size_t bytes);
void release(Device device, void* block, std::size_t bytes) noexcept;

Stats stats(Device device);
void reset_peak(Device device);
void trim(Device device);  // returns all cached blocks to the system

// The memory of work that will be repeated with the same addresses: nobody else may be given any of it meanwhile. What
// is allocated during() belongs to the reservation: released, it waits for the next during() and not for everyone. New
// blocks come from the pool. They go back to it when the reservation ends; those then still in use, when they are
// released.
class Reservation {
 public:
  explicit Reservation(Device device);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  void during(const std::function<void()>& work) const;  // one reservation of a device at a time

 private:
  Device device_;
  int number_;
};

// Tests switch this on: every block is handed out full of NaN, so that a kernel which leaves a gap is seen.
void set_poison(bool on);
// Tests switch this off: blocks are then exactly as large as asked for and go back to the system at once, so that
// whatever watches over memory sees every step outside a tensor. Only while nothing is handed out.
void set_caching(Device device, bool on);

}  // namespace memory
}  // namespace flexformer
