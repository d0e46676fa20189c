// Feature maps, forward and backward, and the kernels that compute features by themselves.
#include "tensor/cpu_features.h"

#include <cmath>

#include "tensor/cpu_gemm.h"

namespace flexformer {

Index feature_count(FeatureKind kind, Index n, Index d) {
  return kind == FeatureKind::identity || kind == FeatureKind::elu1 ? d : 2 * n;
}

namespace cpu {
namespace {

constexpr Index kTile = 64;

void elu1_row(float* f, const float* x, Index d) {
  for (Index c = 0; c < d; c += kLanes) {
    const Vec v = load_up_to(x + c, d - c);
    store_up_to(f + c, select(v > 0.0f, v + 1.0f, exp(v)), d - c);
  }
}

// [cos p, sin p] / sqrt(n)
void trig_s_row(float* f, const float* p, Index n, float root) {
  for (Index c = 0; c < n; c += kLanes) {
    Vec sine, cosine;
    sincos(load_up_to(p + c, n - c), sine, cosine);
    store_up_to(f + c, root * cosine, n - c);
    store_up_to(f + n + c, root * sine, n - c);
  }
}

// [cos a cos b, sin a cos b] / sqrt(n), p = [a, b]
void trig_n_row(float* f, float* companions, const float* p, Index n, float root) {
  for (Index c = 0; c < n; c += kLanes) {
    Vec sine_a, cosine_a, sine_b, cosine_b;
    sincos(load_up_to(p + c, n - c), sine_a, cosine_a);
    sincos(load_up_to(p + n + c, n - c), sine_b, cosine_b);
    cosine_b *= root;
    store_up_to(f + c, cosine_a * cosine_b, n - c);
    store_up_to(f + n + c, sine_a * cosine_b, n - c);
    if (!companions) continue;
    sine_b *= root;
    store_up_to(companions + c, cosine_a * sine_b, n - c);
    store_up_to(companions + n + c, sine_a * sine_b, n - c);
  }
}

}  // namespace

Index projection_count(FeatureKind kind, Index n) {
  return kind == FeatureKind::trig_s ? n : kind == FeatureKind::trig_n ? 2 * n : 0;
}

TileFeatures::TileFeatures(Scratch& scratch, const FeatureMap& map, Index d, Index max_rows)
    : map_(map),
      d_(d),
      M_(feature_count(map.kind, map.n, d)),
      P_(projection_count(map.kind, map.n)),
      root_(P_ ? 1.0f / std::sqrt(float(map.n)) : 1.0f),
      W_own_(scratch.take(map.kind == FeatureKind::trig_n ? P_ * d : 0)),
      W_transposed_(scratch.take(P_ * d)),
      p_(scratch.take(P_ * max_rows)) {}

void TileFeatures::set_head(Index h) {
  if (P_ == 0) return;
  const Index half = map_.n * d_;
  W_ = map_.w1 + h * half;
  if (map_.kind == FeatureKind::trig_n) {
    const float *w1 = map_.w1 + h * half, *w2 = map_.w2 + h * half;
    for (Index i = 0; i < half; ++i) {
      W_own_[i] = 0.5f * (w1[i] + w2[i]);
      W_own_[half + i] = 0.5f * (w1[i] - w2[i]);
    }
    W_ = W_own_;
  }
  transpose_tile(W_transposed_, P_, W_, d_, P_, d_);
}

void TileFeatures::forward(float* f, float* companions, const float* x, Index x_row, Index rows) {
  if (P_) small_product(p_, P_, {x, x_row, 1}, W_transposed_, P_, rows, P_, d_, false);
  for (Index i = 0; i < rows; ++i) {
    float *f_i = f + i * M_, *companions_i = companions ? companions + i * M_ : nullptr;
    switch (map_.kind) {
      case FeatureKind::identity:
        scale_row(f_i, x + i * x_row, 1.0f, d_);
        break;
      case FeatureKind::elu1:
        elu1_row(f_i, x + i * x_row, d_);
        break;
      case FeatureKind::trig_s:
        trig_s_row(f_i, p_ + i * P_, map_.n, root_);
        break;
      case FeatureKind::trig_n:
        trig_n_row(f_i, companions_i, p_ + i * P_, map_.n, root_);
        break;
    }
  }
}

// dp [P] of one row.
void TileFeatures::project_backward(float* dp, const float* df, const float* f, const float* companions) const {
  const Index n = map_.n;
  for (Index c = 0; c < n; c += kLanes) {
    const Index left = n - c;
    const Vec dcos = load_up_to(df + c, left), dsin = load_up_to(df + n + c, left);
    store_up_to(dp + c, load_up_to(f + c, left) * dsin - load_up_to(f + n + c, left) * dcos, left);
    if (map_.kind == FeatureKind::trig_s) continue;
    const Vec db = load_up_to(companions + c, left) * dcos + load_up_to(companions + n + c, left) * dsin;
    store_up_to(dp + n + c, -db, left);
  }
}

void TileFeatures::backward(float* dx, float* dW, const float* df, const float* f, const float* companions,
                            const float* x, Index x_row, Index rows) {
  if (P_) {
    for (Index i = 0; i < rows; ++i)
      project_backward(p_ + i * P_, df + i * M_, f + i * M_, companions ? companions + i * M_ : nullptr);
    if (dx) small_product(dx, d_, {p_, P_, 1}, W_, d_, rows, d_, P_, false);
    if (dW) small_product(dW, d_, {p_, 1, P_}, x, x_row, P_, d_, rows, true);
    return;
  }
  if (!dx) return;
  if (map_.kind == FeatureKind::identity) return scale_row(dx, df, 1.0f, rows * d_);
  for (Index i = 0; i < rows * d_; i += kLanes) {  // elu1: the slope is 1 where phi > 1, else phi itself
    const Index left = rows * d_ - i;
    store_up_to(dx + i, load_up_to(df + i, left) * min(load_up_to(f + i, left), splat(1.0f)), left);
  }
}

void reduce_map_gradient(const FeatureMapGrad& dmap, const FeatureMap& map, const float* dW, Index B, Index H,
                         Index d) {
  const Index half = map.n * d, P = projection_count(map.kind, map.n);
  if (P == 0) return;
  const auto put = [](const GradOut& out, Index i, float value) {
    if (out) out.p[i] = out.add ? out.p[i] + value : value;
  };
  for (Index h = 0; h < H; ++h)
    for (Index i = 0; i < half; ++i) {
      float da = 0, db = 0;
      for (Index b = 0; b < B; ++b) {
        const float* head = dW + (b * H + h) * P * d;
        da += head[i];
        if (map.kind == FeatureKind::trig_n) db += head[half + i];
      }
      if (map.kind == FeatureKind::trig_s) {
        put(dmap.dw1, h * half + i, da);
      } else {
        put(dmap.dw1, h * half + i, 0.5f * (da + db));
        put(dmap.dw2, h * half + i, 0.5f * (da - db));
      }
    }
}

void feature_row(float* f, float* p, const FeatureMap& map, Index h, const float* x, Index d) {
  const Index n = map.n;
  const float root = n ? 1.0f / std::sqrt(float(n)) : 1.0f;
  if (map.kind == FeatureKind::identity) return scale_row(f, x, 1.0f, d);
  if (map.kind == FeatureKind::elu1) return elu1_row(f, x, d);
  for (Index i = 0; i < n; ++i) p[i] = dot(map.w1 + (h * n + i) * d, x, d);
  if (map.kind == FeatureKind::trig_s) return trig_s_row(f, p, n, root);
  for (Index i = 0; i < n; ++i) {
    const float p1 = p[i], p2 = dot(map.w2 + (h * n + i) * d, x, d);
    p[i] = 0.5f * (p1 + p2);
    p[n + i] = 0.5f * (p1 - p2);
  }
  trig_n_row(f, nullptr, p, n, root);
}

void run(const FeatureFwd& k) {
  PerThread<TileFeatures> features(k.B * k.H, k.map, k.d, kTile);
  parallel_for(k.B * k.H, 1, [&](Index head, Index) {
    TileFeatures& phi = features.mine();
    phi.set_head(head % k.H);
    for (Index i = 0; i < k.N; i += kTile)
      phi.forward(k.y + (head * k.N + i) * phi.count(), nullptr, k.x + (head * k.N + i) * k.d, k.d,
                  std::min(kTile, k.N - i));
  });
}

namespace {

struct FeatureBwdWork {
  FeatureBwdWork(Scratch& scratch, const FeatureMap& map, Index d)
      : phi(scratch, map, d, kTile),
        f(scratch.take(kTile * phi.count())),
        companions(scratch.take(phi.needs_companions() ? kTile * phi.count() : 0)),
        dx(scratch.take(kTile * d)) {}
  TileFeatures phi;
  float *f, *companions, *dx;
};

}  // namespace

void run(const FeatureBwd& k) {
  PerThread<FeatureBwdWork> works(k.B * k.H, k.map, k.d);
  const Index weights = projection_count(k.map.kind, k.map.n) * k.d;
  Tensor dW = Tensor::zeros({k.B * k.H, k.dmap.dw1 || k.dmap.dw2 ? weights : 0});
  parallel_for(k.B * k.H, 1, [&](Index head, Index) {
    FeatureBwdWork& work = works.mine();
    const Index M = work.phi.count();
    const HeadsOut dx{k.dx, k.N * k.d, k.d, 0};
    work.phi.set_head(head % k.H);
    for (Index i = 0; i < k.N; i += kTile) {
      const Index rows = std::min(kTile, k.N - i);
      const float *x = k.x + (head * k.N + i) * k.d, *dy = k.dy + (head * k.N + i) * M;
      work.phi.forward(work.f, work.companions, x, k.d, rows);
      work.phi.backward(k.dx ? work.dx : nullptr, dW.numel() ? dW.data() + head * weights : nullptr, dy, work.f,
                        work.companions, x, k.d, rows);
      if (k.dx) store_rows(dx, head, 0, i, work.dx, rows, k.d);
    }
  });
  if (dW.numel()) reduce_map_gradient(k.dmap, k.map, dW.data(), k.B, k.H, k.d);
}

}  // namespace cpu
}  // namespace flexformer
