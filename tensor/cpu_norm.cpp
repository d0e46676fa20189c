// Layer norm and RMS norm over the last axis. Moments are summed in double precision and the variance in a second pass
// over the row, so that a constant row has variance exactly 0 and large values neither cancel nor overflow. Rows are
// centred by two floats (RowMoments). Parameter gradients are summed per block of rows while the rows are at hand; the
// number of blocks depends on R alone.
#include "tensor/cpu_sums.h"

namespace flexformer::cpu {
namespace {

Index rows_per_block(Index R) { return std::max<Index>(16, (R + 63) / 64); }

// Adds v to a row of partial sums.
void accumulate(float* sum, Index i, Vec v, Index m) { put({sum, true}, i, v, m); }

// rows(begin, end, dgamma, dbeta) over blocks of rows, with partial sums [C] to add to; the partial sums are then added
// in order. Null where nobody asks.
template <class Rows> void with_partial_sums(Index R, Index C, GradOut dgamma, GradOut dbeta, const Rows& rows) {
  const Index height = rows_per_block(R), blocks = (R + height - 1) / height;
  Tensor gamma_sums, beta_sums;
  if (dgamma) gamma_sums = Tensor::zeros({blocks, C});
  if (dbeta) beta_sums = Tensor::zeros({blocks, C});
  float *gamma = dgamma ? gamma_sums.data() : nullptr, *beta = dbeta ? beta_sums.data() : nullptr;
  parallel_for(R, height, [&](Index begin, Index end) {
    const Index at = begin / height * C;
    rows(begin, end, gamma ? gamma + at : nullptr, beta ? beta + at : nullptr);
  });
  if (dgamma) sum_columns(dgamma, 1, blocks, C, 1.0f, LoadTerms{gamma, blocks, C});
  if (dbeta) sum_columns(dbeta, 1, blocks, C, 1.0f, LoadTerms{beta, blocks, C});
}

// Sum of (x - center)^2.
double squares(const float* x, Index C, float center) {
  DoubleSum sum;
  for_lanes(C, [&](Index i, Index m) { sum.add_square(keep_first(load_up_to(x + i, m) - center, m)); });
  return sum.total();
}

void layer_norm_row(const LayerNormFwd& k, Index r) {
  const float* x = k.x + r * k.C;
  DoubleSum sum;
  for_lanes(k.C, [&](Index i, Index m) { sum.add(load_up_to(x + i, m)); });
  const double exact = sum.total() / double(k.C);
  const auto [mean, low, rstd] = RowMoments::of(exact, squares(x, k.C, float(exact)) / double(k.C), k.eps);
  k.mean[r] = mean;
  k.mean_low[r] = low;
  k.rstd[r] = rstd;
  for_lanes(k.C, [&, mean = mean, low = low, rstd = rstd](Index i, Index m) {
    const Vec normal = (load_up_to(x + i, m) - mean - low) * rstd;
    store_up_to(k.y + r * k.C + i, normal * load_up_to(k.gamma + i, m) + load_up_to(k.beta + i, m), m);
  });
}

// With g = dy gamma and h = (x - mean - low) rstd: dx = rstd (g - mean(g) - h mean(g h)), dgamma = dy h, dbeta = dy.
void layer_norm_row_bwd(const LayerNormBwd& k, Index r, float* dgamma, float* dbeta) {
  const float *x = k.x + r * k.C, *dy = k.dy + r * k.C;
  const float mean = k.mean[r], low = k.mean_low[r], rstd = k.rstd[r];
  Vec sum_g{}, sum_gh{};
  for_lanes(k.C, [&](Index i, Index m) {
    const Vec d = load_up_to(dy + i, m), h = (load_up_to(x + i, m) - mean - low) * rstd;
    const Vec g = d * load_up_to(k.gamma + i, m);
    sum_g += g;
    sum_gh += g * h;
    if (dgamma) accumulate(dgamma, i, d * h, m);
    if (dbeta) accumulate(dbeta, i, d, m);
  });
  if (!k.dx) return;
  const float mean_g = sum_lanes(sum_g) / float(k.C), mean_gh = sum_lanes(sum_gh) / float(k.C);
  for_lanes(k.C, [&](Index i, Index m) {
    const Vec g = load_up_to(dy + i, m) * load_up_to(k.gamma + i, m), h = (load_up_to(x + i, m) - mean - low) * rstd;
    put(k.dx, r * k.C + i, rstd * (g - mean_g - h * mean_gh), m);
  });
}

Vec gamma_or_one(const float* gamma, Index i, Index m) { return gamma ? load_up_to(gamma + i, m) : splat(1.0f); }

void rms_norm_row(const RmsNormFwd& k, Index r) {
  const float* x = k.x + r * k.C;
  const float rstd = inverse_root(squares(x, k.C, 0.0f) / double(k.C) + k.eps);
  k.rstd[r] = rstd;
  for_lanes(k.C, [&](Index i, Index m) {
    store_up_to(k.y + r * k.C + i, load_up_to(x + i, m) * rstd * gamma_or_one(k.gamma, i, m), m);
  });
}

// With g = dy gamma and h = x rstd: dx = rstd (g - h mean(g h)), dgamma = dy h.
void rms_norm_row_bwd(const RmsNormBwd& k, Index r, float* dgamma) {
  const float *x = k.x + r * k.C, *dy = k.dy + r * k.C, rstd = k.rstd[r];
  Vec sum_gh{};
  for_lanes(k.C, [&](Index i, Index m) {
    const Vec d = load_up_to(dy + i, m), h = load_up_to(x + i, m) * rstd;
    sum_gh += d * gamma_or_one(k.gamma, i, m) * h;
    if (dgamma) accumulate(dgamma, i, d * h, m);
  });
  if (!k.dx) return;
  const float mean_gh = sum_lanes(sum_gh) / float(k.C);
  for_lanes(k.C, [&](Index i, Index m) {
    const Vec g = load_up_to(dy + i, m) * gamma_or_one(k.gamma, i, m), h = load_up_to(x + i, m) * rstd;
    put(k.dx, r * k.C + i, rstd * (g - h * mean_gh), m);
  });
}

}  // namespace

void run(const LayerNormFwd& k) {
  parallel_for(k.R, grain_for(8 * k.C), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) layer_norm_row(k, r);
  });
}

void run(const LayerNormBwd& k) {
  with_partial_sums(k.R, k.C, k.dgamma, k.dbeta, [&](Index begin, Index end, float* dgamma, float* dbeta) {
    for (Index r = begin; r < end; ++r) layer_norm_row_bwd(k, r, dgamma, dbeta);
  });
}

void run(const RmsNormFwd& k) {
  parallel_for(k.R, grain_for(8 * k.C), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) rms_norm_row(k, r);
  });
}

void run(const RmsNormBwd& k) {
  with_partial_sums(k.R, k.C, k.dgamma, {}, [&](Index begin, Index end, float* dgamma, float*) {
    for (Index r = begin; r < end; ++r) rms_norm_row_bwd(k, r, dgamma);
  });
}

}  // namespace flexformer::cpu
