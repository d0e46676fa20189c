// Elementwise kernels of one input, and the choice between two. One thread an element: neighbouring threads read
// neighbouring addresses, which the memory serves together.
#include "cuda/kernel.h"

namespace flexformer::cuda {
namespace {

// Scale and shift have a constant derivative: their op saves no input, and x is null here.
template <class F>
constexpr bool reads_input = !std::is_same_v<F, functors::Scale> && !std::is_same_v<F, functors::Shift>;

template <class F> __global__ void unary_fwd(UnaryFwd k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) k.y[i] = F::f(k.x[i], k.a);
}

template <class F> __global__ void unary_bwd(UnaryBwd k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    float x = 0;
    if constexpr (reads_input<F>) x = k.x[i];
    put(k.dx, i, chain(k.dy[i], F::df(x, k.a)));
  }
}

__global__ void where_fwd(WhereFwd k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const float* taken = k.condition[i] ? k.a : k.b;
    k.y[i] = taken ? taken[i] : k.value;
  }
}

__global__ void where_bwd(WhereBwd k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const float dy = k.dy[i];
    if (k.da) put(k.da, i, k.condition[i] ? dy : 0.0f);
    if (k.db) put(k.db, i, k.condition[i] ? 0.0f : dy);
  }
}

}  // namespace

void run(const UnaryFwd& k) {
  with_functor(k.op, [&](auto f) { launch_kernel(for_elements(k.n), unary_fwd<decltype(f)>, k); });
}
void run(const UnaryBwd& k) {
  if (!k.dx) return;
  with_functor(k.op, [&](auto f) { launch_kernel(for_elements(k.n), unary_bwd<decltype(f)>, k); });
}
void run(const WhereFwd& k) { launch_kernel(for_elements(k.n), where_fwd, k); }
void run(const WhereBwd& k) {
  if (k.da || k.db) launch_kernel(for_elements(k.n), where_bwd, k);
}

}  // namespace flexformer::cuda
