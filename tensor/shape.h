// Shape: up to four sizes, outermost first. A scalar has rank 0 and one element.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "tensor/error.h"

namespace flexformer {

using Index = std::int64_t;  // every size, offset and count: products of sizes pass 2^31 in real models

class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  // Throws Error for more than four sizes, a negative size, or more elements than an Index can count.
  Shape(std::initializer_list<Index> sizes) {
    for (Index size : sizes) append(size);
  }

  int rank() const { return rank_; }
  // Size of an axis; a negative axis counts from the end. Throws Error when there is no such axis.
  Index operator[](int axis) const { return sizes_[normalise("shape", axis)]; }
  Index last() const { return (*this)[-1]; }

  // Number of elements.
  Index numel() const {
    Index n = 1;
    for (int i = 0; i < rank_; ++i) n *= sizes_[i];
    return n;
  }

  // Number of elements in axes [from, to).
  Index numel(int from, int to) const {
    Index n = 1;
    for (int i = from; i < to; ++i) n *= sizes_[i];
    return n;
  }

  // Maps a possibly negative axis to 0 .. rank-1.
  int normalise(CheckedOp op, int axis) const {
    check(op, axis >= -rank_ && axis < rank_, "there is no axis ", axis, " in shape ", *this);
    return axis < 0 ? axis + rank_ : axis;
  }

  // The same shape with one axis of another size.
  Shape with(int axis, Index size) const {
    check("shape", size >= 0, "negative size ", size);
    Shape out = *this;
    out.sizes_[normalise("shape", axis)] = size;
    out.check_count();
    return out;
  }

  void append(Index size) {
    check("shape", rank_ < max_rank, "at most ", max_rank, " axes, got one more after ", *this);
    check("shape", size >= 0, "negative size ", size);
    sizes_[rank_++] = size;
    check_count();
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.sizes_[i] != b.sizes_[i]) return false;
    return true;
  }

  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '[';
    for (int i = 0; i < shape.rank_; ++i) out << (i ? "," : "") << shape.sizes_[i];
    return out << ']';
  }

 private:
  // Sizes that cannot be counted in bytes are refused here, before anything multiplies them again.
  void check_count() const {
    Index n = 1;
    for (int i = 0; i < rank_; ++i)
      if (sizes_[i] == 0) return;
    for (int i = 0; i < rank_; ++i)
      check("shape", !__builtin_mul_overflow(n, sizes_[i], &n) && n < (Index(1) << 60), *this,
            " has too many elements");
  }

  std::array<Index, max_rank> sizes_{};
  int rank_ = 0;
};

}  // namespace flexformer
