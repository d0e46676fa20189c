// The number format that matrix products read their operands in. Everything else (sums, activations, parameters,
// gradients, optimiser) is float in either case.
#pragma once

namespace flexformer {

enum class Precision {
  f32,
  bf16,  // operands of linear maps and matmul are rounded to bfloat16 (8 bits of mantissa)
};

inline Precision product_precision_setting = Precision::f32;
// For all products from here on, forward and backward.
inline void set_product_precision(Precision precision) { product_precision_setting = precision; }
inline Precision product_precision() { return product_precision_setting; }

}  // namespace flexformer
