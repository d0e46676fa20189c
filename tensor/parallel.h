// Threads. Work is cut into pieces by its size alone (where the cut cannot show in the result, also by the number of
// threads) and a piece is always computed by one thread in one order, so that results do not depend on how many threads
// there are.
#pragma once
#include <algorithm>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "tensor/shape.h"

namespace flexformer {

// Number of threads that kernels use; 0 stands for all processors. Without OpenMP it is always 1.
void set_threads(int count);
int threads();

// Index of the calling thread within a parallel_for, below threads().
inline int thread_index() {
#if defined(_OPENMP)
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// Calls body(begin, end) for consecutive pieces [begin, end) of [0, count), `grain` long but for the last one.
// body must not throw. Pieces are handed out in order to whichever thread is free.
template <class Body> void parallel_for(Index count, Index grain, const Body& body) {
  const Index pieces = (count + grain - 1) / grain;
#if defined(_OPENMP)
  if (pieces > 1 && threads() > 1 && !omp_in_parallel()) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(int(std::min <Index>(threads(), pieces)))
    for (Index piece = 0; piece < pieces; ++piece) body(piece * grain, std::min(count, (piece + 1) * grain));
    return;
  }
#endif
  for (Index piece = 0; piece < pieces; ++piece) body(piece * grain, std::min(count, (piece + 1) * grain));
}

// How many rows of `row_cost` operations make a piece worth a thread's while.
inline Index grain_for(Index row_cost, Index piece_cost = 32768) {
  return std::max<Index>(1, piece_cost / std::max<Index>(1, row_cost));
}

}  // namespace flexformer
