// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): random numbers as a pure
// function of (seed, stream, position). No state is carried from one number to the next, so every device and every
// number of threads draws the same numbers, and a run is resumed by remembering one counter.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#include "tensor/host_device.h"

namespace flexformer {

// The key of one sequence of random numbers: `seed` is the run's, `stream` counts the sequences drawn from it.
struct RandomKey {
  std::uint64_t seed = 0, stream = 0;
};

struct Philox {
  std::uint32_t v[4];

  HD static Philox at(RandomKey key, std::uint64_t position) {
    Philox x{{std::uint32_t(position), std::uint32_t(position >> 32), std::uint32_t(key.stream),
              std::uint32_t(key.stream >> 32)}};
    std::uint32_t k0 = std::uint32_t(key.seed), k1 = std::uint32_t(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * x.v[0], p1 = std::uint64_t(0xCD9E8D57u) * x.v[2];
      x = {{std::uint32_t(p1 >> 32) ^ x.v[1] ^ k0, std::uint32_t(p1), std::uint32_t(p0 >> 32) ^ x.v[3] ^ k1,
            std::uint32_t(p0)}};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return x;
  }
};

// Uniform in [0, 1): 24 bits, so that every value is exact in a float.
HD inline float to_uniform(std::uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// The i-th number of a sequence, i = 0, 1, 2 ...: one Philox block serves four neighbours.
HD inline float uniform_at(RandomKey key, std::uint64_t i) { return to_uniform(Philox::at(key, i / 4).v[i % 4]); }

// Standard normal by Box and Muller: numbers 2m and 2m+1 share a radius.
HD inline float normal_at(RandomKey key, std::uint64_t i) {
  const Philox x = Philox::at(key, i / 4);
  const int pair = int(i % 4) / 2 * 2;
  const double radius = std::sqrt(-2.0 * std::log((double(x.v[pair]) + 0.5) * 0x1p-32));
  const double angle = 6.283185307179586 * (double(x.v[pair + 1]) * 0x1p-32);
  return float(radius * (i % 2 ? std::sin(angle) : std::cos(angle)));
}

// A run's source of sequences: each call of next() opens a new one. {seed, stream} is all there is to save.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0, std::uint64_t stream = 0) : key_{seed, stream} {}
  RandomKey next() { return {key_.seed, key_.stream++}; }
  RandomKey state() const { return key_; }
  void set_state(RandomKey state) { key_ = state; }

  // One whole number in [0, n), n >= 1: 64 random bits, so the bias is below 2^-32 for any n that fits a file.
  std::uint64_t below(std::uint64_t n) {
    const Philox x = Philox::at(next(), 0);
    return ((std::uint64_t(x.v[0]) << 32) | x.v[1]) % n;
  }
  float uniform() { return uniform_at(next(), 0); }

 private:
  RandomKey key_;
};

}  // namespace flexformer
