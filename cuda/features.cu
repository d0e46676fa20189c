// Feature maps, forward and backward. A map is a product of all rows with its matrix, where it has one, and then a
// kernel that makes features from each row and its projections. trig_n is taken in the paper's second form: the mean of
// trig_s with w1 and of trig_s with w2. Gradients go back in the same two steps; those of the matrices are summed over
// slices of the rows first, in an order that depends on the sizes alone.
#include "cuda/features.h"

#include <numbers>

#include "cuda/softmax.h"
#include "cuda/sums.h"
#include "cuda/tile.h"

namespace flexformer::cuda {
namespace {

// p = x W^T for all rows and sets; an item is a tile of rows and of one set's n projections.
template <class T> __global__ void __launch_bounds__(kTileThreads) project(float* p, FeatureRows in) {
  SHARED(Stages, stages, [1]);
  const Index n = in.map.n, row_tiles = (in.N + kTile - 1) / kTile, tiles = (n + kTile - 1) / kTile;
  for (Index item = blockIdx.x; item < in.B * in.H * row_tiles * in.sets * tiles; item += gridDim.x) {
    const Index column = item % tiles * kTile, set = item / tiles % in.sets;
    const Index first = item / tiles / in.sets % row_tiles * kTile, head = item / tiles / in.sets / row_tiles;
    const Index h = head % in.H;
    const MatrixOf<T> x = rows_of<T>(in.x, head / in.H, h, first, in.N, in.d);
    const Matrix w = rows_of(in.w[set], h, column, n, in.d);
    Tile<kSquare> product{};
    multiply(product, across(x), across(w), in.d, stages[0]);
    store(p + (head * in.N + first) * in.P + set * n + column, in.P, x.rows, w.rows, product);
  }
}

// One row of the input.
struct Row {
  Index b, h, i;
  ValuesIn x;
  __device__ Row(const FeatureRows& in, Index r) : b(r / in.N / in.H), h(r / in.N % in.H), i(r % in.N) {
    x = in.x.p.from(b * in.x.batch + i * in.x.row + h * in.x.head);
  }
};

// The factor of |k|^2 in a key's log-weight.
__device__ double norm_factor(const FeatureRows& in, Index h) {
  if (in.map.tau) return std::exp(-double(in.map.tau[h]));
  return in.map.kind == FeatureKind::performer ? -0.5 / std::sqrt(double(in.d)) : 0.0;
}

// |x|^2 in double precision, by all threads: it becomes an exponent.
__device__ double squared_norm(ValuesIn x, Index d) {
  double sum = 0;
  for (Index c = threadIdx.x; c < d; c += blockDim.x) sum += double(read(x, c)) * double(read(x, c));
  return block_sum(sum);
}

// What projections are multiplied by: performer and rfa project x / d^1/4 and x / |x| (0 for x = 0).
__device__ float projection_scale(const FeatureRows& in, ValuesIn x) {
  if (in.map.kind == FeatureKind::performer) return float(1 / std::sqrt(std::sqrt(double(in.d))));
  if (in.map.kind != FeatureKind::rfa) return 1;
  const double squares = squared_norm(x, in.d);
  return squares > 0 ? float(1 / std::sqrt(squares)) : 0.0f;
}

// 1/sqrt(n), and for trig_n the half that makes a mean of two.
__device__ float trigonometric_root(const FeatureRows& in) { return 1 / std::sqrt(float(in.map.n)) / float(in.sets); }

__device__ void trigonometric_row(float* f, const float* p, const FeatureRows& in, float scale) {
  const Index n = in.map.n;
  const float root = trigonometric_root(in);
  for (Index c = threadIdx.x; c < n; c += blockDim.x) {
    float cosine = 0, sine = 0;
    for (int set = 0; set < in.sets; ++set) {
      cosine += std::cos(scale * p[set * n + c]);
      sine += std::sin(scale * p[set * n + c]);
    }
    f[c] = root * cosine;
    f[n + c] = root * sine;
  }
}

// [softmax(p), softmax(-p)]
__device__ void hedgehog_row(float* f, const float* p, Index n) {
  for (int half = 0; half < 2; ++half, f += n) {
    const float sign = half ? -1.0f : 1.0f;
    float top = -INFINITY, sum = 0;
    for (Index c = threadIdx.x; c < n; c += blockDim.x) top = Max::combine(sign * p[c], top);
    top = block_max(top);
    for (Index c = threadIdx.x; c < n; c += blockDim.x) sum += std::exp(sign * p[c] - top);
    sum = block_sum(sum);
    for (Index c = threadIdx.x; c < n; c += blockDim.x) f[c] = std::exp(sign * p[c] - top) / sum;
  }
}

// Where a token stands on cosformer's quarter circle; positions count from 0 here, from 1 on the circle.
struct QuarterTurn {
  float cosine = 0, sine = 0;
  __device__ QuarterTurn(const FeatureRows& in, Index i) {
    if (in.map.kind != FeatureKind::cosformer) return;
    const double angle = std::numbers::pi / 2 * double(in.position + i + 1) / double(in.map.max_length);
    cosine = float(std::cos(angle));
    sine = float(std::sin(angle));
  }
};

// polaformer's exponent p = 1 + 4 sigmoid(w) of a channel, and dp/dw.
struct Exponent {
  float p, slope;
  __device__ explicit Exponent(float w) {
    const double gate = 1 / (1 + std::exp(-double(w)));
    p = float(1 + 4 * gate);
    slope = float(4 * gate * (1 - gate));
  }
};
__device__ bool swaps_halves(const FeatureRows& in) { return in.map.opposite && !in.keys; }

// Features from the elements alone. polaformer's powers end at e^40, so that products of two are still floats and 0
// times one is 0: a hidden key, whose weight is 0, may be of any size.
__device__ void elementwise_row(float* f, const FeatureRows& in, const Row& row) {
  const Index d = in.d;
  const QuarterTurn turn(in, row.i);
  for (Index c = threadIdx.x; c < d; c += blockDim.x) {
    const float x = read(row.x, c);
    if (in.map.kind == FeatureKind::identity) f[c] = x;
    if (in.map.kind == FeatureKind::elu1) f[c] = x > 0 ? x + 1 : std::exp(x);
    if (in.map.kind == FeatureKind::cosformer) {
      f[c] = turn.cosine * (x > 0 ? x : 0.0f);
      f[d + c] = turn.sine * (x > 0 ? x : 0.0f);
    }
    if (in.map.kind == FeatureKind::polaformer) {
      const float log_power = Exponent(in.map.w1[row.h * d + c]).p * std::log(std::abs(x));
      const float power = std::exp(log_power < 40 ? log_power : 40.0f);
      const Index positive = swaps_halves(in) ? d : 0;
      f[positive + c] = x > 0 ? power : 0.0f;
      f[d - positive + c] = x < 0 ? power : 0.0f;
    }
  }
}

__global__ void features_of_rows(float* features, const float* projections, FeatureRows in, bool whole, LogWeights lw) {
  const FeatureKind kind = in.map.kind;
  const Index n = in.map.n;
  for (Index r = blockIdx.x; r < in.B * in.H * in.N; r += gridDim.x) {
    const Row row(in, r);
    const bool hidden = lw.key_mask && lw.key_mask[row.b * in.N + row.i] == 0;
    float* f = features + r * in.M;
    const float *p = projections + r * in.P, scale = projection_scale(in, row.x);
    const float shift = kind == FeatureKind::performer ? scale * row_max(p, n) : 0.0f;
    double exact = 0;
    if (weighs_keys(in.map) && (lw.high || whole))
      exact = squared_norm(row.x, in.d) * norm_factor(in, row.h) + double(shift);
    if (kind == FeatureKind::performer) {
      const float factor = (whole ? float(std::exp(exact)) : 1.0f) / std::sqrt(float(n));
      for (Index c = threadIdx.x; c < n; c += blockDim.x) f[c] = factor * std::exp(scale * p[c] - shift);
    } else if (kind == FeatureKind::hedgehog) {
      hedgehog_row(f, p, n);
    } else if (in.sets > 0) {
      trigonometric_row(f, p, in, scale);
    } else {
      elementwise_row(f, in, row);
    }
    if (!lw.high || threadIdx.x != 0) continue;
    exact = exact < -3e38 ? -3e38 : exact > 3e38 ? 3e38 : exact;
    const double rest = exact - double(float(exact));
    lw.high[r] = hidden ? -INFINITY : float(exact);
    lw.low[r] = hidden ? 0.0f : rest < -1 ? -1.0f : rest > 1 ? 1.0f : float(rest);
  }
}

// p becomes the gradient dp. Returns what of dx lies along x: for rfa, where that part changes |x| alone and goes,
// -|x|^-2 x.dx, which the projections give without dx.
__device__ float projections_bwd(float* p, const float* df, const float* f, const FeatureRows& in, const Row& row) {
  const Index n = in.map.n;
  const float scale = projection_scale(in, row.x);
  float along = 0;
  if (in.map.kind == FeatureKind::performer) {  // the largest p counts as a constant: what it divides by cancels
    for (Index c = threadIdx.x; c < n; c += blockDim.x) p[c] = scale * df[c] * f[c];
  } else if (in.map.kind == FeatureKind::hedgehog) {
    float mean = 0, mean_of_negative = 0;
    for (Index c = threadIdx.x; c < n; c += blockDim.x) {
      mean += df[c] * f[c];
      mean_of_negative += df[n + c] * f[n + c];
    }
    mean = block_sum(mean);
    mean_of_negative = block_sum(mean_of_negative);
    for (Index c = threadIdx.x; c < n; c += blockDim.x)
      p[c] = f[c] * (df[c] - mean) - f[n + c] * (df[n + c] - mean_of_negative);
  } else {
    const float root = trigonometric_root(in) * scale;
    for (Index set = 0; set < in.sets; ++set)
      for (Index c = threadIdx.x; c < n; c += blockDim.x) {
        float& own = p[set * n + c];
        const float dp = root * (std::cos(scale * own) * df[n + c] - std::sin(scale * own) * df[c]);
        along -= scale * scale * dp * own;
        own = dp;
      }
  }
  return in.map.kind == FeatureKind::rfa ? block_sum(along) : 0.0f;
}

// dx of the maps without projections, and for polaformer dp [d], the row's part in the gradient of w1.
__device__ void elements_bwd(const FeatureGradients& g, float* dp, const float* df, const float* f, float along,
                             const FeatureRows& in, const Row& row) {
  const Index d = in.d, at = row.b * g.dx.batch + row.i * g.dx.row + row.h * g.dx.head;
  const QuarterTurn turn(in, row.i);
  for (Index c = threadIdx.x; c < d; c += blockDim.x) {
    const float x = read(row.x, c);
    float dx = 0;
    if (in.map.kind == FeatureKind::identity) dx = df[c];
    if (in.map.kind == FeatureKind::elu1) dx = df[c] * (f[c] < 1 ? f[c] : 1.0f);  // the slope is 1 where phi > 1
    if (in.map.kind == FeatureKind::cosformer && x > 0) dx = turn.cosine * df[c] + turn.sine * df[d + c];
    if (in.map.kind == FeatureKind::polaformer) {
      const Exponent exponent(in.map.w1[row.h * d + c]);
      const float power = f[c] + f[d + c], of_power = power * df[(x > 0) == swaps_halves(in) ? d + c : c];
      dx = power == 0 ? 0.0f : of_power * exponent.p / x;
      dp[c] = power == 0 ? 0.0f : of_power * std::log(std::abs(x)) * exponent.slope;
    }
    if (g.dx.grad) put(g.dx.grad, at + c, dx + along * x);
  }
}

__global__ void features_of_rows_bwd(FeatureGradients g, float* coefficients, FeatureRows in) {
  for (Index r = blockIdx.x; r < in.B * in.H * in.N; r += gridDim.x) {
    const Row row(in, r);
    const float *f = g.f + r * in.M, *df = g.df + r * in.M;
    float along = 0;
    if (g.weighed) {
      float dlw = 0;
      for (Index m = threadIdx.x; m < in.M; m += blockDim.x) dlw += f[m] * df[m];
      dlw = block_sum(dlw) + (g.rest ? g.rest[r] : 0.0f);
      const bool hidden = g.lw.high && g.lw.high[r] == -INFINITY;
      if (hidden) dlw = 0;
      along = 2 * float(norm_factor(in, row.h)) * dlw;
      if (g.dtau && threadIdx.x == 0)
        g.dtau[r] = hidden ? 0.0f : -((g.lw.high[r] - g.most[r / in.N]) + g.lw.low[r]) * dlw;
    }
    float* p = g.p + r * in.P;
    if (in.sets == 0) {
      elements_bwd(g, p, df, f, along, in, row);
      continue;
    }
    along += projections_bwd(p, df, f, in, row);
    if (threadIdx.x == 0) coefficients[r] = along;
  }
}

// dx = dp W + coefficient x.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    inputs_bwd(HeadsOut dx, const float* dp, const float* coefficients, FeatureRows in) {
  SHARED(Stages, stages, [1]);
  const Index n = in.map.n, row_tiles = (in.N + kTile - 1) / kTile, tiles = (in.d + kTile - 1) / kTile;
  for (Index item = blockIdx.x; item < in.B * in.H * row_tiles * tiles; item += gridDim.x) {
    const Index channel = item % tiles * kTile, first = item / tiles % row_tiles * kTile;
    const Index head = item / tiles / row_tiles, b = head / in.H, h = head % in.H;
    const MatrixOf<T> x = rows_of<T>(in.x, b, h, first, in.N, in.d);
    Tile<kSquare> product{};
    for (Index set = 0; set < in.sets; ++set) {
      const Matrix w{in.w[set] + h * n * in.d, in.d, int(n), int(in.d)};
      const Matrix dp_of_set{dp + (head * in.N + first) * in.P + set * n, in.P, x.rows, int(n)};
      multiply(product, across(dp_of_set), down(w.from(0, channel)), n, stages[0]);
    }
    for_each(product, [&](int r, int c, float& value) {
      if (r < x.rows) value += coefficients[head * in.N + first + r] * x(r, int(channel) + c);
    });
    put_tile(dx, b, h, first, in.N, channel, in.d, product);
  }
}

constexpr Index kSlice = 512;  // rows of one head whose part in dW one block sums

// partial [sets,B*slices,H,n,d] = sum over a slice's rows of dp^T x.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    weights_bwd(float* partial, const float* dp, FeatureRows in, Index slices) {
  SHARED(Stages, stages, [1]);
  const Index n = in.map.n, d = in.d, n_tiles = (n + kTile - 1) / kTile, d_tiles = (d + kTile - 1) / kTile;
  for (Index item = blockIdx.x; item < in.sets * in.B * slices * in.H * n_tiles * d_tiles; item += gridDim.x) {
    const Index channel = item % d_tiles * kTile, m = item / d_tiles % n_tiles * kTile;
    const Index part = item / d_tiles / n_tiles, h = part % in.H, slice = part / in.H % slices;
    const Index b = part / in.H / slices % in.B, set = part / in.H / slices / in.B, first = slice * kSlice;
    const int rows = int(smaller(kSlice, in.N - first));
    const float* of_head = dp + ((b * in.H + h) * in.N + first) * in.P + set * n;
    const Matrix dp_of_set{of_head, in.P, rows, int(n)};
    const ValuesIn of_slice = in.x.p.from(b * in.x.batch + h * in.x.head + first * in.x.row);
    const MatrixOf<T> x{of_slice.as<T>(), in.x.row, rows, int(d)};
    Tile<kSquare> sum{};
    multiply(sum, down(dp_of_set.from(0, m)), down(x.from(0, channel)), rows, stages[0]);
    store(partial + (part * n + m) * d + channel, d, n - m, d - channel, sum);
  }
}

