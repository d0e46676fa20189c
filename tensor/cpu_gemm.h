// Products of small matrices that lie in cache: what the attention kernels are made of. The large product is the Gemm
// kernel of kernels.h.
#pragma once
#include "tensor/shape.h"

namespace flexformer::cpu {

// A matrix seen through strides: element (i,k) is p[i*row + k*col].
struct Strided {
  const float* p;
  Index row, col;
};

// c (+)= a b on the calling thread, nothing packed: c [M,N] with rows c_row apart, a [M,K] with any strides, b [K,N]
// with contiguous rows b_row apart. Every element of c is summed over k in order, whatever M and N are.
void small_product(float* c, Index c_row, Strided a, const float* b, Index b_row, Index M, Index N, Index K, bool add);

// y [cols, rows] = x^T for x [rows, cols]; rows of y are y_row apart, rows of x x_row apart.
void transpose_tile(float* y, Index y_row, const float* x, Index x_row, Index rows, Index cols);

}  // namespace flexformer::cpu
