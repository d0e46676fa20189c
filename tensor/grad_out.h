// GradOut, the place of a gradient in the structs of the kernel contract (kernels.h).
#pragma once
#include "tensor/functors.h"
#include "tensor/shape.h"

namespace flexformer {

// Where a kernel puts a gradient. Var decides the flag: the first writer overwrites, later ones add, and a null pointer
// means that nobody wants this gradient. Every kernel honours all three.
struct GradOut {
  float* p = nullptr;
  bool add = false;
  HD explicit operator bool() const { return p != nullptr; }
};

}  // namespace flexformer
