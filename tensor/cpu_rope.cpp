// Rotary positions. Angles grow with the position, so they are reduced to one turn in double precision; sines and
// cosines of a token's angles are computed once for the whole batch.
#include <cmath>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/simd.h"

namespace flexformer::cpu {
namespace {

constexpr double kTurn = 6.283185307179586476925;

void turn(const GradOut& y, Index at, const float* x, const float* cosine, const float* sine, Index pairs) {
  const auto put = [&](Index i, float value) { y.p[at + i] = y.add ? y.p[at + i] + value : value; };
  for (Index c = 0; c < pairs; ++c) {
    const float even = x[at + 2 * c], odd = x[at + 2 * c + 1];
    put(2 * c, even * cosine[c] - odd * sine[c]);
    put(2 * c + 1, even * sine[c] + odd * cosine[c]);
  }
}

}  // namespace

void run(const Rope& k) {
  if (!k.y) return;
  const Index pairs = k.d / 2, turning = k.H + k.kv_heads, heads = turning + k.kv_heads;
  std::vector<double> speed(static_cast<std::size_t>(pairs));  // turns per position
  for (Index c = 0; c < pairs; ++c)
    speed[std::size_t(c)] = std::pow(double(k.base), -2.0 * double(c) / double(k.d)) / kTurn;
  Tensor table = Tensor::empty({threads(), 2 * pairs});
  parallel_for(k.T, grain_for(2 * k.B * heads * k.d), [&](Index begin, Index end) {
    float *cosine = table.data() + thread_index() * 2 * pairs, *sine = cosine + pairs;
    for (Index t = begin; t < end; ++t) {
      for (Index c = 0; c < pairs; ++c) {
        const double turns = double(k.position + t) * speed[std::size_t(c)];
        sine[c] = float((turns - std::floor(turns + 0.5)) * kTurn);
      }
      for (Index c = 0; c < pairs; c += kLanes) {
        Vec s, co;
        sincos(load_up_to(sine + c, pairs - c), s, co);
        store_up_to(cosine + c, co, pairs - c);
        store_up_to(sine + c, k.sign * s, pairs - c);
      }
      for (Index b = 0; b < k.B; ++b) {
        const Index row = (b * k.T + t) * heads * k.d;
        for (Index head = 0; head < turning; ++head) turn(k.y, row + head * k.d, k.x, cosine, sine, pairs);
        for (Index i = row + turning * k.d; i < row + heads * k.d; ++i) k.y.p[i] = k.y.add ? k.y.p[i] + k.x[i] : k.x[i];
      }
    }
  });
}

}  // namespace flexformer::cpu
