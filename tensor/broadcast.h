// Boxes of four axes, as both backends prepare them: the fewest axes and the longest rows that mean the same.
#pragma once
#include <algorithm>

#include "tensor/kernels.h"

namespace flexformer {

// The same box with axes of size 1 dropped and neighbours merged where both sides allow it: the fewest axes, the
// longest rows. Kept axes end at the last; ones fill the front.
inline Broadcast merge_axes(const Broadcast& s) {
  Broadcast out{{1, 1, 1, 1}, {}, {}};
  int top = 4;  // the last axis taken
  for (int i = 3; i >= 0; --i) {
    if (s.size[i] == 1) continue;
    if (top < 4 && s.a[i] == out.a[top] * out.size[top] && s.b[i] == out.b[top] * out.size[top]) {
      out.size[top] *= s.size[i];
      continue;
    }
    --top;
    out.size[top] = s.size[i];
    out.a[top] = s.a[i];
    out.b[top] = s.b[i];
  }
  return out;
}

inline Index numel(const Broadcast& s) { return s.size[0] * s.size[1] * s.size[2] * s.size[3]; }

// The box as a Broadcast (a: strides of y, b: strides of x) with the target's axes in falling order of stride, so that
// the last axis is the one along which y is written.
inline Broadcast ordered_box(const StridedCopy& k) {
  int order[4] = {0, 1, 2, 3};
  std::stable_sort(order, order + 4, [&](int i, int j) {
    if (k.size[i] == 1 || k.size[j] == 1) return k.size[i] == 1 && k.size[j] != 1;
    return k.y_stride[i] > k.y_stride[j];
  });
  Broadcast s;
  for (int i = 0; i < 4; ++i) {
    s.size[i] = k.size[order[i]];
    s.a[i] = k.y_stride[order[i]];
    s.b[i] = k.x_stride[order[i]];
  }
  return merge_axes(s);
}

}  // namespace flexformer
