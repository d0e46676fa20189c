// What the attention kernels share: scratch for each thread, and rows of heads seen through strides.
#pragma once
#include <utility>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/simd.h"

namespace flexformer::cpu {

// Hands out pieces of one block, each beginning on a cache line. Without a block it only counts what would be needed,
// so that sizes are written down once.
class Scratch {
 public:
  explicit Scratch(float* block = nullptr) : block_(block) {}
  float* take(Index floats) {
    float* piece = block_ ? block_ + used_ : nullptr;
    used_ += (floats + 15) / 16 * 16;
    return piece;
  }
  Index used() const { return used_; }

 private:
  float* block_;
  Index used_ = 0;
};

// One Work for each thread that parallel_for can use on so many pieces. Work's constructor takes a Scratch& and then
// `sizes`; it is built once without a block to learn how much a thread needs.
template <class Work> class PerThread {
 public:
  template <class... Sizes> PerThread(Index pieces, const Sizes&... sizes) {
    const Index workers = std::max<Index>(1, std::min<Index>(threads(), pieces));
    Scratch count;
    Work(count, sizes...);
    block_ = Tensor::empty({workers, count.used()});
    works_.reserve(std::size_t(workers));
    for (Index i = 0; i < workers; ++i) {
      Scratch scratch(block_.data() + i * count.used());
      works_.emplace_back(scratch, sizes...);
    }
  }
  Work& mine() { return works_[std::size_t(thread_index())]; }

 private:
  Tensor block_;
  std::vector<Work> works_;
};

inline const float* row_of(const HeadsIn& x, Index b, Index h, Index i) {
  return x.p + b * x.batch + i * x.row + h * x.head;
}

// Sets (or adds to) `rows` rows of y from row `first` on: tile [rows, width].
inline void store_rows(const HeadsOut& y, Index b, Index h, Index first, const float* tile, Index rows, Index width) {
  float* p = y.grad.p + b * y.batch + first * y.row + h * y.head;
  for (Index i = 0; i < rows; ++i, p += y.row, tile += width)
    for (Index c = 0; c < width; c += kLanes) {
      const Vec x = load_up_to(tile + c, width - c);
      store_up_to(p + c, y.grad.add ? load_up_to(p + c, width - c) + x : x, width - c);
    }
}

inline float dot(const float* a, const float* b, Index n) {
  Vec sum{};
  for (Index i = 0; i < n; i += kLanes) sum += load_up_to(a + i, n - i) * load_up_to(b + i, n - i);
  return sum_lanes(sum);
}

// y = factor * x; y may be x.
inline void scale_row(float* y, const float* x, float factor, Index n) {
  for (Index i = 0; i < n; i += kLanes) store_up_to(y + i, factor * load_up_to(x + i, n - i), n - i);
}

}  // namespace flexformer::cpu
