// StridedCopy: permute, slice, concatenate and their gradients. Where rows are contiguous on both sides they are copied
// as vectors; where source and target are contiguous along different axes, square tiles go through the cache.
#include "tensor/cpu_gemm.h"
#include "tensor/cpu_loops.h"

namespace flexformer::cpu {
namespace {

constexpr Index kTile = 32;

void copy_rows(GradOut y, const float* x, const Broadcast& s) {
  parallel_rows(s, 1, [y, x](Index, Index to, Index from, Index n) {
    for_lanes(n, [&](Index i, Index m) { put(y, to + i, load_up_to(x + from + i, m), m); });
  });
}

void copy_elements(GradOut y, const float* x, const Broadcast& s) {
  parallel_rows(s, 4, [y, x, y_step = s.a[3], x_step = s.b[3]](Index, Index to, Index from, Index n) {
    float* target = y.p + to;
    const float* source = x + from;
    if (y.add)
      for (Index i = 0; i < n; ++i) target[i * y_step] += source[i * x_step];
    else
      for (Index i = 0; i < n; ++i) target[i * y_step] = source[i * x_step];
  });
}

// y is contiguous along the last axis, x along `axis`.
void copy_transposed(GradOut y, const float* x, const Broadcast& s, int axis) {
  const Index rows = s.size[3], cols = s.size[axis], y_row = s.a[axis], x_row = s.b[3];
  const Index strips = (cols + kTile - 1) / kTile;
  Broadcast rest = s;  // one entry per strip of columns, times the two other axes
  rest.size[axis] = rest.size[3] = 1;
  const Index planes = numel(rest);
  parallel_for(planes * strips, grain_for(2 * rows * std::min(cols, kTile)), [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const RowWalk plane(rest, item / strips);
      const Index c = item % strips * kTile, width = std::min(kTile, cols - c);
      for (Index r = 0; r < rows; r += kTile) {
        const Index height = std::min(kTile, rows - r), to = plane.a + c * y_row + r;
        const float* source = x + plane.b + c + r * x_row;
        if (!y.add) {
          transpose_tile(y.p + to, y_row, source, x_row, height, width);
          continue;
        }
        alignas(64) float tile[kTile * kTile];
        transpose_tile(tile, kTile, source, x_row, height, width);
        for (Index j = 0; j < width; ++j)
          for_lanes(height,
                    [&](Index i, Index m) { put(y, to + j * y_row + i, load_up_to(tile + j * kTile + i, m), m); });
      }
    }
  });
}

}  // namespace

void run(const StridedCopy& k) {
  if (!k.y || k.size[0] * k.size[1] * k.size[2] * k.size[3] == 0) return;
  const Broadcast s = ordered_box(k);
  const bool single = s.size[3] == 1;  // one element: its strides mean nothing
  if (single || (s.a[3] == 1 && s.b[3] == 1)) return copy_rows(k.y, k.x, s);
  if (s.a[3] == 1)
    for (int axis = 0; axis < 3; ++axis)
      if (s.size[axis] > 1 && s.b[axis] == 1) return copy_transposed(k.y, k.x, s, axis);
  copy_elements(k.y, k.x, s);
}

}  // namespace flexformer::cpu
