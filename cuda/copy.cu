// StridedCopy: permute, slice, concatenate and their gradients. Neighbouring threads write neighbouring elements. Where
// they would then read far apart, a tile goes through shared memory: read along the source's rows, written along the
// target's.
#include "cuda/box.h"

namespace flexformer::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8;

template <class Int> __global__ void copy_elements(GradOut y, ValuesIn x, Broadcast s, Index n) {
  for (Index i = thread_number(); i < n; i += thread_count()) {
    const Offsets at = offsets_at(s, Int(i));
    put(y, at.a, read(x, at.b));
  }
}

// The matrices in which y is contiguous along `rows` and x along `cols`: `rest` are the other axes.
struct Transposed {
  Broadcast rest;
  Index rows, cols;    // sizes
  Index y_col, x_row;  // strides
  Index planes, row_tiles, col_tiles;
};

// A tile's rows are one element longer than they need be, so that a column touches all 32 banks of shared memory.
__global__ void copy_transposed(GradOut y, ValuesIn x, Transposed t) {
  SHARED(float, tile, [kTile][kTile + 1]);
  const int tx = threadIdx.x, ty = threadIdx.y;
  for (Index item = blockIdx.x; item < t.planes * t.row_tiles * t.col_tiles; item += gridDim.x) {
    const Index r = item % t.row_tiles * kTile, c = item / t.row_tiles % t.col_tiles * kTile;
    const Offsets plane = offsets_at(t.rest, std::uint64_t(item / (t.row_tiles * t.col_tiles)));
    for (int i = ty; i < kTile; i += kTileRows)
      if (r + i < t.rows && c + tx < t.cols) tile[i][tx] = read(x, plane.b + (r + i) * t.x_row + c + tx);
    __syncthreads();
    for (int i = ty; i < kTile; i += kTileRows)
      if (c + i < t.cols && r + tx < t.rows) put(y, plane.a + (c + i) * t.y_col + r + tx, tile[tx][i]);
    __syncthreads();  // before the next tile is read
  }
}

// The axis along which x is contiguous where y is along the last one; -1 if there is none, or both are.
int transposed_axis(const Broadcast& s) {
  if (s.a[3] != 1 || s.b[3] == 1 || s.size[3] < kTileRows) return -1;
  for (int axis = 0; axis < 3; ++axis)
    if (s.size[axis] >= kTileRows && s.b[axis] == 1) return axis;
  return -1;
}

}  // namespace

void run(const StridedCopy& k) {
  const Index n = k.size[0] * k.size[1] * k.size[2] * k.size[3];
  if (!k.y || n == 0) return;
  const Broadcast s = ordered_box(k);
  const int axis = transposed_axis(s);
  if (axis < 0) {
    with_index_type(
        n, [&](auto index) { launch_kernel(for_elements(n), copy_elements<decltype(index)>, k.y, k.x, s, n); });
    return;
  }
  Transposed t{s, s.size[3], s.size[axis], s.a[axis], s.b[3], 0, 0, 0};
  t.rest.size[axis] = t.rest.size[3] = 1;
  t.planes = numel(t.rest);
  t.row_tiles = (t.rows + kTile - 1) / kTile;
  t.col_tiles = (t.cols + kTile - 1) / kTile;
  launch_kernel({blocks_for(t.planes * t.row_tiles * t.col_tiles), dim3(kTile, kTileRows)}, copy_transposed, k.y, k.x,
                t);
}

}  // namespace flexformer::cuda
