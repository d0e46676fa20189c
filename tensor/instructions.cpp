#include "tensor/instructions.h"

#include <algorithm>
#include <chrono>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace flexformer {
namespace {

#if defined(__AVX512BF16__)
constexpr int kSums = 16, kTimes = 64;  // independent sums, which hide the latency, and terms of each

// Seconds for kTimes x kSums instructions of a kind; step(sum) is one. The empty asm keeps the sums in registers and
// the loop as it is.
template <class Step> double seconds_of(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  __m512 sum[kSums] = {};
  for (int i = 0; i < kTimes; ++i)
#pragma GCC unroll 16
    for (__m512& s : sum) {
      s = step(s);
      asm volatile("" : "+v"(s));
    }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool pairs_are_faster() {
  const __m512 x = _mm512_set1_ps(0.5f);
  const auto pairs = [&](__m512 s) { return _mm512_dpbf16_ps(s, (__m512bh)x, (__m512bh)x); };
  const auto floats = [&](__m512 s) { return _mm512_fmadd_ps(x, x, s); };
  double least[2] = {1, 1};  // in turns, the least of each: whatever else the machine does then falls out
  for (int round = 0; round < 40; ++round) {
    least[0] = std::min(least[0], seconds_of(pairs));
    least[1] = std::min(least[1], seconds_of(floats));
  }
  // A pair does the work of two. Between 1 (AMD) and 4 (Intel) nothing is known.
  return least[0] < 2 * least[1];
}
#else
bool pairs_are_faster() { return false; }
#endif

bool& pairs() {
  static bool on = pairs_are_faster();
  return on;
}

}  // namespace

bool multiplies_bf16_pairs() { return pairs(); }
void multiply_bf16_pairs([[maybe_unused]] bool on) {
#if defined(__AVX512BF16__)
  pairs() = on;
#endif
}

}  // namespace flexformer
