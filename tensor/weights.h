// Matrices that products only read, as a model that decodes keeps them: floats as they are, or fewer bits for each
// number, since every token reads all of them and memory is what it waits for.
#pragma once
#include <string>

#include "tensor/tensor.h"

namespace flexformer {

enum class WeightFormat { f32, bf16, int8 };
WeightFormat weight_format_from(const std::string& name);  // throws Error for any other name

// A matrix [O,I] as a kernel sees it. f32: row after row. The others lie in panels of 64 rows (the last one filled up
// with zeros), and in a panel column after column, so that a product reads them from front to back: a column is 16
// words of 32 bits (bf16: twice 16), and word l holds the numbers of rows l, l + 16 .., lowest bits first.
struct WeightsIn {
  static constexpr Index kPanel = 64;

  const char* p = nullptr;
  const float* scale = nullptr;  // [O] of int8: element (o,i) is scale_o times its number
  WeightFormat format = WeightFormat::f32;

  HD Index bytes() const { return format == WeightFormat::f32 ? 4 : format == WeightFormat::bf16 ? 2 : 1; }
  // Where the number of row o and column i lies, of a matrix with I columns.
  HD const char* at(Index o, Index i, Index I) const {
    const Index parts = 4 / bytes(), row = o % kPanel, lane = row % 16, part = row / 16;
    if (format == WeightFormat::f32) return p + (o * I + i) * 4;
    return p + ((o / kPanel * I + i) * kPanel + part / parts * parts * 16 + lane * parts + part % parts) * bytes();
  }
  HD float number(Index o, Index i, Index I) const {
    const char* place = at(o, i, I);
    if (format == WeightFormat::f32) return *reinterpret_cast<const float*>(place);
    if (format == WeightFormat::int8)
      return float(*reinterpret_cast<const std::int8_t*>(place)) * (scale ? scale[o] : 1.0f);
    union {
      std::uint32_t bits;
      float value;
    } wide = {std::uint32_t(*reinterpret_cast<const std::uint16_t*>(place)) << 16};
    return wide.value;
  }
};

// f32   the matrix itself, whose memory is shared
// bf16  each number rounded to the nearest, ties to even: an error of at most 2^-9 of it
// int8  round(W_oi / scale_o), scale_o = max_i |W_oi| / 127: an error of at most scale_o / 2
class Weights {
 public:
  Weights() = default;  // of a map that is not there
  // Throws Error for a matrix that is not [O,I] and, unless f32, for one that holds a number that is not finite.
  Weights(const Tensor& matrix, WeightFormat format);

  bool defined() const { return data_.defined(); }
  Index rows() const { return rows_; }
  Index columns() const { return columns_; }
  WeightFormat format() const { return format_; }
  WeightsIn in() const;
  Index bytes() const { return bytes_; }  // of its numbers, which one product reads
  // [count,I]: rows `first` on as products see them. On the CPU alone.
  Tensor unpacked(Index first, Index count) const;

 private:
  Tensor data_, scale_;  // panels are bytes in an i32 tensor
  WeightFormat format_ = WeightFormat::f32;
  Index rows_ = 0, columns_ = 0, bytes_ = 0;
};

}  // namespace flexformer
