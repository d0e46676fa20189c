// Fibers: functions that can stop half way and go on later, each on a stack of its own. A switch saves the registers
// that a call must preserve and takes the other fiber's: 20 instructions.
#pragma once
#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// The Makefile sets these for SAN=asan and SAN=tsan.
#if !defined(EMU_ASAN)
#define EMU_ASAN 0
#endif
#if !defined(EMU_RACES)
#define EMU_RACES 0
#endif

namespace flexformer::emu {

class Fiber {
 public:
  // A fiber that will call entry(self) when first switched to; entry must never return.
  explicit Fiber(void (*entry)(Fiber*));
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `from`, which must be running, and goes on with `to`. The two are unordered for the race detector.
  static void switch_to(Fiber& from, Fiber& to);
  // To be called first by a fiber's entry.
  static void entered();
  // The fiber that was there all along: the thread of the system itself.
  static Fiber& host();

 private:
  Fiber();  // host

#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
  void* stack_ = nullptr;  // null for the host
  // What the sanitizers know this fiber by.
  [[maybe_unused]] void *race_detector_ = nullptr, *address_checker_ = nullptr;
};

}  // namespace flexformer::emu
