// Places of elements in a box that is read with strides (broadcast.h).
#pragma once
#include "cuda/kernel.h"
#include "tensor/broadcast.h"

namespace flexformer::cuda {

struct Offsets {
  Index a, b;
};
// Offsets of the i-th element, counted with the last axis running fastest. Int is what the divisions are done in: 32
// bits are several times faster than 64.
template <class Int> __device__ Offsets offsets_at(const Broadcast& s, Int i) {
  Offsets at{0, 0};
  for (int axis = 3; axis >= 0; --axis) {
    const Int size = Int(s.size[axis]), rest = i < size ? 0 : i / size;
    const Index index = Index(i - rest * size);
    at.a += index * s.a[axis];
    at.b += index * s.b[axis];
    i = rest;
    if (i == 0) break;
  }
  return at;
}

// Calls g with a number of the type in which n elements can be counted.
template <class G> void with_index_type(Index n, G&& g) {
  if (n < (Index(1) << 31)) return g(std::uint32_t{});
  return g(std::uint64_t{});
}

}  // namespace flexformer::cuda
