// Dropout and random fills. Numbers are a function of (key, position) alone (random.h), so threads need nothing from
// each other and the backward pass of dropout draws the same mask again. One Philox block serves four neighbours.
#include <cmath>

#include "cuda/kernel.h"

namespace flexformer::cuda {
namespace {

// body(i, u) for every element i < n of a grid-stride loop over groups of four; u is the i-th uniform number.
template <class Body> __device__ void with_uniforms(Index n, RandomKey key, Body body) {
  for (Index group = thread_number(); group < (n + 3) / 4; group += thread_count()) {
    const Philox x = Philox::at(key, std::uint64_t(group));
    for (int lane = 0; lane < 4 && 4 * group + lane < n; ++lane) body(4 * group + lane, to_uniform(x.v[lane]));
  }
}

__global__ void dropout(Dropout k, float factor) {
  with_uniforms(k.n, k.mask_key(), [&](Index i, float u) { put(k.y, i, u < k.p ? 0.0f : read(k.x, i) * factor); });
}

// Rounding may reach `high`, which the range leaves out; `below_high` is the float before it.
__global__ void fill_uniform(FillUniform k, float below_high) {
  with_uniforms(k.n, k.key, [&](Index i, float u) {
    const float y = k.low + (k.high - k.low) * u;
    k.y[i] = y < k.high ? y : below_high;
  });
}

__global__ void fill_normal(FillNormal k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) k.y[i] = k.scale * normal_at(k.key, std::uint64_t(i));
}

}  // namespace

void run(const Dropout& k) {
  if (k.y) launch_kernel(for_elements((k.n + 3) / 4), dropout, k, 1.0f / (1.0f - k.p));
}
void run(const FillUniform& k) {
  launch_kernel(for_elements((k.n + 3) / 4), fill_uniform, k, std::max(k.low, std::nextafter(k.high, k.low)));
}
void run(const FillNormal& k) { launch_kernel(for_elements(k.n), fill_normal, k); }

}  // namespace flexformer::cuda
