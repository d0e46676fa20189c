// Products of matrices by one block, for the attention kernels: a tile of 64 rows by 64 (or 80) columns of the product
// lies in the registers of the block's 128 threads, 8 rows by 4 (or 5) columns each, and what is multiplied goes
// through shared memory in panels of 32 terms.
//
// An operand is anything that gives its element (i, k): i counts the rows (or the columns) of the product and k the
// terms of its sums. A matrix in memory is an operand in two ways, across(m) and down(m). Both operands are 0 outside
// their matrices, so that tiles over an edge need no care.
#pragma once
#include "cuda/kernel.h"

namespace flexformer::cuda {

constexpr int kTile = 64;              // rows of a tile; also keys or queries that are taken at a time
constexpr int kTileThreads = 128;      // of a block that works on tiles
constexpr int kTileRows = 8;           // of one thread
constexpr int kSide = 16;              // threads that share their rows, and so the columns: half a warp
constexpr int kSquare = 4, kWide = 5;  // columns of one thread, in tiles of 64 and of 80: room for 64 values and a one
constexpr int kDepth = 32;             // terms of a product that lie in shared memory at a time

// std::min is the host's alone.
__device__ inline Index smaller(Index a, Index b) { return a < b ? a : b; }

inline Index tiles_of(Index n) { return (n + kTile - 1) / kTile; }
inline LaunchShape for_tiles(Index tiles, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {blocks_for(tiles), kTileThreads, 0, stream(), file, line};
}

// One thread's part of a tile: rows first_row() + r, columns first_column() + kSide * c.
template <int kColumns> struct Tile { float x[kTileRows][kColumns]; };
__device__ inline int first_row() { return int(threadIdx.x) / kSide * kTileRows; }
__device__ inline int first_column() { return int(threadIdx.x) % kSide; }

// Calls f(row, column, element) for the thread's part of a tile.
template <int kColumns, class F> __device__ void for_each(Tile<kColumns>& tile, F&& f) {
#pragma unroll
  for (int r = 0; r < kTileRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) f(first_row() + r, first_column() + kSide * c, tile.x[r][c]);
}

// Writes the part of a tile that lies inside of [rows,cols] to rows that are `row` apart.
template <int kColumns> __device__ void store(float* to, Index row, Index rows, Index cols, Tile<kColumns>& tile) {
  for_each(tile, [&](int r, int c, float x) {
    if (r < rows && c < cols) to[r * row + c] = x;
  });
}
// The same to rows from `first` on and channels from `channel` on of one head of a gradient [n,width].
__device__ inline void put_tile(const HeadsOut& y, Index b, Index h, Index first, Index n, Index channel, Index width,
                                Tile<kSquare>& tile) {
  const Index start = b * y.batch + h * y.head + first * y.row + channel;
  for_each(tile, [&](int r, int c, float x) {
    if (first + r < n && channel + c < width) put(y.grad, start + r * y.row + c, x);
  });
}

// Combines what the threads that share a row hold of it; each gets the result.
template <class Op> __device__ float row_combine(float value) {
#pragma unroll
  for (int distance = kSide / 2; distance > 0; distance /= 2) value = Op::combine(value, opposite(value, distance));
  return value;
}

// A matrix in memory: element (r, c) is p[r * row + c], and 0 outside. Activations may be bf16; what kernels keep for
// themselves is float.
template <class T> struct MatrixOf {
  const T* p;
  Index row;
  int rows, cols;
  __device__ float operator()(int r, int c) const { return r < rows && c < cols ? float(p[r * row + c]) : 0.0f; }
  __device__ MatrixOf from(Index r, Index c) const { return {p + r * row + c, row, rows - int(r), cols - int(c)}; }
};
using Matrix = MatrixOf<float>;
// Rows of one head from row `first` on, a tile of them at most.
template <class T>
__device__ MatrixOf<T> rows_of(const HeadsIn& x, Index b, Index h, Index first, Index n, Index width) {
  return {x.p.as<T>() + b * x.batch + h * x.head + first * x.row, x.row, int(smaller(kTile, n - first)), int(width)};
}
// The same of [heads, n, width].
__device__ inline Matrix rows_of(const float* x, Index head, Index first, Index n, Index width) {
  return {x + (head * n + first) * width, width, int(smaller(kTile, n - first)), int(width)};
}

// Operands: i counts rows of the matrix and k columns, or the other way round. kRunsAlong is what runs along a row.
enum class Along { i, k };
template <class M> struct Across {
  static constexpr Along kRunsAlong = Along::k;
  M m;
  __device__ float operator()(int i, int k) const { return m(i, k); }
};
template <class M> struct Down {
  static constexpr Along kRunsAlong = Along::i;
  M m;
  __device__ float operator()(int i, int k) const { return m(k, i); }
};
template <class M> __device__ Across<M> across(const M& m) { return {m}; }
template <class M> __device__ Down<M> down(const M& m) { return {m}; }

// In shared memory: element (i, k) of an operand is p[k][i]. The four floats to spare at the end of a row spread what
// lies above each other over the banks.
template <int kTerms, int kWidth> struct alignas(16) Panel { float p[kTerms][kWidth + 4]; };
using Square = Panel<kTile, kTile>;
struct Stages {
  Panel<kDepth, kTile> a;
  Panel<kDepth, kSide * kWide> b;
};

// Copies terms k .. k + kDepth of an operand. A warp takes 32 elements along i, or 8 along k (the bytes that memory
// hands out at once) of 4 neighbouring i, which fall into 32 different banks.
template <int kWidth, class Panel, class Operand> __device__ void stage(Panel& to, const Operand& x, Index k) {
#pragma unroll 4
  for (int e = int(threadIdx.x); e < kWidth * kDepth; e += kTileThreads) {
    constexpr bool along_k = Operand::kRunsAlong == Along::k;
    const int i = along_k ? e / 8 % kWidth : e % kWidth, term = along_k ? e / (8 * kWidth) * 8 + e % 8 : e / kWidth;
    to.p[term][i] = x(i, int(k) + term);
  }
}

// c += a b over the terms first .. first + terms of panel a and the first ones of panel b.
template <int kColumns, class A, class B>
__device__ void accumulate(Tile<kColumns>& c, const A& a, int first, const B& b, int terms) {
  const float *of_row = &a.p[first][first_row()], *of_column = &b.p[0][first_column()];
#pragma unroll 2
  for (int k = 0; k < terms; ++k) {
    float y[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) y[j] = of_column[kSide * j];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) c.x[i][j] += of_row[i] * y[j];
    of_row += sizeof a.p[0] / sizeof(float);
    of_column += sizeof b.p[0] / sizeof(float);
  }
}

