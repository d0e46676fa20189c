// Threads. Work is cut into pieces by its size alone (where the cut cannot show in the result, also by the number of
// threads) and a piece is always computed by one thread in one order, so that results do not depend on how many threads
// there are.
#pragma once
#include <algorithm>

#include "tensor/shape.h"

namespace flexformer {

// Number of threads that kernels use; 0 stands for all processors that this process may use (processors.h). A build
// with OMP=0 always has one. Call set_threads() from one thread, outside of parallel_for.
void set_threads(int count);
int threads();

// Index of the calling thread within a parallel_for, below threads() and below the number of pieces; 0 outside.
int thread_index();

namespace detail {

// Calls call(body, piece) for each piece below `pieces`, with the pool's help.
void share_work(Index pieces, void (*call)(const void* body, Index piece), const void* body);

}  // namespace detail

// Calls body(begin, end) for consecutive pieces [begin, end) of [0, count), `grain` long but for the last one.
// body must not throw. Pieces are handed out in order to whichever thread is free. A parallel_for within another one
// runs on its thread alone.
template <class Body> void parallel_for(Index count, Index grain, const Body& body) {
  const Index pieces = (count + grain - 1) / grain;
  const auto run = [&](Index piece) { body(piece * grain, std::min(count, (piece + 1) * grain)); };
  if (pieces > 1 && threads() > 1) {
    // An exception cannot leave a thread of the pool: noexcept ends the program at once wherever it is thrown.
    const auto call = [](const void* p, Index piece) noexcept { (*static_cast<decltype(&run)>(p))(piece); };
    detail::share_work(pieces, call, &run);
    return;
  }
  for (Index piece = 0; piece < pieces; ++piece) run(piece);
}

// How many rows of `row_cost` operations make a piece worth a thread's while.
inline Index grain_for(Index row_cost, Index piece_cost = 32768) {
  return std::max<Index>(1, piece_cost / std::max<Index>(1, row_cost));
}

}  // namespace flexformer
