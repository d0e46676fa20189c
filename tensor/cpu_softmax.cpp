// Softmax, log-softmax and log-sum-exp over the middle axis of [outer, n, inner], each written twice: along contiguous
// rows (inner = 1), and for kLanes neighbouring columns at a time. A NaN makes its whole row NaN: it reaches the sum of
// exponentials even where the maximum has overlooked it.
#include "tensor/cpu_softmax.h"

namespace flexformer::cpu {
namespace {

// row(o) for rows, column(offset, j, m) for groups of columns; offset is that of element (o, 0, j).
template <class Row, class Column>
void over_rows(Index outer, Index n, Index inner, Index cost, const Row& row, const Column& column) {
  const Index groups = inner == 1 ? 1 : (inner + kLanes - 1) / kLanes;
  parallel_for(outer * groups, grain_for(n * std::min<Index>(inner, kLanes) * cost), [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index o = item / groups, j = item % groups * kLanes;
      if (inner == 1)
        row(o);
      else
        column(o * n * inner + j, o * inner + j, std::min<Index>(kLanes, inner - j));
    }
  });
}

void softmax_row(const SoftmaxFwd& k, Index o) {
  const float* x = k.x + o * k.n;
  float* y = k.y + o * k.n;
  const float shift = shift_for(row_max(x, k.n));
  const double sum = sum_exp(k.log ? nullptr : y, x, k.n, shift);
  const float log_sum = sum == 0 ? 0.0f : float(std::log(sum)), factor = sum == 0 ? 0.0f : float(1 / sum);
  for_lanes(k.n, [&](Index i, Index m) {
    if (k.log)
      store_up_to(y + i, (load_up_to(x + i, m) - shift) - log_sum, m);
    else
      store_up_to(y + i, load_up_to(y + i, m) * factor, m);
  });
}

struct ColumnSums {
  Vec shift, sum;  // of exp(x - shift)
};
ColumnSums column_sums(const float* x, Index n, Index inner, Index m) {
  Vec top = splat(-HUGE_VALF);
  DoubleSum sum;
  for (Index i = 0; i < n; ++i) top = max(load_up_to(x + i * inner, m), top);
  const Vec shift = select(abs(top) == HUGE_VALF, Vec{}, top);
  for (Index i = 0; i < n; ++i) sum.add(exp(load_up_to(x + i * inner, m) - shift));
  return {shift, sum.lanes()};
}

void softmax_columns(const SoftmaxFwd& k, Index at, Index m) {
  const float* x = k.x + at;
  float* y = k.y + at;
  const auto [shift, sum] = column_sums(x, k.n, k.inner, m);
  const VecInt nothing = sum == 0.0f;
  const Vec log_sum = select(nothing, Vec{}, log(sum)), factor = select(nothing, Vec{}, 1.0f / sum);
  for (Index i = 0; i < k.n; ++i) {
    const Vec v = load_up_to(x + i * k.inner, m) - shift;
    store_up_to(y + i * k.inner, k.log ? v - log_sum : exp(v) * factor, m);
  }
}

// Softmax: dx = y (dy - sum dy y). Log-softmax: dx = dy - exp(y) sum dy, and 0 in a row that is -infinity throughout.
void softmax_row_bwd(const SoftmaxBwd& k, Index o) {
  const float *y = k.y + o * k.n, *dy = k.dy + o * k.n;
  constexpr Index block = 4096;  // no lane adds up more floats than this leaves it
  double total = 0;
  for (Index from = 0; from < k.n; from += block) {
    Vec part{};
    for_lanes(std::min(block, k.n - from), [&](Index i, Index m) {
      const Vec d = load_up_to(dy + from + i, m);
      part += k.log ? d : d * load_up_to(y + from + i, m);
    });
    total += double(sum_lanes(part));
  }
  const float sum = float(total);
  const bool masked = k.log && sum_exp(nullptr, y, k.n, 0.0f) == 0;
  for_lanes(k.n, [&](Index i, Index m) {
    const Vec d = load_up_to(dy + i, m), v = load_up_to(y + i, m);
    put(k.dx, o * k.n + i, masked ? Vec{} : k.log ? d - exp(v) * sum : v * (d - sum), m);
  });
}

void softmax_columns_bwd(const SoftmaxBwd& k, Index at, Index m) {
  DoubleSum total;
  Vec mass{};
  for (Index i = 0; i < k.n; ++i) {
    const Vec d = load_up_to(k.dy + at + i * k.inner, m), v = load_up_to(k.y + at + i * k.inner, m);
    total.add(k.log ? d : d * v);
    if (k.log) mass += exp(v);
  }
  const Vec sum = total.lanes();
  for (Index i = 0; i < k.n; ++i) {
    const Vec d = load_up_to(k.dy + at + i * k.inner, m), v = load_up_to(k.y + at + i * k.inner, m);
    put(k.dx, at + i * k.inner, k.log ? select(mass == 0.0f, Vec{}, d - exp(v) * sum) : v * (d - sum), m);
  }
}

}  // namespace

void run(const SoftmaxFwd& k) {
  over_rows(
      k.outer, k.n, k.inner, 24, [&](Index o) { softmax_row(k, o); },
      [&](Index at, Index, Index m) { softmax_columns(k, at, m); });
}

void run(const SoftmaxBwd& k) {
  if (!k.dx) return;
  over_rows(
      k.outer, k.n, k.inner, k.log ? 24 : 4, [&](Index o) { softmax_row_bwd(k, o); },
      [&](Index at, Index, Index m) { softmax_columns_bwd(k, at, m); });
}

void run(const LogSumExpFwd& k) {
  over_rows(
      k.outer, k.n, k.inner, 16,
      [&](Index o) {
        const float shift = shift_for(row_max(k.x + o * k.n, k.n));
        k.y[o] = float(shift + std::log(sum_exp(nullptr, k.x + o * k.n, k.n, shift)));
      },
      [&](Index at, Index out, Index m) {
        const auto [shift, sum] = column_sums(k.x + at, k.n, k.inner, m);
        store_up_to(k.y + out, shift + log(sum), m);
      });
}

void run(const LogSumExpBwd& k) {
  if (!k.dx) return;
  over_rows(
      k.outer, k.n, k.inner, 16,
      [&](Index o) {
        const float* x = k.x + o * k.n;
        const bool masked = k.y[o] == -HUGE_VALF;
        const auto [shift, factor] = softmax_of(x, k.n, k.y[o]);
        for_lanes(k.n, [&, shift = shift, factor = factor](Index i, Index m) {
          put(k.dx, o * k.n + i, masked ? Vec{} : k.dy[o] * (exp(load_up_to(x + i, m) - shift) * factor), m);
        });
      },
      [&](Index at, Index out, Index m) {
        const auto [shift, sum] = column_sums(k.x + at, k.n, k.inner, m);
        const Vec slope = select(sum == 0.0f, Vec{}, load_up_to(k.dy + out, m) / sum);
        for (Index i = 0; i < k.n; ++i)
          put(k.dx, at + i * k.inner, slope * exp(load_up_to(k.x + at + i * k.inner, m) - shift), m);
      });
}

}  // namespace flexformer::cpu
