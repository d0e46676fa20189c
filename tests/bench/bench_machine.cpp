#include "tests/bench/bench_machine.h"

#include <utility>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "tensor/parallel.h"
#include "tensor/simd.h"
#include "tests/bench/bench_measure.h"

namespace flexformer::bench {
namespace {

// Independent sums, one register each: more than latency times instructions per cycle (4 x 2, or 6 x 2 for bfloat16),
// so that no instruction waits for another.
constexpr int sums = kLanes == 16 ? 16 : 12;
constexpr Index iterations = 100000;
constexpr Index floats = Index(1) << 25;  // 128 MiB per array: larger than caches

// For the compiler, something unknown that reads x: x must be computed.
void use(float x) { asm volatile("" : : "m"(x)); }

// sum[i] = step(sum[i]) over and over, written out for each i. The empty asm keeps the loop as it is.
template <class Step, int... i> float repeat(const Step& step, std::integer_sequence<int, i...>) {
  Vec sum[] = {splat(float(i))...};
  for (Index k = 0; k < iterations; ++k) {
    ((sum[i] = step(sum[i])), ...);
    asm volatile("");
  }
  return sum_lanes((sum[i] + ...));
}
template <class Step> void repeat_on_all_threads(const Step& step) {
  parallel_for(threads(), 1, [&](Index, Index) { use(repeat(step, std::make_integer_sequence<int, sums>())); });
}

double operations(int per_step) { return double(threads()) * iterations * sums * per_step; }

// Calls body(begin, end) for 1 MiB pieces of the arrays.
template <class Body> void stream(const Body& body) { parallel_for(floats, Index(1) << 18, body); }

}  // namespace

double multiply_add_loop() {
  repeat_on_all_threads([](Vec s) { return s * 0.999f + 0.001f; });
  return operations(2 * kLanes);
}

double bf16_dot_loop() {
#if defined(__AVX512BF16__)
  const auto x = (__m512bh)_mm512_set1_epi32(0x3F003F00);  // pairs of 0.5
  repeat_on_all_threads([x](Vec s) { return (Vec)_mm512_dpbf16_ps((__m512)s, x, x); });
  return operations(4 * kLanes);
#else
  return 0;
#endif
}

double read_loop() {
  static const Tensor ones = Tensor::full({floats}, 1);
  stream([p = ones.data()](Index begin, Index end) {
    Vec sum[4] = {};
    for (Index i = begin; i < end; i += 4 * kLanes)
      for (int j = 0; j < 4; ++j) sum[j] += load(p + i + j * kLanes);
    use(sum_lanes(sum[0] + sum[1] + sum[2] + sum[3]));
  });
  return 4.0 * floats;
}

Json machine(Console& console) {
  const auto peak = [](double (*loop)()) { return 1e-9 * loop() / medians_in_turns(9, 0.02, {Call(loop)})[0]; };
  const double f32 = peak(multiply_add_loop), bf16 = peak(bf16_dot_loop);

  Tensor a = Tensor::zeros({floats});
  const Tensor b = Tensor::full({floats}, 1), c = Tensor::full({floats}, 2);
  float* y = a.data();
  const float *p = b.data(), *q = c.data();
  const auto triad = [&](Index begin, Index end) {
    for (Index i = begin; i < end; i += kLanes) store(y + i, load(p + i) + 3.0f * load(q + i));
  };
  const auto seconds = medians_in_turns(5, 0, {[] { read_loop(); }, [&] { stream(triad); }});
  const double read_rate = 4e-9 * floats / seconds[0], triad_rate = 12e-9 * floats / seconds[1];

  console.say("\nthis machine, vectors of " + std::to_string(kLanes) + " floats");
  console.say("  multiply-add peak" + cell(f32, 1, 12) + " GFLOP/s");
  if (bf16 > 0) console.say("  bfloat16 dot peak" + cell(bf16, 1, 12) + " GFLOP/s");
  console.say("  memory, read     " + cell(read_rate, 1, 12) + " GB/s");
  console.say("  memory, a = b+3c " + cell(triad_rate, 1, 12) + " GB/s (12 bytes an element)");
  return {{"lanes", kLanes},
          {"f32_gflops", f32},
          {"bf16_gflops", bf16},
          {"read_gb_per_second", read_rate},
          {"triad_gb_per_second", triad_rate}};
}

}  // namespace flexformer::bench