// polaformer's parts in the gradient of w1, one for each row.
struct ExponentTerms {
  const float* dp;  // [B,H,N,d]
  Index H, N, d;
  __device__ float operator()(Index h, Index row, Index c) const {
    return dp[((row / N * H + h) * N + row % N) * d + c];
  }
};

void weight_gradients(const FeatureGradients& g, const FeatureRows& in) {
  const Index n = in.map.n, size = in.H * n * in.d;
  if (in.map.kind == FeatureKind::polaformer && g.dw1)
    sum_columns(g.dw1, in.H, in.B * in.N, in.d, 1, ExponentTerms{g.p, in.H, in.N, in.d});
  if (in.sets == 0 || !(g.dw1 || g.dw2)) return;
  const Index slices = (in.N + kSlice - 1) / kSlice, parts = in.B * slices;
  Tensor partial = Tensor::empty({in.sets * parts * size}, DType::f32, Device::cuda);
  with_type(in.x.p.dtype, [&](auto t) {
    launch_kernel(for_tiles(in.sets * parts * in.H * tiles_of(n) * tiles_of(in.d)), weights_bwd<decltype(t)>,
                  partial.data(), g.p, in, slices);
  });
  // hedgehog's keys have had one set, the second; a matrix that took no part has no terms, and its gradient is 0.
  const int first = in.map.kind == FeatureKind::hedgehog && in.keys ? 1 : 0;
  const GradOut to[] = {g.dw1, g.dw2};
  for (int i = 0; i < 2; ++i) {
    const int set = i - first;
    const Index terms = set >= 0 && set < in.sets ? parts : 0;
    if (to[i])
      sum_columns(to[i], 1, terms, size, 1, LoadTerms<float>{partial.data() + set * terms * size, terms, size});
  }
}

