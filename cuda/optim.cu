// Optimiser steps, elementwise over a parameter, and the squared norm that clipping needs.
#include "cuda/sums.h"
#include "tensor/device_memory.h"

namespace flexformer::cuda {
namespace {

__global__ void adam_step(AdamStep k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const float p = k.p[i], g = k.scale * k.g[i] + k.l2 * p;
    const float first = k.beta1 * k.m[i] + (1 - k.beta1) * g;
    const float second = k.beta2 * k.v[i] + (1 - k.beta2) * g * g;
    const float step = first / (std::sqrt(second) / std::sqrt(k.correction2) + k.eps);
    k.m[i] = first;
    k.v[i] = second;
    k.p[i] = p * (1 - k.lr * k.decay) - k.lr / k.correction1 * step;
  }
}

__global__ void sgd_step(SgdStep k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const float p = k.p[i], g = k.scale * k.g[i] + k.l2 * p;
    float velocity = g;
    if (k.m) {
      velocity += k.momentum * k.m[i];
      k.m[i] = velocity;
    }
    k.p[i] = p - k.lr * (k.nesterov ? g + k.momentum * velocity : velocity);
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

__global__ void add_parts(double* total, const double* partial, Index n) {
  double sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void run(const AdamStep& k) { launch_kernel(for_elements(k.n), adam_step, k); }
void run(const SgdStep& k) { launch_kernel(for_elements(k.n), sgd_step, k); }

// The sum is wanted on the host, so this waits for the device.
void run(const SquaredNorm& k) {
  const Index parts = (k.n + kPart - 1) / kPart;
  Doubles sums(1 + parts);
  launch_kernel({blocks_for(parts), kThreads}, square_parts, sums.data() + 1, k.x, k.n);
  launch_kernel({1, kThreads}, add_parts, sums.data(), sums.data() + 1, parts);
  device::copy_to_host(k.sum, sums.data(), sizeof(double));
}

}  // namespace flexformer::cuda
