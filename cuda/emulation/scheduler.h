// Runs the blocks of a grid one after another and the threads of a block as fibers. See scheduler.cpp for how a thread
// waits and what is an error.
#pragma once
#include <cstddef>
#include <string>

#include "cuda/emulation/threads.h"

namespace flexformer::emu {

// In which order blocks and threads run. Nothing may depend on it.
enum class Order { forward, reverse, random };
void set_order(Order order, std::uint64_t seed = 0);

struct Grid {
  dim3 blocks, threads;
  std::size_t dynamic_shared = 0;
  Place place{};  // of the launch
};
// What each thread does.
struct Body {
  void (*call)(const void* kernel_and_arguments);
  const void* self;
};

// Throws Error with the place of the launch, the block and who waits where.
void run_grid(const Grid& grid, Body body);

// Static and dynamic shared memory that the last grid used, per block.
std::size_t shared_bytes_used();

}  // namespace flexformer::emu