// c[i][j] += sum over k < terms of a(i, k) b(j, k). All threads of the block call it; afterwards shared memory is free.
template <int kColumns, class A, class B>
__device__ void multiply(Tile<kColumns>& c, const A& a, const B& b, Index terms, Stages& stages) {
  for (Index k = 0; k < terms; k += kDepth) {
    stage<kTile>(stages.a, a, k);
    stage<kSide * kColumns>(stages.b, b, k);
    __syncthreads();
    accumulate(c, stages.a, 0, stages.b, int(smaller(kDepth, terms - k)));
    __syncthreads();  // before the next round, or the next product, fills the panels
  }
}
// The same where a has been put into shared memory: it may have been written just before. At most kTile terms, and one
// at least.
template <int kColumns, class B>
__device__ void multiply(Tile<kColumns>& c, const Square& a, const B& b, Index terms, Stages& stages) {
  for (Index k = 0; k < terms; k += kDepth) {
    stage<kSide * kColumns>(stages.b, b, k);
    __syncthreads();
    accumulate(c, a, int(k), stages.b, int(smaller(kDepth, terms - k)));
    __syncthreads();  // before anyone writes the panel or the square again
  }
}

// Puts a tile there as the operand whose i is the tile's row and whose k its column.
__device__ inline void put_square(Square& to, const Tile<kSquare>& tile) {
#pragma unroll
  for (int c = 0; c < kSquare; ++c)
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) to.p[first_column() + kSide * c][first_row() + r] = tile.x[r][c];
}

}  // namespace flexformer::cuda
