// Feature maps, forward and backward, and the kernels that compute features by themselves.
#include "tensor/cpu_features.h"

#include <cmath>

#include "tensor/cpu_feature_rows.h"
#include "tensor/cpu_gemm.h"
#include "tensor/cpu_row_dots.h"

namespace flexformer {

Index feature_count(FeatureKind kind, Index n, Index d) {
  switch (kind) {
    case FeatureKind::identity:
    case FeatureKind::elu1:
      return d;
    case FeatureKind::cosformer:
    case FeatureKind::polaformer:
      return 2 * d;
    case FeatureKind::performer:
      return n;
    default:
      return 2 * n;
  }
}

int weight_sets(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::identity:
    case FeatureKind::elu1:
    case FeatureKind::cosformer:
      return 0;
    case FeatureKind::trig_n:
    case FeatureKind::hedgehog:
      return 2;
    default:
      return 1;
  }
}

namespace cpu {
namespace {

constexpr Index kTile = 64;

float root_of(const FeatureMap& map) { return map.n ? 1.0f / std::sqrt(float(map.n)) : 1.0f; }

// What projections are multiplied by: performer and rfa project x / d^1/4 and x / |x| (0 for x = 0).
bool scales_projections(FeatureKind kind) { return kind == FeatureKind::rfa || kind == FeatureKind::performer; }
float projection_scale(FeatureKind kind, const float* x, Index d) {
  if (kind == FeatureKind::performer) return float(1 / std::sqrt(std::sqrt(double(d))));
  double squares = 0;
  for (Index c = 0; c < d; ++c) squares += double(x[c]) * double(x[c]);
  return squares > 0 ? float(1 / std::sqrt(squares)) : 0.0f;
}

// Features of one row from x or, in kinds that project, from its scaled projections p.
void features_of(float* f, float* companions, const FeatureMap& map, float root, const float* exponents, const float* p,
                 const float* x, Index d, Index position, bool keys) {
  switch (map.kind) {
    case FeatureKind::identity:
      return scale_row(f, x, 1.0f, d);
    case FeatureKind::elu1:
      return elu1_row(f, x, d);
    case FeatureKind::trig_s:
    case FeatureKind::rfa:
      return trig_s_row(f, p, map.n, root);
    case FeatureKind::trig_n:
      return trig_n_row(f, companions, p, map.n, root);
    case FeatureKind::performer:
      exp_row(f, p, 1, largest(p, 1, map.n), root, map.n);
      return;
    case FeatureKind::hedgehog:
      return hedgehog_row(f, p, map.n);
    case FeatureKind::cosformer:
      return cosformer_row(f, x, QuarterTurn(position, map.max_length), d);
    case FeatureKind::polaformer:
      return polaformer_row(f, x, exponents, map.opposite && !keys, d);
  }
}

}  // namespace

Index projection_count(FeatureKind kind, Index n) {
  if (kind == FeatureKind::polaformer || weight_sets(kind) == 0) return 0;
  return kind == FeatureKind::trig_n ? 2 * n : n;
}

Index weight_rows(FeatureKind kind, Index n) { return weight_sets(kind) * n; }

double norm_factor(const FeatureMap& map, Index h, Index d) {
  if (map.tau) return std::exp(-double(map.tau[h]));
  return map.kind == FeatureKind::performer ? -0.5 / std::sqrt(double(d)) : 0.0;
}

TileFeatures::TileFeatures(Scratch& scratch, const FeatureMap& map, Index d, Index max_rows)
    : map_(map),
      d_(d),
      M_(feature_count(map.kind, map.n, d)),
      P_(projection_count(map.kind, map.n)),
      root_(root_of(map)),
      W_own_(scratch.take(map.kind == FeatureKind::trig_n ? P_ * d : 0)),
      W_transposed_{scratch.take(P_ * d), scratch.take(map.kind == FeatureKind::hedgehog ? P_ * d : 0)},
      exponents_(scratch.take(map.kind == FeatureKind::polaformer ? d : 0)),
      exponent_slopes_(scratch.take(map.kind == FeatureKind::polaformer ? d : 0)),
      dp_(scratch.take(map.kind == FeatureKind::polaformer ? d : 0)),
      p_(scratch.take(P_ * max_rows)) {
  if (map.kind != FeatureKind::hedgehog) W_transposed_[1] = W_transposed_[0];
}

void TileFeatures::set_head(Index h) {
  const Index half = map_.n * d_;
  if (map_.kind == FeatureKind::polaformer) polaformer_exponents(exponents_, exponent_slopes_, map_.w1 + h * half, d_);
  if (P_ == 0) return;
  W_[0] = W_[1] = map_.w1 + h * half;
  if (map_.kind == FeatureKind::trig_n) {
    const float *w1 = map_.w1 + h * half, *w2 = map_.w2 + h * half;
    for (Index i = 0; i < half; ++i) {
      W_own_[i] = 0.5f * (w1[i] + w2[i]);
      W_own_[half + i] = 0.5f * (w1[i] - w2[i]);
    }
    W_[0] = W_[1] = W_own_;
  }
  transpose_tile(W_transposed_[0], P_, W_[0], d_, P_, d_);
  if (map_.kind != FeatureKind::hedgehog) return;
  W_[1] = map_.w2 + h * half;
  transpose_tile(W_transposed_[1], P_, W_[1], d_, P_, d_);
}

void TileFeatures::project(const FeatureRows& in) {
  if (P_ == 0) return;
  small_product(p_, P_, {in.x, in.x_row, 1}, W_transposed_[in.keys], P_, in.rows, P_, d_, false);
  for (Index i = 0; scales_projections(map_.kind) && i < in.rows; ++i)
    scale_row(p_ + i * P_, p_ + i * P_, projection_scale(map_.kind, in.x + i * in.x_row, d_), P_);
}

void TileFeatures::forward(float* f, float* companions, const FeatureRows& in) {
  project(in);
  for (Index i = 0; i < in.rows; ++i)
    features_of(f + i * M_, companions ? companions + i * M_ : nullptr, map_, root_, exponents_, p_ + i * P_,
                in.x + i * in.x_row, d_, in.first + i, in.keys);
}

void TileFeatures::log_shifts(float* shifts, const FeatureRows& in) {
  std::fill_n(shifts, in.rows, 0.0f);
  if (map_.kind != FeatureKind::performer) return;
  project(in);
  for (Index i = 0; i < in.rows; ++i) shifts[i] = largest(p_ + i * P_, 1, P_);
}

// dp [P] of one row.
void TileFeatures::project_backward(float* dp, const float* df, const float* f, const float* companions) const {
  if (map_.kind == FeatureKind::hedgehog) return hedgehog_backward(dp, df, f, map_.n);
  if (map_.kind != FeatureKind::performer)
    return trigonometric_backward(dp, df, f, needs_companions() ? companions : nullptr, map_.n);
  for (Index c = 0; c < P_; c += kLanes)  // the largest p counts as a constant: what it divides by cancels
    store_up_to(dp + c, load_up_to(df + c, P_ - c) * load_up_to(f + c, P_ - c), P_ - c);
}

void TileFeatures::backward(float* dx, float* dW, const float* df, const float* f, const float* companions,
                            const FeatureRows& in) {
  if (P_ == 0) return rows_backward(dx, dW, df, f, in);
  for (Index i = 0; i < in.rows; ++i) {
    float* dp = p_ + i * P_;
    project_backward(dp, df + i * M_, f + i * M_, companions ? companions + i * M_ : nullptr);
    if (scales_projections(map_.kind)) scale_row(dp, dp, projection_scale(map_.kind, in.x + i * in.x_row, d_), P_);
  }
  if (dx) small_product(dx, d_, {p_, P_, 1}, W_[in.keys], d_, in.rows, d_, P_, false);
  if (dW && map_.kind == FeatureKind::hedgehog && in.keys) dW += P_ * d_;
  if (dW) small_product(dW, d_, {p_, 1, P_}, in.x, in.x_row, P_, d_, in.rows, true);
  if (!dx || map_.kind != FeatureKind::rfa) return;
  for (Index i = 0; i < in.rows; ++i) {  // the part of dx along x changes |x| alone
    const float *x = in.x + i * in.x_row, scale = projection_scale(map_.kind, x, d_);
    float* dx_i = dx + i * d_;
    const float along = dot(dx_i, x, d_) * scale * scale;
    for (Index c = 0; c < d_; c += kLanes)
      store_up_to(dx_i + c, load_up_to(dx_i + c, d_ - c) - along * load_up_to(x + c, d_ - c), d_ - c);
  }
}

// Of the maps without projections.
void TileFeatures::rows_backward(float* dx, float* dW, const float* df, const float* f, const FeatureRows& in) const {
  const Index rows = in.rows;
  if (map_.kind == FeatureKind::polaformer) {
    if (dW) std::fill_n(dp_, d_, 0.0f);
    for (Index i = 0; i < rows; ++i)
      polaformer_backward(dx ? dx + i * d_ : nullptr, dW ? dp_ : nullptr, df + i * M_, f + i * M_, in.x + i * in.x_row,
                          exponents_, map_.opposite && !in.keys, d_);
    for (Index c = 0; dW && c < d_; ++c) dW[c] += dp_[c] * exponent_slopes_[c];
    return;
  }
  if (!dx) return;
  if (map_.kind == FeatureKind::identity) return scale_row(dx, df, 1.0f, rows * d_);
  for (Index i = 0; map_.kind == FeatureKind::cosformer && i < rows; ++i)
    cosformer_backward(dx + i * d_, df + i * M_, in.x + i * in.x_row, QuarterTurn(in.first + i, map_.max_length), d_);
  for (Index i = 0; map_.kind == FeatureKind::elu1 && i < rows * d_; i += kLanes) {
    const Index left = rows * d_ - i;  // the slope is 1 where phi > 1, else phi itself
    store_up_to(dx + i, load_up_to(df + i, left) * min(load_up_to(f + i, left), splat(1.0f)), left);
  }
}

void reduce_map_gradient(const FeatureMapGrad& dmap, const FeatureMap& map, const float* dW, Index B, Index H,
                         Index d) {
  const Index half = map.n * d, rows = weight_rows(map.kind, map.n);
  const bool two = rows == 2 * map.n;
  const auto put = [](const GradOut& out, Index i, float value) {
    if (out) out.p[i] = out.add ? out.p[i] + value : value;
  };
  for (Index h = 0; rows > 0 && h < H; ++h)
    for (Index i = 0; i < half; ++i) {
      float da = 0, db = 0;
      for (Index b = 0; b < B; ++b) {
        const float* head = dW + (b * H + h) * rows * d;
        da += head[i];
        if (two) db += head[half + i];
      }
      if (map.kind == FeatureKind::trig_n) {
        put(dmap.dw1, h * half + i, 0.5f * (da + db));
        put(dmap.dw2, h * half + i, 0.5f * (da - db));
      } else {
        put(dmap.dw1, h * half + i, da);
        if (two) put(dmap.dw2, h * half + i, db);
      }
    }
}

Index row_scratch(const FeatureMap& map, Index d) {
  return map.kind == FeatureKind::polaformer ? d : projection_count(map.kind, map.n);
}

float feature_row(float* f, float* p, const FeatureMap& map, Index h, const float* x, Index d, Index position,
                  bool keys) {
  const Index n = map.n, P = projection_count(map.kind, n);
  const float* w = map.kind == FeatureKind::hedgehog && keys ? map.w2 : map.w1;
  if (map.kind == FeatureKind::polaformer) polaformer_exponents(p, nullptr, map.w1 + h * d, d);
  if (P > 0) row_dots(p, w + h * n * d, d, n, x, d);
  if (map.kind == FeatureKind::trig_n) {
    row_dots(p + n, map.w2 + h * n * d, d, n, x, d);
    for (Index i = 0; i < n; i += kLanes) {
      const Vec p1 = load_up_to(p + i, n - i), p2 = load_up_to(p + n + i, n - i);
      store_up_to(p + i, 0.5f * (p1 + p2), n - i);
      store_up_to(p + n + i, 0.5f * (p1 - p2), n - i);
    }
  }
  if (scales_projections(map.kind)) scale_row(p, p, projection_scale(map.kind, x, d), P);
  features_of(f, nullptr, map, root_of(map), p, p, x, d, position, keys);
  return map.kind == FeatureKind::performer ? largest(p, 1, n) : 0.0f;
}

namespace {

struct FeatureWork {
  FeatureWork(Scratch& scratch, const FeatureMap& map, Index d)
      : phi(scratch, map, d, kTile),
        f(scratch.take(kTile * phi.count())),
        df(scratch.take(kTile * phi.count())),
        companions(scratch.take(phi.needs_companions() ? kTile * phi.count() : 0)),
        dx(scratch.take(kTile * d)),
        weights(scratch.take(kTile)) {}
  TileFeatures phi;
  float *f, *df, *companions, *dx;
  float* weights;  // [kTile] what the features of performer are in units of: its e^shift and e^(-|x'|^2/2)

