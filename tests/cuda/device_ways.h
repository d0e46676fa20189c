// Ways of working that a device's results must not depend on, shared by the tests on the device: with few blocks, and
// in the emulation in other orders of blocks and threads, and as late as a device might run them.
#pragma once
#include <cstring>
#include <iostream>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/device_memory.h"
#include "tensor/precision.h"

#if defined(FLEXFORMER_EMULATION)
#include "cuda/emulation/runtime.h"
#endif

namespace flexformer::testing {

struct Way {
  const char* name;
  Index block_limit;
};
#if defined(FLEXFORMER_EMULATION)
inline const Way ways[] = {{"forward", 65536}, {"in reverse, 3 blocks", 3}, {"at random, late", 65536}};
inline void use(const Way& way) {
  const auto i = &way - ways;
  emu::set_order(i == 0 ? emu::Order::forward : i == 1 ? emu::Order::reverse : emu::Order::random, 7);
  emu::set_deferred(i == 2);
  device::block_limit = way.block_limit;
}
#else
inline const Way ways[] = {{"first", 65536}, {"again", 65536}, {"few blocks", 3}};
inline void use(const Way& way) { device::block_limit = way.block_limit; }
#endif

// The race detector takes its time: it sees everything once, with few blocks, and nothing large.
#if defined(EMU_RACES)
inline constexpr bool for_races = true;
#else
inline constexpr bool for_races = false;
#endif

// Poisoned memory and the usual way of working, at the end of a scope whatever happens in it.
struct Poisoned {
  Poisoned() { memory::set_poison(true); }
  ~Poisoned() {
    memory::set_poison(false);
    use(ways[0]);
  }
};

// precision=bf16 until the end of the scope.
struct InBf16 {
  InBf16() { set_precision(Precision::bf16); }
  ~InBf16() { set_precision(Precision::f32); }
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline bool usable() {
  if (device::trouble().empty()) return true;
  std::cout << "skip everything on the device: " << device::trouble() << "\n";
  return false;
}

}  // namespace flexformer::testing
