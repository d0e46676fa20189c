// What each kernel of the contract must do at least, for the profile: one line a struct. Functions of a number count as
// one operation, whatever they cost.
#include "tensor/kernels.h"

namespace flexformer {
namespace {

// Bytes of n values that are read, or written; none where the pointer is null. A gradient that is added to is read,
// too.
double in(ValuesIn x, double n) { return x.p ? n * double(size_of(x.dtype)) : 0; }
double out(ValuesOut y, double n) { return in(y, n); }
double out(GradOut y, double n) { return out(y.p, n) * (y.add ? 2 : 1); }
double in(const HeadsIn& x, double n) { return in(x.p, n); }
double out(const HeadsOut& y, double n) { return out(y.grad, n); }
double ints(const std::int32_t* x, double n) { return x ? 4 * n : 0; }

double product(const Index (&size)[4]) { return double(size[0]) * double(size[1]) * double(size[2]) * double(size[3]); }
// Values of an operand that is read with these strides: those along which it is repeated count once.
double distinct(const Broadcast& s, const Index (&stride)[4]) {
  double n = 1;
  for (int i = 0; i < 4; ++i) n *= stride[i] ? double(s.size[i]) : 1;
  return n;
}
double box(double outer, Index n, Index inner) { return outer * double(n) * double(inner); }

// Sizes of an attention as doubles, and how many pairs of a query and a key there are.
struct Sizes {
  double q, k, v, out, rows, pairs;
  Sizes(const AttentionSize& s, bool causal)
      : q(double(s.B * s.H) * double(s.Nq * s.d)),
        k(double(s.B * s.H) * double(s.Nk * s.d)),
        v(double(s.B * s.H) * double(s.Nk * s.dv)),
        out(double(s.B * s.H) * double(s.Nq * s.dv)),
        rows(double(s.B * s.H * s.Nq)),
        pairs(rows * (causal ? double(s.Nq + 1) / 2 : double(s.Nk))) {}
};

// Of one vector's features: projections, and 3 for each feature. Backward: projections again, then dx and dw.
double feature_operations(const FeatureMap& m, Index d, bool backward) {
  const double project = 2.0 * weight_sets(m.kind) * double(m.n * d), each = 3 * double(feature_count(m.kind, m.n, d));
  return (project + each) * (backward ? 3 : 1);
}
double map_bytes(const FeatureMap& m, Index H, Index d) {
  const double weights = double(H * m.n * d);
  return in(m.w1, weights) + in(m.w2, weights) + in(m.tau, double(H));
}
double map_bytes(const FeatureMapGrad& g, const FeatureMap& m, Index H, Index d) {
  const double weights = double(H * m.n * d);
  return out(g.dw1, weights) + out(g.dw2, weights) + out(g.dtau, double(H));
}
// As a recurrence: a key goes into the state, a query reads it (backward: the state again, and four gradients).
double linear_operations(const AttentionSize& s, const FeatureMap& m, bool backward) {
  const double vectors = double(s.B * s.H) * double(s.Nq + s.Nk);
  return vectors * ((backward ? 5 : 2) * double(feature_count(m.kind, m.n, s.d)) * double(s.dv + 1) +
                    feature_operations(m, s.d, backward));
}

}  // namespace

// ---- elementwise
Cost cost(const UnaryFwd& k) { return {out(k.y, k.n) + in(k.x, k.n), double(k.n)}; }
Cost cost(const UnaryBwd& k) { return {out(k.dx, k.n) + in(k.dy, k.n) + in(k.x, k.n), 2.0 * k.n}; }
Cost cost(const BinaryFwd& k) {
  const double n = product(k.shape.size);
  return {out(k.y, n) + in(k.a, distinct(k.shape, k.shape.a)) + in(k.b, distinct(k.shape, k.shape.b)), n};
}
Cost cost(const BinaryBwd& k) {
  const double n = product(k.shape.size), a = distinct(k.shape, k.shape.a), b = distinct(k.shape, k.shape.b);
  const double operations = (k.da ? n : 0) + (k.db ? n : 0);
  return {out(k.da, a) + out(k.db, b) + in(k.dy, n) + in(k.a, a) + in(k.b, b), operations};
}
Cost cost(const WhereFwd& k) {
  return {out(k.y, k.n) + ints(k.condition, k.n) + in(k.a, k.n) + in(k.b, k.n), double(k.n)};
}
Cost cost(const WhereBwd& k) {
  return {out(k.da, k.n) + out(k.db, k.n) + in(k.dy, k.n) + ints(k.condition, k.n), double(k.n)};
}
Cost cost(const Dropout& k) { return {out(k.y, k.n) + in(k.x, k.n), 2.0 * k.n}; }
Cost cost(const StridedCopy& k) {
  const double n = product(k.size);
  return {out(k.y, n) + in(k.x, n), k.y.add ? n : 0};
}
Cost cost(const FillNormal& k) { return {4.0 * k.n, double(k.n)}; }
Cost cost(const FillUniform& k) { return {4.0 * k.n, double(k.n)}; }

// ---- reductions: x [outer, n, inner], y [outer, inner]
Cost cost(const SumFwd& k) {
  const double x = box(k.outer, k.n, k.inner);
  return {out(k.y, box(k.outer, 1, k.inner)) + in(k.x, x), x};
}
Cost cost(const SumBwd& k) {
  const double x = box(k.outer, k.n, k.inner);
  return {out(k.dx, x) + in(k.dy, box(k.outer, 1, k.inner)), x};
}
Cost cost(const MaxFwd& k) {
  const double x = box(k.outer, k.n, k.inner), y = box(k.outer, 1, k.inner);
  return {out(k.y, y) + ints(k.argmax, y) + in(k.x, x), x};
}
Cost cost(const MaxBwd& k) {
  const double x = box(k.outer, k.n, k.inner), y = box(k.outer, 1, k.inner);
  return {out(k.dx, x) + in(k.dy, y) + ints(k.argmax, y), x};
}
Cost cost(const Cumsum& k) {
  const double x = box(k.outer, k.n, k.inner);
  return {out(k.y, x) + in(k.x, x), x};
}
Cost cost(const SoftmaxFwd& k) {  // largest, difference, exponential, sum, division
  const double x = box(k.outer, k.n, k.inner);
  return {4 * x + in(k.x, x), 5 * x};
}
Cost cost(const SoftmaxBwd& k) {
  const double x = box(k.outer, k.n, k.inner);
  return {out(k.dx, x) + 8 * x, 4 * x};
}
Cost cost(const LogSumExpFwd& k) {
  const double x = box(k.outer, k.n, k.inner);
  return {4 * box(k.outer, 1, k.inner) + in(k.x, x), 4 * x};
}
Cost cost(const LogSumExpBwd& k) {
  const double x = box(k.outer, k.n, k.inner);
  return {out(k.dx, x) + 8 * box(k.outer, 1, k.inner) + in(k.x, x), 3 * x};
}

// ---- norms
Cost cost(const LayerNormFwd& k) {
  const double x = double(k.R) * double(k.C);
  return {out(k.y, x) + in(k.x, x) + 8.0 * k.R + 8.0 * k.C, 7 * x};
}
Cost cost(const LayerNormBwd& k) {
  const double x = double(k.R) * double(k.C), parameters = out(k.dgamma, k.C) + out(k.dbeta, k.C) + 4.0 * k.C;
  return {out(k.dx, x) + in(k.dy, x) + in(k.x, x) + parameters + 8.0 * k.R, 12 * x};
}
Cost cost(const RmsNormFwd& k) {
  const double x = double(k.R) * double(k.C);
  return {out(k.y, x) + in(k.x, x) + 4.0 * k.R + in(k.gamma, k.C), 4 * x};
}
Cost cost(const RmsNormBwd& k) {
  const double x = double(k.R) * double(k.C), parameters = out(k.dgamma, k.C) + in(k.gamma, k.C);
  return {out(k.dx, x) + in(k.dy, x) + in(k.x, x) + parameters + 4.0 * k.R, 9 * x};
}

// ---- products: an operand that is read again for each matrix of a batch counts once
Cost cost(const Gemm& k) {
  const auto matrices = [&](const Index(&stride)[2]) {
    return (stride[0] ? double(k.batch[0]) : 1) * (stride[1] ? double(k.batch[1]) : 1);
  };
  const double batches = double(k.batch[0] * k.batch[1]), c = batches * double(k.M) * double(k.N);
  const double a = matrices(k.a_batch) * double(k.M) * double(k.K), b = matrices(k.b_batch) * double(k.K) * double(k.N);
  const double epilogue = out(k.saved, c) * (k.epilogue == Epilogue::gelu_bwd ? 2 : 1) + in(k.residual, c);
  return {out(k.c, c) + in(k.a, a) + in(k.b, b) + in(k.bias, k.N) + epilogue, 2 * c * double(k.K)};
}

Cost cost(const FewRows& k) {
  const double y = double(k.R) * double(k.O), W = double(k.O) * double(k.I);
  const double weights = double(k.W.bytes()) * W + (k.W.scale ? 4.0 * double(k.O) : 0);
  return {weights + out(k.y, y) + in(k.x, double(k.R) * double(k.I)) + in(k.bias, k.O) + in(k.residual, y),
          2 * double(k.R) * W};
}

// ---- tables and losses
Cost cost(const EmbeddingFwd& k) {
  const double y = double(k.R) * double(k.C);
  return {out(k.y, y) + in(k.table, y) + 4.0 * k.R, 0};
}
Cost cost(const EmbeddingBwd& k) {
  const double y = double(k.R) * double(k.C);
  return {out(k.dtable, double(k.V) * double(k.C)) + in(k.dy, y) + 4.0 * k.R, y};
}
Cost cost(const CrossEntropyFwd& k) {
  const double x = double(k.R) * double(k.V);
  return {in(k.logits, x) + 12.0 * k.R, 4 * x};
}
Cost cost(const CrossEntropyBwd& k) {
  const double x = double(k.R) * double(k.V);
  return {out(k.dlogits, x) + in(k.logits, x) + 12.0 * k.R, 3 * x};
}

// ---- attention
Cost cost(const SoftmaxAttentionFwd& k) {  // scores, 4 for each weight, sums of values
  const Sizes s(k.size, k.causal);
  const double bytes = out(k.out, s.out) + in(k.q, s.q) + in(k.k, s.k) + in(k.v, s.v) + 4 * s.rows;
  return {bytes, s.pairs * double(2 * k.size.d + 2 * k.size.dv + 4)};
}
Cost cost(const SoftmaxAttentionBwd& k) {  // scores and weights again, dv, d weights, dq, dk
  const Sizes s(k.size, k.causal);
  const double given = in(k.dout, s.out) + in(k.out, s.out) + in(k.q, s.q) + in(k.k, s.k) + in(k.v, s.v) + 4 * s.rows;
  return {given + out(k.dq, s.q) + out(k.dk, s.k) + out(k.dv, s.v), s.pairs * double(6 * k.size.d + 4 * k.size.dv + 6)};
}
Cost cost(const SoftmaxAttentionStep& k) {
  const double heads = double(k.B * k.H), keys = heads * double(k.length * k.d),
               values = heads * double(k.length * k.dv);
  return {out(k.out, heads * double(k.dv)) + in(k.q, heads * double(k.d)) + in(k.keys, keys) + in(k.values, values),
          2 * keys + 2 * values + 4 * heads * double(k.length)};
}
Cost cost(const FeatureFwd& k) {
  const double vectors = double(k.B * k.H * k.N), M = double(feature_count(k.map.kind, k.map.n, k.d));
  return {4 * vectors * M + in(k.x, vectors * double(k.d)) + map_bytes(k.map, k.H, k.d),
          vectors * feature_operations(k.map, k.d, false)};
}
Cost cost(const FeatureBwd& k) {
  const double vectors = double(k.B * k.H * k.N), M = double(feature_count(k.map.kind, k.map.n, k.d));
  const double x = vectors * double(k.d), map = map_bytes(k.map, k.H, k.d) + map_bytes(k.dmap, k.map, k.H, k.d);
  return {out(k.dx, x) + 4 * vectors * M + in(k.x, x) + map, vectors * feature_operations(k.map, k.d, true)};
}
Cost cost(const LinearAttentionFwd& k) {
  const Sizes s(k.size, k.causal);
  const double bytes = out(k.out, s.out) + in(k.q, s.q) + in(k.k, s.k) + in(k.v, s.v) + 12 * s.rows;
  return {bytes + map_bytes(k.map, k.size.H, k.size.d), linear_operations(k.size, k.map, false)};
}
Cost cost(const LinearAttentionBwd& k) {
  const Sizes s(k.size, k.causal);
  const double given = in(k.dout, s.out) + in(k.out, s.out) + in(k.q, s.q) + in(k.k, s.k) + in(k.v, s.v) + 12 * s.rows;
  const double map = map_bytes(k.map, k.size.H, k.size.d) + map_bytes(k.dmap, k.map, k.size.H, k.size.d);
  return {given + out(k.dq, s.q) + out(k.dk, s.k) + out(k.dv, s.v) + map, linear_operations(k.size, k.map, true)};
}
Cost cost(const LinearAttentionStep& k) {
  const double heads = double(k.B * k.H), M = double(feature_count(k.map.kind, k.map.n, k.d));
  const double state = heads * M * double(k.dv + 1), vectors = heads * double(k.d);
  return {8 * state + out(k.out, heads * double(k.dv)) + in(k.q, vectors) + in(k.k, vectors) +
              in(k.v, heads * double(k.dv)) + map_bytes(k.map, k.H, k.d),
          4 * state + 2 * heads * feature_operations(k.map, k.d, false)};
}
Cost cost(const LinearAttentionState& k) {
  const double rows = double(k.B * k.H) * double(k.N), M = double(feature_count(k.map.kind, k.map.n, k.d));
  const double state = double(k.B * k.H) * M * double(k.dv + 1);
  return {8 * state + in(k.k, rows * double(k.d)) + in(k.v, rows * double(k.dv)) + map_bytes(k.map, k.H, k.d),
          rows * (2 * M * double(k.dv + 1) + feature_operations(k.map, k.d, false))};
}
Cost cost(const Rope& k) {
  const double n = 3.0 * double(k.B * k.T) * double(k.H * k.d);
  return {out(k.y, n) + in(k.x, n), 2 * n};
}

// ---- optimisers
Cost cost(const AdamStep& k) { return {28.0 * k.n, 14.0 * k.n}; }  // p, m, v read and written, g read
Cost cost(const SgdStep& k) { return {(k.m ? 20.0 : 12.0) * k.n, (k.m ? 5.0 : 3.0) * k.n}; }
Cost cost(const SquaredNorms& k) {
  double n = 0;
  for (Index i = 0; i < k.count; ++i) n += double(k.arrays[i].n);
  return {4 * n + 8.0 * k.count, 2 * n};
}
Cost cost(const ClipScale& k) { return {8.0 * k.count + 4, double(k.count) + 4}; }

}  // namespace flexformer
