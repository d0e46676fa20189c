// Fences around allocations: bytes of a fixed value that are looked at later or, under the address sanitizer, memory
// that may not be touched at all. Poison is 0xFF: NaN as a float, -1 as an int.
#pragma once
#include <cstddef>

#include "cuda/emulation/fiber.h"

#if EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace flexformer::emu {

constexpr std::size_t kFence = 64;
constexpr unsigned char kFenceByte = 0xFB;  // as a float about -2.6e36: what reads it goes wrong visibly

// Fills without the race detector noticing, as it would with memset.
inline void fill_unseen(void* p, std::size_t bytes, unsigned char value) {
#if EMU_RACES
  for (volatile unsigned char *at = static_cast<unsigned char*>(p), *end = at + bytes; at != end; ++at) *at = value;
#else
  __builtin_memset(p, value, bytes);
#endif
}
inline void poison_unseen(void* p, std::size_t bytes) { fill_unseen(p, bytes, 0xFF); }

inline void fence(void* p, std::size_t bytes) {
#if EMU_ASAN
  __asan_poison_memory_region(p, bytes);
#else
  fill_unseen(p, bytes, kFenceByte);
#endif
}
inline void unfence([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#if EMU_ASAN
  __asan_unpoison_memory_region(p, bytes);
#endif
}
inline bool fence_is_whole(const unsigned char* p, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (p[i] != kFenceByte) return false;
  return true;
}

}  // namespace flexformer::emu
