// Elementwise kernels of one input, and the choice between two. One thread an element: neighbouring threads read
// neighbouring addresses, which the memory serves together.
#include "cuda/kernel.h"
#include "tensor/functors.h"

namespace flexformer::cuda {
namespace {

// Scale and shift have a constant derivative: their op saves no input, and x is null here.
template <class F>
constexpr bool reads_input = !std::is_same_v<F, functors::Scale> && !std::is_same_v<F, functors::Shift>;

template <class F, class T> __global__ void unary_fwd(UnaryFwd k) {
  const T* x = k.x.as<T>();
  T* y = k.y.as<T>();
  for (Index i = thread_number(); i < k.n; i += thread_count()) y[i] = T(F::f(float(x[i]), k.a));
}

template <class F, class T> __global__ void unary_bwd(UnaryBwd k) {
  const T* dy = k.dy.as<T>();
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    float x = 0;
    if constexpr (reads_input<F>) x = float(k.x.as<T>()[i]);
    put(k.dx, i, chain(float(dy[i]), F::df(x, k.a)));
  }
}

__global__ void where_fwd(WhereFwd k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const ValuesIn& taken = k.condition[i] ? k.a : k.b;
    write(k.y, i, taken.p ? read(taken, i) : k.value);
  }
}

__global__ void where_bwd(WhereBwd k) {
  for (Index i = thread_number(); i < k.n; i += thread_count()) {
    const float dy = read(k.dy, i);
    if (k.da) put(k.da, i, k.condition[i] ? dy : 0.0f);
    if (k.db) put(k.db, i, k.condition[i] ? 0.0f : dy);
  }
}

}  // namespace

void run(const UnaryFwd& k) {
  with_functor(k.op, [&](auto f) {
    with_type(k.x.dtype, [&](auto t) { launch_kernel(for_elements(k.n), unary_fwd<decltype(f), decltype(t)>, k); });
  });
}
void run(const UnaryBwd& k) {
  if (!k.dx) return;
  with_functor(k.op, [&](auto f) {
    with_type(k.dy.dtype, [&](auto t) { launch_kernel(for_elements(k.n), unary_bwd<decltype(f), decltype(t)>, k); });
  });
}
void run(const WhereFwd& k) { launch_kernel(for_elements(k.n), where_fwd, k); }
void run(const WhereBwd& k) {
  if (k.da || k.db) launch_kernel(for_elements(k.n), where_bwd, k);
}

}  // namespace flexformer::cuda