  void weigh(const FeatureMap& map, const FeatureRows& in, Index d) {
    phi.log_shifts(weights, in);
    for (Index i = 0; i < in.rows; ++i) {
      const float* x = in.x + i * in.x_row;
      weights[i] = float(std::exp(double(weights[i]) + double(dot(x, x, d)) * norm_factor(map, 0, d)));
    }
  }
};

// The tiles of one head.
template <class Kernel, class Body> void for_tiles(const Kernel& k, Index head, const Body& body) {
  for (Index i = 0; i < k.N; i += kTile)
    body(head * k.N + i, FeatureRows{k.x + (head * k.N + i) * k.d, k.d, std::min(kTile, k.N - i), i, k.keys});
}

}  // namespace

void run(const FeatureFwd& k) {
  PerThread<FeatureWork> works(k.B * k.H, k.map, k.d);
  parallel_for(k.B * k.H, 1, [&](Index head, Index) {
    FeatureWork& work = works.mine();
    const Index M = work.phi.count();
    work.phi.set_head(head % k.H);
    for_tiles(k, head, [&](Index at, const FeatureRows& in) {
      work.phi.forward(k.y + at * M, nullptr, in);
      if (k.map.kind != FeatureKind::performer) return;
      work.weigh(k.map, in, k.d);
      for (Index i = 0; i < in.rows; ++i) scale_row(k.y + (at + i) * M, k.y + (at + i) * M, work.weights[i], M);
    });
  });
}

void run(const FeatureBwd& k) {
  PerThread<FeatureWork> works(k.B * k.H, k.map, k.d);
  const Index weights = weight_rows(k.map.kind, k.map.n) * k.d;
  Tensor dW = Tensor::zeros({k.B * k.H, k.dmap.dw1 || k.dmap.dw2 ? weights : 0});
  parallel_for(k.B * k.H, 1, [&](Index head, Index) {
    FeatureWork& work = works.mine();
    const Index M = work.phi.count(), d = k.d;
    const HeadsOut dx{k.dx, k.N * d, d, 0};
    work.phi.set_head(head % k.H);
    for_tiles(k, head, [&](Index at, const FeatureRows& in) {
      const float* df = k.dy + at * M;
      work.phi.forward(work.f, work.companions, in);
      if (k.map.kind == FeatureKind::performer) {
        work.weigh(k.map, in, d);
        for (Index i = 0; i < in.rows; ++i) scale_row(work.df + i * M, df + i * M, work.weights[i], M);
        df = work.df;
      }
      work.phi.backward(k.dx ? work.dx : nullptr, dW.numel() ? dW.data() + head * weights : nullptr, df, work.f,
                        work.companions, in);
      for (Index i = 0; k.dx && k.map.kind == FeatureKind::performer && i < in.rows; ++i) {
        const float by_norm = 2 * float(norm_factor(k.map, 0, d)) * dot(df + i * M, work.f + i * M, M);
        for (Index c = 0; c < d; ++c) work.dx[i * d + c] += by_norm * in.x[i * d + c];
      }
      if (k.dx) store_rows(dx, head, 0, in.first, work.dx, in.rows, d);
    });
  });
  if (dW.numel()) reduce_map_gradient(k.dmap, k.map, dW.data(), k.B, k.H, k.d);
}

}  // namespace cpu
}  // namespace flexformer
