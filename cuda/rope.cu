// Rotary positions, a block for each position in time. Angles grow with the position, so they are reduced to one turn
// in double precision; a block makes the sines and cosines of its position once, for all heads of the whole batch.
#include <cmath>

#include "cuda/kernel.h"

namespace flexformer::cuda {
namespace {

constexpr double kTurn = 6.283185307179586476925;

__global__ void rope(Rope k) {
  DYN_SHARED(float, cosine);  // [pairs], then the sines [pairs]
  const Index pairs = k.d / 2, turning = (k.H + k.kv_heads) * pairs, row = turning + k.kv_heads * pairs;
  float* sine = cosine + pairs;
  for (Index t = blockIdx.x; t < k.T; t += gridDim.x) {
    for (Index c = threadIdx.x; c < pairs; c += blockDim.x) {
      const double turns = double(k.position + t) * (std::pow(double(k.base), -2.0 * double(c) / double(k.d)) / kTurn);
      const float angle = float((turns - std::floor(turns + 0.5)) * kTurn);
      cosine[c] = std::cos(angle);
      sine[c] = k.sign * std::sin(angle);
    }
    __syncthreads();
    // The pairs of q and k come first in a row, then those of v.
    for (Index i = threadIdx.x; i < k.B * row; i += blockDim.x) {
      const Index pair = i % row, at = 2 * ((i / row * k.T + t) * row + pair);
      const float even = read(k.x, at), odd = read(k.x, at + 1);
      const bool turns = pair < turning;
      const float co = turns ? cosine[pair % pairs] : 1.0f, si = turns ? sine[pair % pairs] : 0.0f;
      put(k.y, at, even * co - odd * si);
      put(k.y, at + 1, even * si + odd * co);
    }
    __syncthreads();  // before the next position's sines are written
  }
}

}  // namespace

void run(const Rope& k) {
  if (!k.y || k.d == 0) return;
  launch_kernel({blocks_for(k.T), kThreads, std::size_t(k.d) * sizeof(float)}, rope, k);
}

}  // namespace flexformer::cuda
