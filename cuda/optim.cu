// Optimiser steps, elementwise over a parameter, and the norm that clipping needs.
#include <algorithm>

#include "cuda/sums.h"

namespace flexformer::cuda {
namespace {

__global__ void adam_step(AdamStep k) {
  const float scale = *k.scale;
  const StepNumbers now = *k.numbers;
  if (std::isnan(scale)) return;
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const float p = k.p[i], g = scale * k.g[i] + k.l2 * p;
    const float first = k.beta1 * k.m[i] + (1 - k.beta1) * g;
    const float second = k.beta2 * k.v[i] + (1 - k.beta2) * g * g;
    const float step = first / (std::sqrt(second) / std::sqrt(now.correction2) + k.eps);
    k.m[i] = first;
    k.v[i] = second;
    k.p[i] = p * (1 - now.lr * k.decay) - now.lr / now.correction1 * step;
  }
}

__global__ void sgd_step(SgdStep k) {
  const float scale = *k.scale, lr = k.numbers->lr;
  if (std::isnan(scale)) return;
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const float p = k.p[i], g = scale * k.g[i] + k.l2 * p;
    float velocity = g;
    if (k.m) {
      velocity += k.momentum * k.m[i];
      k.m[i] = velocity;
    }
    k.p[i] = p - lr * (k.nesterov ? g + k.momentum * velocity : velocity);
  }
}

constexpr Index kPart = 16384;

// A block adds up the squares of kPart elements.
__global__ void square_parts(double* partial, const float* x, Index n) {
  for (Index item = blockIdx.x; item * kPart < n; item += gridDim.x) {
    const Index end = (item + 1) * kPart < n ? (item + 1) * kPart : n;
    double sum = 0;
    for (Index i = item * kPart + threadIdx.x; i < end; i += blockDim.x) sum += double(x[i]) * double(x[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[item] = sum;
  }
}

// The sum of n numbers, for every thread of one block.
__device__ double sum_of(const double* x, Index n) {
  double sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
  return block_sum(sum);
}

__global__ void add_parts(double* total, const double* partial, Index n) {
  const double sum = sum_of(partial, n);
  if (threadIdx.x == 0) *total = sum;
}

__global__ void clip_scale(ClipScale k) {
  const double sum = sum_of(k.squares, k.count);
  if (threadIdx.x == 0) *k.scale = k.of(sum);
}

}  // namespace

void run(const AdamStep& k) { launch_kernel(for_elements(k.n), adam_step, k); }
void run(const SgdStep& k) { launch_kernel(for_elements(k.n), sgd_step, k); }
void run(const ClipScale& k) { launch_kernel({1, kThreads}, clip_scale, k); }

// The parts of all arrays share their memory: they follow each other in the stream.
void run(const SquaredNorms& k) {
  const auto parts_of = [](Index n) { return (n + kPart - 1) / kPart; };
  Index most = 0;
  for (Index a = 0; a < k.count; ++a) most = std::max(most, parts_of(k.arrays[a].n));
  Doubles partial(most);
  for (Index a = 0; a < k.count; ++a) {
    const auto [x, n] = k.arrays[a];
    launch_kernel({blocks_for(parts_of(n)), kThreads}, square_parts, partial.data(), x, n);
    launch_kernel({1, kThreads}, add_parts, k.sums + a, partial.data(), parts_of(n));
  }
}

}  // namespace flexformer::cuda
