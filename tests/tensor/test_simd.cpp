// The vector functions against double precision: over the whole range of floats, at their special values, and lane by
// lane independent of what the neighbours are.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensor/random.h"
#include "tensor/simd.h"

namespace flexformer {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  Vec (*ours)(Vec);
  double (*exact)(double);
  double ulps;      // largest error in units in the last place of the exact result ..
  double absolute;  // .. or this, whichever is larger
  float low, high;  // where it is used
};

const Function functions[] = {
    {"exp", exp, std::exp, 1.0, 0, -inf, inf},    {"log", log, std::log, 1.0, 0, 0, inf},
    {"log1p", log1p, std::log1p, 2.0, 0, 0, inf}, {"tanh", tanh, std::tanh, 2.0, 0, -inf, inf},
    {"sin", sin, std::sin, 0, 1e-7, -inf, inf},   {"cos", cos, std::cos, 0, 1e-7, -inf, inf},
    {"sqrt", sqrt, std::sqrt, 0.5, 0, 0, inf},
};

float at(Vec (*f)(Vec), float x) { return f(splat(x))[kLanes - 1]; }

// Spacing of floats around y.
double ulp(double y) {
  const float size = std::min(float(std::fabs(y)), std::numeric_limits<float>::max());
  return double(std::nextafter(size, inf)) == double(inf) ? std::ldexp(1.0, 104)
                                                          : double(std::nextafter(size, inf)) - double(size);
}

// 0 if ours is right; NaN must be NaN and infinity the same infinity.
double error(const Function& f, float x) {
  const double exact = f.exact(double(x)), ours = double(at(f.ours, x));
  if (std::isnan(exact)) return std::isnan(ours) ? 0 : 1e9;
  if (double(float(exact)) == ours) return 0;
  const double difference = std::fabs(ours - exact);
  if (!std::isfinite(ours) || std::isinf(exact)) return 1e9;
  return difference / std::max(f.ulps * ulp(exact), f.absolute);
}

float from_bits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

TEST_CASE("vector functions keep their error bounds over the whole range of floats") {
  for (const Function& f : functions) {
    double worst = 0;
    float where = 0;
    const auto probe = [&](float x) {
      if (!(x >= f.low && x <= f.high)) return;
      const double found = error(f, x);
      if (found > worst) worst = found, where = x;
    };
    // Every 2048th float (a prime step, so that all mantissas occur), then closer where the functions live.
    for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 2053) probe(from_bits(std::uint32_t(bits)));
    for (int i = -400000; i <= 400000; ++i) probe(float(i) * 2.7e-4f);
    for (int i = 0; i <= 200000; ++i) probe(1 + float(i - 100000) * 1e-6f);
    CHECK_MESSAGE(worst <= 1.0, f.name, " is wrong by ", worst, " times its bound at ", where);
  }
}

TEST_CASE("vector functions at infinity, zero, NaN and beyond the range") {
  CHECK_EQ(at(exp, inf), inf);
  CHECK_EQ(at(exp, -inf), 0);
  CHECK_EQ(at(exp, 0), 1);
  CHECK_EQ(at(exp, 1e30f), inf);
  CHECK_EQ(at(exp, -1e30f), 0);
  CHECK_EQ(at(exp, 88.73f), inf);
  CHECK_EQ(at(exp, -103.2f), 0x1p-149f);  // the smallest float there is
  CHECK_EQ(at(log, 0), -inf);
  CHECK_EQ(at(log, -0.0f), -inf);
  CHECK_EQ(at(log, inf), inf);
  CHECK_EQ(at(log, 1), 0);
  CHECK(std::isnan(at(log, -1)));
  CHECK(std::isnan(at(log, -inf)));
  CHECK_EQ(at(log1p, 0), 0);
  CHECK_EQ(at(log1p, inf), inf);
  CHECK_EQ(at(log1p, 1e-30f), 1e-30f);
  CHECK_EQ(at(tanh, inf), 1);
  CHECK_EQ(at(tanh, -inf), -1);
  CHECK_EQ(at(tanh, 1e-30f), 1e-30f);
  CHECK(std::isnan(at(sin, inf)));
  CHECK(std::isnan(at(cos, -inf)));
  CHECK_EQ(at(cos, 0), 1);
  for (const Function& f : functions) CHECK_MESSAGE(std::isnan(at(f.ours, nan)), f.name, " of NaN is not NaN");
}

TEST_CASE("a lane does not depend on its neighbours") {
  const float values[] = {0.3f, -2, 1e4f, 2e4f, -3e8f, 1e38f, 1e-40f, inf, -inf, nan, 700, -700, 0, -0.0f};
  constexpr int count = int(std::size(values));
  for (const Function& f : functions)
    for (int shift = 0; shift < count; ++shift) {
      Vec x{};
      for (int lane = 0; lane < kLanes; ++lane) x[lane] = values[(lane * (1 + shift % 3) + shift) % count];
      const Vec together = f.ours(x);
      for (int lane = 0; lane < kLanes; ++lane) {
        const float alone = at(f.ours, x[lane]), here = together[lane];
        CHECK_MESSAGE((std::memcmp(&alone, &here, 4) == 0 || (std::isnan(alone) && std::isnan(here))), f.name, " of ",
                      x[lane], " is ", here, " in company, ", alone, " alone");
      }
    }
}

TEST_CASE("partial loads and stores touch exactly their elements") {
  for (Index n = 0; n < kLanes; ++n) {
    std::vector<float> from(std::size_t(n), 7.0f), to(std::size_t(kLanes), -1.0f);
    const Vec v = load_part(from.data(), n);
    for (int i = 0; i < kLanes; ++i) CHECK_EQ(v[i], i < n ? 7 : 0);
    store_part(to.data(), v + 1, n);
    for (int i = 0; i < kLanes; ++i) CHECK_EQ(to[std::size_t(i)], i < n ? 8 : -1);
  }
}

TEST_CASE("lanes are summed and compared") {
  Vec v{};
  for (int i = 0; i < kLanes; ++i) v[i] = float(i * i - 3 * i);
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  CHECK_EQ(sum_lanes(v), sum);
  CHECK_EQ(max_lanes(v), v[kLanes - 1]);
  CHECK_EQ(max_lanes(-v), 2);
}

}  // namespace flexformer
