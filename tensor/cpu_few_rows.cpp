// Products for which memory is what counts: few rows of x, and a matrix that is read once. Nothing is packed; each
// element of y is one sum over i, so that neither the other rows nor the threads show in it.
#include <cstring>

#include "tensor/cpu_row_dots.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"

namespace flexformer::cpu {
namespace {

constexpr Index kPanel = WeightsIn::kPanel;
constexpr int kPanelVectors = int(kPanel) / kLanes;
// Rows whose sums for a whole panel stay in registers.
constexpr int kPanelRows = kLanes == 16 ? 4 : 1;

// How the numbers of a panel's column lie in its words: kWords times 16 words with kParts numbers each.
struct Bf16Words {
  static constexpr int kWords = 2, kParts = 2;
  static Vec part(VecInt bits, int i) {
    return (Vec)(i == 0 ? bits << 16 : bits & splat_int(std::int32_t(0xFFFF0000)));
  }
};
struct Int8Words {
  static constexpr int kWords = 1, kParts = 4;
  static Vec part(VecInt bits, int i) {
    return __builtin_convertvector((i == kParts - 1 ? bits : bits << (24 - 8 * i)) >> 24, Vec);
  }
};

// y[r] = x_r W^T for one panel of W.
template <class Words, int rows>
void panel_dots(Vec (&y)[rows][kPanelVectors], const float* x, Index x_row, const char* panel, Index I) {
  constexpr int vectors = 16 / kLanes;
  Vec sum[rows][kPanelVectors] = {};
  for (Index i = 0; i < I; ++i)
#pragma GCC unroll 8
    for (int at = 0; at < Words::kWords * vectors; ++at) {
      VecInt bits;
      std::memcpy(&bits, panel, sizeof bits);
      panel += sizeof bits;
#pragma GCC unroll 4
      for (int part = 0; part < Words::kParts; ++part) {
        const Vec w = Words::part(bits, part);
        const int place = (at / vectors * Words::kParts + part) * vectors + at % vectors;
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sum[r][place] += x[r * x_row + i] * w;
      }
    }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) y[r][v] = sum[r][v];
}

// Calls f with `rows`, at most `most`, as a constant.
template <int most, class F> void with_rows(Index rows, const F& f) {
  if constexpr (most > 1)
    if (rows < most) return with_rows<most - 1>(rows, f);
  f(std::integral_constant<int, most>());
}

// Puts the sums of outputs o .. o + n into y.
void finish(const FewRows& k, Index r, Index o, Vec sum, Index n) {
  if (k.W.scale) sum *= load_up_to(k.W.scale + o, n);
  if (k.bias) sum += load_up_to(k.bias + o, n);
  if (k.residual) sum += load_up_to(k.residual + r * k.O + o, n);
  store_up_to(k.y + r * k.O + o, sum, n);
}

template <class Words> void panel(const FewRows& k, Index first) {
  const char* numbers = k.W.at(first, 0, k.I);
  for (Index r = 0; r < k.R; r += kPanelRows)
    with_rows<kPanelRows>(k.R - r, [&]<int rows>(std::integral_constant<int, rows>) {
      Vec sums[rows][kPanelVectors];
      panel_dots<Words, rows>(sums, k.x + r * k.I, k.I, numbers, k.I);
      for (int row = 0; row < rows; ++row)
        for (int v = 0; v < kPanelVectors; ++v) {
          const Index o = first + v * kLanes;
          if (o < k.O) finish(k, r + row, o, sums[row][v], std::min<Index>(kLanes, k.O - o));
        }
    });
}

void rows_of_floats(const FewRows& k, Index first) {
  const auto* W = reinterpret_cast<const float*>(k.W.p) + first * k.I;
  const Index outputs = std::min<Index>(kLanes, k.O - first);
  for (Index r = 0; r < k.R; r += kDotRows)
    with_rows<kDotRows>(k.R - r, [&]<int rows>(std::integral_constant<int, rows>) {
      Vec sums[rows];
      row_dots<rows>(sums, k.x + r * k.I, k.I, W, k.I, outputs, k.I);
      for (int row = 0; row < rows; ++row) finish(k, r + row, first, sums[row], outputs);
    });
}

}  // namespace

void run(const FewRows& k) {
  const Index height = k.W.format == WeightFormat::f32 ? Index(kLanes) : kPanel;
  // Pieces that take tens of microseconds from memory: less does not pay for waking a thread.
  const Index grain = std::max<Index>(1, (Index(1) << 18) / std::max<Index>(1, height * k.I * k.W.bytes()));
  parallel_for((k.O + height - 1) / height, grain, [&](Index begin, Index end) {
    for (Index first = begin * height; first < end * height; first += height) {
      if (k.W.format == WeightFormat::f32)
        rows_of_floats(k, first);
      else if (k.W.format == WeightFormat::bf16)
        panel<Bf16Words>(k, first);
      else
        panel<Int8Words>(k, first);
    }
  });
}

}  // namespace flexformer::cpu