LaunchShape for_feature_rows(const FeatureRows& rows, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  return for_rows(rows.count(), std::max(rows.M, rows.d), file, line);
}

}  // namespace

FeatureRows::FeatureRows(const HeadsIn& x, const FeatureMap& map, Index B, Index H, Index N, Index d, bool keys,
                         Index position)
    : x(x),
      map(map),
      B(B),
      H(H),
      N(N),
      d(d),
      keys(keys),
      position(position),
      M(feature_count(map.kind, map.n, d)),
      sets(map.kind == FeatureKind::polaformer ? 0
           : map.kind == FeatureKind::hedgehog ? 1
                                               : weight_sets(map.kind)),
      w{map.kind == FeatureKind::hedgehog && keys ? map.w2 : map.w1, map.w2},
      P(map.kind == FeatureKind::polaformer ? d : sets * map.n) {}

void compute_features(float* f, float* p, const FeatureRows& rows, bool whole, const LogWeights& lw) {
  const Index tiles = rows.B * rows.H * tiles_of(rows.N) * rows.sets * tiles_of(rows.map.n);
  if (rows.sets > 0)
    with_type(rows.x.p.dtype, [&](auto t) { launch_kernel(for_tiles(tiles), project<decltype(t)>, p, rows); });
  launch_kernel(for_feature_rows(rows), features_of_rows, f, p, rows, whole, lw);
}

