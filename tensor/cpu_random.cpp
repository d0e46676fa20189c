// Dropout and random fills. Numbers are a function of (key, position) alone, so pieces of work need nothing from each
// other and the backward pass of dropout draws the same mask again.
#include "tensor/cpu_loops.h"

namespace flexformer::cpu {
namespace {

// One batch of random numbers: kGroups vectors of Philox blocks side by side, so that multiplications overlap.
constexpr int kWords = kLanes / 2, kGroups = 4;
constexpr Index kNumbers = 4 * kWords * kGroups;
typedef std::uint64_t Words __attribute__((vector_size(kWords * 8)));  // 32 bits of each word are used

// to_uniform(Philox::at(key, first + l).v[j]) at u[4 l + j]: random.h's steps on vectors.
void uniform_batch(float* u, RandomKey key, std::uint64_t first) {
  const Words low = Words{} + 0xFFFFFFFFu;
  Words x[kGroups][4];
  for (int g = 0; g < kGroups; ++g) {
    for (int l = 0; l < kWords; ++l) x[g][0][l] = first + std::uint64_t(g * kWords + l);
    x[g][1] = x[g][0] >> 32;
    x[g][0] &= low;
    x[g][2] = Words{} + (key.stream & 0xFFFFFFFFu);
    x[g][3] = Words{} + (key.stream >> 32);
  }
  std::uint32_t k0 = std::uint32_t(key.seed), k1 = std::uint32_t(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (auto& v : x) {
      const Words p0 = v[0] * 0xD2511F53u, p1 = v[2] * 0xCD9E8D57u;
      v[0] = (p1 >> 32) ^ v[1] ^ k0;
      v[1] = p1 & low;
      v[2] = (p0 >> 32) ^ v[3] ^ k1;
      v[3] = p0 & low;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int g = 0; g < kGroups; ++g)
    for (int l = 0; l < kWords; ++l)
      for (int j = 0; j < 4; ++j) u[4 * (g * kWords + l) + j] = to_uniform(std::uint32_t(x[g][j][l]));
}

// body(i, m, u) in parallel over n elements; u are the uniform numbers of elements i .. i + m - 1.
template <class Body> void with_uniforms(Index n, RandomKey key, const Body& body) {
  parallel_for(n, 8192, [&](Index begin, Index end) {
    alignas(64) float u[kNumbers];
    for (Index at = begin; at < end; at += kNumbers) {
      uniform_batch(u, key, std::uint64_t(at) / 4);
      for_lanes(std::min(kNumbers, end - at), [&](Index i, Index m) { body(at + i, m, load(u + i)); });
    }
  });
}

}  // namespace

void run(const Dropout& k) {
  if (!k.y) return;
  with_uniforms(k.n, k.mask_key(), [k, factor = 1.0f / (1.0f - k.p)](Index i, Index m, Vec u) {
    put(k.y, i, select(u < k.p, Vec{}, load_up_to(k.x + i, m) * factor), m);
  });
}

void run(const FillUniform& k) {
  with_uniforms(k.n, k.key, [k](Index i, Index m, Vec u) {
    const Vec y = k.low + (k.high - k.low) * u;
    // Rounding may reach `high`, which the range leaves out.
    store_up_to(k.y + i, select(y < k.high, y, splat(std::max(k.low, std::nextafter(k.high, k.low)))), m);
  });
}

void run(const FillNormal& k) {
  parallel_for(k.n, 1024, [k](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) k.y[i] = k.scale * normal_at(k.key, std::uint64_t(i));
  });
}

}  // namespace flexformer::cpu
