// What a kernel calls: its place in the grid, barriers, warp functions, atomics, asynchronous copies, shared memory.
// Every function that waits remembers the line it was called from.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/emulation/types.h"

// Set for the fiber that runs; kernels only read them.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace flexformer::emu {

struct Place {
  const char* file;
  int line;
};

// scheduler.cpp. A value travels as 8 bytes.
void wait_for_block(Place place);
enum class Collective { sync, shuffle, ballot, product, rows };
// Waits for all lanes of the mask at the same call. shuffle: the value of lane `source`; ballot: the lanes whose value
// is not 0; sync: nothing; product and rows: nothing, but the values are pointers to what mma.h exchanges.
std::uint64_t meet(Collective what, unsigned mask, std::uint64_t value, int source, Place place);
int lane();
// The block's array known by `key`, full of poison when the block starts.
void* shared_array(const void* key, std::size_t bytes, std::size_t alignment, const char* name);
void* dynamic_shared();
// Copies when the thread waits for it, not before (runtime of cp.async).
void copy_later(void* to, const void* from, std::size_t bytes);
void commit_copies();
void wait_for_copies(int groups_left);

template <class T> T shuffle(unsigned mask, T value, int source, Place place) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = meet(Collective::shuffle, mask, bits, source, place);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace flexformer::emu

#define EMU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMU_PLACE) { flexformer::emu::wait_for_block({file, line}); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFF, EMU_PLACE) {
  flexformer::emu::meet(flexformer::emu::Collective::sync, mask, 0, 0, {file, line});
}

// Lanes exchange within groups of `width`; a source outside the group is the lane itself.
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_PLACE) {
  const int first = flexformer::emu::lane() / width * width;
  return flexformer::emu::shuffle(mask, value, first + (source & (width - 1)), {file, line});
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMU_PLACE) {
  const int lane = flexformer::emu::lane(), source = lane ^ bits;
  return flexformer::emu::shuffle(mask, value, source < (lane / width + 1) * width ? source : lane, {file, line});
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_PLACE) {
  const int lane = flexformer::emu::lane(), source = lane + int(delta);
  return flexformer::emu::shuffle(mask, value, source < (lane / width + 1) * width ? source : lane, {file, line});
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_PLACE) {
  const int lane = flexformer::emu::lane(), source = lane - int(delta);
  return flexformer::emu::shuffle(mask, value, source >= lane / width * width ? source : lane, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_PLACE) {
  return unsigned(flexformer::emu::meet(flexformer::emu::Collective::ballot, mask, predicate != 0, 0, {file, line}));
}
inline int __any_sync(unsigned mask, int predicate, EMU_PLACE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMU_PLACE) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}

template <class T> T atomicAdd(T* p, T value) {
  if constexpr (std::is_integral_v<T>) {
    return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
  } else {
    T old, sum;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do sum = old + value;
    while (!__atomic_compare_exchange(p, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
  }
}
inline int atomicMax(int* p, int value) {
  int old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(p, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T> T __ldg(const T* p) { return *p; }
inline void __threadfence() {}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes) {
  flexformer::emu::copy_later(to, from, bytes);
}
inline void __pipeline_commit() { flexformer::emu::commit_copies(); }
inline void __pipeline_wait_prior(int groups) { flexformer::emu::wait_for_copies(groups); }

// SHARED(T, name, [a][b]): an array in shared memory. Each place (and each instance of a template) has its own.
#define SHARED(T, name, ...)          \
  typedef T name##_array __VA_ARGS__; \
  static const char name##_key = 0;   \
  name##_array& name =                \
      *static_cast<name##_array*>(flexformer::emu::shared_array(&name##_key, sizeof(name##_array), alignof(T), #name))
// DYN_SHARED(T, name): the memory that the launch asked for.
#define DYN_SHARED(T, name) T* name = static_cast<T*>(flexformer::emu::dynamic_shared())