void features_backward(const FeatureGradients& gradients, const FeatureRows& rows) {
  Tensor coefficients = Tensor::empty({rows.count()}, DType::f32, Device::cuda);
  launch_kernel(for_feature_rows(rows), features_of_rows_bwd, gradients, coefficients.data(), rows);
  if (rows.sets > 0 && gradients.dx.grad)
    with_type(rows.x.p.dtype, [&](auto t) {
      launch_kernel(for_tiles(rows.B * rows.H * tiles_of(rows.N) * tiles_of(rows.d)), inputs_bwd<decltype(t)>,
                    gradients.dx, gradients.p, coefficients.data(), rows);
    });
  weight_gradients(gradients, rows);
}

void run(const FeatureFwd& k) {
  const FeatureRows rows({k.x, k.H * k.N * k.d, k.d, k.N * k.d}, k.map, k.B, k.H, k.N, k.d, k.keys);
  Tensor p = Tensor::empty({rows.count() * rows.P}, DType::f32, Device::cuda);
  compute_features(k.y, p.data(), rows, true);
}

void run(const FeatureBwd& k) {
  const FeatureRows rows({k.x, k.H * k.N * k.d, k.d, k.N * k.d}, k.map, k.B, k.H, k.N, k.d, k.keys);
  Tensor p = Tensor::empty({rows.count() * rows.P}, DType::f32, Device::cuda);
  Tensor f = Tensor::empty({rows.count() * rows.M}, DType::f32, Device::cuda);
  compute_features(f.data(), p.data(), rows, true);
  features_backward({.dx = {k.dx, rows.x.batch, rows.x.row, rows.x.head},
                     .dw1 = k.dmap.dw1,
                     .dw2 = k.dmap.dw2,
                     .df = k.dy,
                     .f = f.data(),
                     .p = p.data(),
                     .weighed = k.map.kind == FeatureKind::performer},
                    rows);
}

}  // namespace flexformer::cuda
