// The number format of precision=f32|bf16. On the CPU bfloat16 is what matrix products read their operands in, and all
// else stays float. On a GPU, where memory is what most kernels wait for, activations and their gradients are stored in
// bfloat16, too. Sums, parameters with their gradients, statistics and the optimiser are float in either case.
#pragma once
#include "tensor/allocator.h"
#include "tensor/values.h"

namespace flexformer {

enum class Precision {
  f32,
  bf16,  // 8 bits of mantissa
};

inline Precision precision_setting = Precision::f32;
// For everything from here on, forward and backward.
inline void set_precision(Precision precision) { precision_setting = precision; }
inline Precision precision() { return precision_setting; }

// What activations that come from parameters (a table's rows) are stored in; all others have their inputs' format.
inline DType activation_dtype(Device device) {
  return device == Device::cuda && precision() == Precision::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace flexformer
