// Elementwise kernels of one input, and the choice between two.
#include "tensor/cpu_loops.h"
#include "tensor/functors.h"

namespace flexformer::cpu {
namespace {

// Scale and shift have a constant derivative: their op saves no input, and x is null here.
template <class F>
constexpr bool reads_input = !std::is_same_v<F, functors::Scale> && !std::is_same_v<F, functors::Shift>;

constexpr Index kUnaryCost = 4;

Vec load_or(const float* p, float value, Index i, Index m) { return p ? load_up_to(p + i, m) : splat(value); }

// The condition's m lanes, -1 where it is not 0.
VecInt load_condition(const std::int32_t* p, Index i, Index m) {
  VecInt c{};
  std::memcpy(&c, p + i, std::size_t(m) * sizeof *p);
  return c != 0;
}

}  // namespace

void run(const UnaryFwd& k) {
  with_functor(k.op, [&](auto f) {
    using F = decltype(f);
    parallel_lanes(k.n, kUnaryCost,
                   [k](Index i, Index m) { store_up_to(k.y + i, F::f(load_up_to(k.x + i, m), k.a), m); });
  });
}

void run(const UnaryBwd& k) {
  if (!k.dx) return;
  with_functor(k.op, [&](auto f) {
    using F = decltype(f);
    parallel_lanes(k.n, kUnaryCost, [k](Index i, Index m) {
      Vec x{};
      if constexpr (reads_input<F>) x = load_up_to(k.x + i, m);
      put(k.dx, i, chain(load_up_to(k.dy + i, m), F::df(x, k.a)), m);
    });
  });
}

void run(const WhereFwd& k) {
  parallel_lanes(k.n, 2, [k](Index i, Index m) {
    const Vec a = load_or(k.a, k.value, i, m), b = load_or(k.b, k.value, i, m);
    store_up_to(k.y + i, select(load_condition(k.condition, i, m), a, b), m);
  });
}

void run(const WhereBwd& k) {
  parallel_lanes(k.n, 2, [k](Index i, Index m) {
    const Vec dy = load_up_to(k.dy + i, m);
    const VecInt taken = load_condition(k.condition, i, m);
    if (k.da) put(k.da, i, select(taken, dy, Vec{}), m);
    if (k.db) put(k.db, i, select(taken, Vec{}, dy), m);
  });
}

}  // namespace flexformer::cpu
