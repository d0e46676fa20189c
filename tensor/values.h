// Values, the pointer to activations in the structs of the kernel contract (kernels.h), and GradOut, the place of a
// gradient there.
//
// Activations are floats or, on a GPU, bfloat16s (precision.h); parameters, statistics and optimiser states are floats
// everywhere. All activations of a struct have one format unless it says otherwise. On the CPU they are floats, always,
// and a Values is used like the float* that it then is.
#pragma once
#include <cstddef>
#include <type_traits>

#include "tensor/host_device.h"
#include "tensor/shape.h"

namespace flexformer {

enum class DType { f32, i32, bf16 };
HD inline Index size_of(DType dtype) { return dtype == DType::bf16 ? 2 : 4; }

template <class Float> struct Values {
  std::conditional_t<std::is_const_v<Float>, const char, char>* p = nullptr;
  DType dtype = DType::f32;

  Values() = default;
  HD Values(Float* floats) : p(reinterpret_cast<decltype(p)>(floats)) {}
  HD Values(decltype(p) p, DType dtype) : p(p), dtype(dtype) {}
  // What may be written may be read.
  template <class Other>
  requires(std::is_const_v<Float> && !std::is_const_v<Other>) HD Values(const Values<Other>& x)
      : p(x.p), dtype(x.dtype) {}

  HD operator Float*() const { return as<Float>(); }
  template <class T> HD auto* as() const {
    return reinterpret_cast<std::conditional_t<std::is_const_v<Float>, const T, T>*>(p);
  }
  // From the i-th element on; a null pointer stays one.
  HD Values from(Index i) const { return {p ? p + i * size_of(dtype) : nullptr, dtype}; }
};
using ValuesIn = Values<const float>;
using ValuesOut = Values<float>;

// Where a kernel puts a gradient. Var decides the flag: the first writer overwrites, later ones add, and a null pointer
// means that nobody wants this gradient. Every kernel honours all three.
struct GradOut {
  ValuesOut p = nullptr;
  bool add = false;
  HD explicit operator bool() const { return p.p != nullptr; }
  HD GradOut from(Index i) const { return {p.from(i), add}; }
};

}  // namespace flexformer
