// Attention. Each kind is one fused kernel forward and one backward, on separate tensors [B,H,N,d] or on one packed
// projection [B,T,3C]: to the kernels the two differ only in strides.
#include <cmath>

#include "autograd/op_util.h"

namespace flexformer {
namespace {

// Where element (b,i,h,c) of q, k, v or out lies: offset + b*batch + i*row + h*head + c.
struct Heads {
  Index offset, batch, row, head;
  HeadsIn in(const Tensor& x) const { return {x.values().from(offset), batch, row, head}; }
  HeadsOut out(GradOut y) const { return {y.from(offset), batch, row, head}; }
};
Heads separate(Index H, Index N, Index d) { return {0, H * N * d, d, N * d}; }
Heads packed(Index T, Index C, Index d, Index part) { return {part * C, T * 3 * C, 3 * C, d}; }

// The inputs of one attention and how they lie in memory. Packed: q, k and v are the same variable.
struct Problem {
  Var q, k, v;
  bool is_packed;
  Heads at_q, at_k, at_v, at_out;
  AttentionSize size;
  Shape out;
  bool causal;
  Tensor key_mask;
  const std::int32_t* mask() const { return key_mask.defined() ? key_mask.ints() : nullptr; }
};

void check_mask(const char* op, const AttentionMask& mask, const AttentionSize& size) {
  check(op, !mask.causal || size.Nq == size.Nk, "causal attention needs as many queries as keys, got ", size.Nq,
        " and ", size.Nk);
  if (!mask.key_mask.defined()) return;
  check(op, mask.key_mask.dtype() == DType::i32, "key_mask must be i32, got ", name_of(mask.key_mask.dtype()));
  check(op, mask.key_mask.shape() == Shape{size.B, size.Nk}, "key_mask ", mask.key_mask.shape(), " for ", size.B,
        " sequences of ", size.Nk, " keys");
}

Problem separate_problem(const char* op, const Var& q, const Var& k, const Var& v, const AttentionMask& mask) {
  for (const Var* x : {&q, &k, &v}) check(op, x->shape().rank() == 4, "q, k and v must be [B,H,N,d], got ", x->shape());
  const Index B = q.size(0), H = q.size(1), Nq = q.size(2), Nk = k.size(2), d = q.size(3), dv = v.size(3);
  check(op, k.shape() == Shape({B, H, Nk, d}) && v.shape() == Shape({B, H, Nk, dv}), "sizes differ: q ", q.shape(),
        ", k ", k.shape(), ", v ", v.shape());
  check(op, d >= 1 && dv >= 1, "heads are empty: q ", q.shape(), ", v ", v.shape());
  const AttentionSize size{B, H, Nq, Nk, d, dv};
  check_mask(op, mask, size);
  const DType dtype = v.dtype() == DType::bf16 ? v.dtype() : common_dtype(q, k);  // kernels read q, k and v as one
  return {cast(q, dtype),     cast(k, dtype),      cast(v, dtype),      false, separate(H, Nq, d),
          separate(H, Nk, d), separate(H, Nk, dv), separate(H, Nq, dv), size,  {B, H, Nq, dv},
          mask.causal,        mask.key_mask};
}

// Sizes of a packed projection.
struct PackedSize {
  Index B, T, C, d;
};
PackedSize packed_size(const char* op, const Var& qkv, Index heads) {
  check(op, qkv.shape().rank() == 3 && qkv.size(2) % 3 == 0, "qkv must be [B,T,3C], got ", qkv.shape());
  const Index C = qkv.size(2) / 3;
  check(op, heads >= 1 && C >= heads && C % heads == 0, C, " channels cannot be cut into ", heads, " heads");
  return {qkv.size(0), qkv.size(1), C, C / heads};
}

Problem packed_problem(const char* op, const Var& qkv, Index heads, const AttentionMask& mask) {
  const auto [B, T, C, d] = packed_size(op, qkv, heads);
  const AttentionSize size{B, heads, T, T, d, d};
  check_mask(op, mask, size);
  return {qkv,
          qkv,
          qkv,
          true,
          packed(T, C, d, 0),
          packed(T, C, d, 1),
          packed(T, C, d, 2),
          {0, T * C, C, d},
          size,
          {B, T, C},
          mask.causal,
          mask.key_mask};
}

// Where one backward kernel writes dq, dk and dv. It writes them in any order, so they must not overlap: a variable
// that is given twice gets the later gradient through a tensor of its own.
struct QkvGradients {
  HeadsOut dq, dk, dv;
  Tensor own_dk, own_dv;
};

GradOut apart(const Var& x, bool taken, Tensor& own) {
  if (!taken || !x.requires_grad()) return x.gradient().out();
  own = Tensor::empty(x.shape(), x.dtype(), x.device());
  return {own.values(), false};
}

QkvGradients open_gradients(const Problem& p) {
  const GradOut dq = p.q.gradient().out();
  if (p.is_packed) return {p.at_q.out(dq), p.at_k.out(dq), p.at_v.out(dq), {}, {}};
  QkvGradients g{p.at_q.out(dq), {}, {}, {}, {}};
  g.dk = p.at_k.out(apart(p.k, p.k.same_as(p.q), g.own_dk));
  g.dv = p.at_v.out(apart(p.v, p.v.same_as(p.q) || p.v.same_as(p.k), g.own_dv));
  return g;
}

void close_gradients(const Problem& p, const QkvGradients& g) {
  const auto add_to = [](const Var& x, const Tensor& own) {
    if (own.defined())
      launch(x.device(),
             SumFwd{.y = x.gradient().out(), .x = own.values(), .outer = own.numel(), .n = 1, .inner = 1, .scale = 1});
  };
  add_to(p.k, g.own_dk);
  add_to(p.v, g.own_dv);
}

Var softmax_of(const char* op, const Problem& p, float factor) {
  const float scale = factor != 0.0f ? factor : 1.0f / std::sqrt(float(p.size.d));
  Tensor out = Tensor::empty(p.out, p.q.dtype(), p.q.device());
  Tensor lse = Tensor::empty({p.size.B, p.size.H, p.size.Nq}, DType::f32, p.q.device());
  launch(p.q.device(), SoftmaxAttentionFwd{.out = p.at_out.out({out.values(), false}),
                                           .lse = lse.data(),
                                           .q = p.at_q.in(p.q.value()),
                                           .k = p.at_k.in(p.k.value()),
                                           .v = p.at_v.in(p.v.value()),
                                           .key_mask = p.mask(),
                                           .size = p.size,
                                           .scale = scale,
                                           .causal = p.causal});
  return record(op, out, {&p.q, &p.k, &p.v}, [p, out, lse, scale](const Tensor& dout) {
    const QkvGradients g = open_gradients(p);
    launch(p.q.device(), SoftmaxAttentionBwd{.dq = g.dq,
                                             .dk = g.dk,
                                             .dv = g.dv,
                                             .dout = p.at_out.in(dout),
                                             .out = p.at_out.in(out),
                                             .q = p.at_q.in(p.q.value()),
                                             .k = p.at_k.in(p.k.value()),
                                             .v = p.at_v.in(p.v.value()),
                                             .lse = lse.data(),
                                             .key_mask = p.mask(),
                                             .size = p.size,
                                             .scale = scale,
                                             .causal = p.causal});
    close_gradients(p, g);
  });
}

Index frequencies(const FeatureMapVars& map) { return map.w1.defined() ? map.w1.size(1) : 0; }

void check_map(const char* op, const FeatureMapVars& map, Index H, Index d, Index N) {
  const int sets = weight_sets(map.kind);
  check(op, map.w1.defined() == (sets >= 1) && map.w2.defined() == (sets >= 2), "this feature map has ",
        sets == 0   ? "neither w1 nor w2"
        : sets == 1 ? "w1, but no w2"
                    : "both w1 and w2");
  if (sets >= 1)
    check(op, map.w1.shape().rank() == 3 && map.w1.size(1) >= 1 && map.w1.shape() == Shape({H, map.w1.size(1), d}),
          "w1 must be [", H, ",n,", d, "], got ", map.w1.shape());
  if (sets >= 2)
    check(op, map.w2.shape() == map.w1.shape(), "w2 ", map.w2.shape(), " must have the shape of w1 ", map.w1.shape());
  check(op, map.kind != FeatureKind::polaformer || map.w1.size(1) == 1, "polaformer has one exponent per channel, w1 [",
        H, ",1,", d, "], got ", map.w1.defined() ? text(map.w1.shape()) : "nothing");
  check(op, !map.tau.defined() || map.tau.shape() == Shape{H}, "tau must be [", H, "], got ",
        map.tau.defined() ? text(map.tau.shape()) : "nothing");
  check(op, map.kind != FeatureKind::performer || !map.tau.defined(), "performer weighs keys by itself, without tau");
  check(op, map.kind != FeatureKind::cosformer || N <= map.max_length, "cosformer is set up for at most ",
        map.max_length, " tokens, got ", N, "; train it with a longer context, or take another kind of attention");
}

FeatureMap kernel_map(const FeatureMapVars& map, bool opposite = false) {
  return {.kind = map.kind,
          .n = frequencies(map),
          .w1 = data_or_null(map.w1),
          .w2 = data_or_null(map.w2),
          .tau = data_or_null(map.tau),
          .max_length = map.max_length,
          .opposite = opposite};
}

// One run of the kernels, on values and outputs `first` .. first+dv-1 of every head, and what its backward pass needs.
// polaformer takes two, one for each part of the values; all other kinds take one.
struct Stream {
  Index first;
  AttentionSize size;
  bool opposite;
  Tensor running_max, denominator, unfloored;  // [B,H,Nq]

  HeadsIn part(const HeadsIn& x) const { return {x.p.from(first), x.batch, x.row, x.head}; }
  HeadsOut part(const HeadsOut& x) const { return {x.grad.from(first), x.batch, x.row, x.head}; }
};

std::vector<Stream> streams_of(const Problem& p, FeatureKind kind) {
  const auto stream = [&](Index first, Index width) {
    AttentionSize size = p.size;
    size.dv = width;
    const auto rows = [&] { return Tensor::empty({size.B, size.H, size.Nq}, DType::f32, p.q.device()); };
    return Stream{first, size, first > 0, rows(), rows(), rows()};
  };
  const Index dv = p.size.dv, half = (dv + 1) / 2;
  if (kind != FeatureKind::polaformer) return {stream(0, dv)};
  if (half == dv) return {stream(0, half)};  // a single channel
  return {stream(0, half), stream(half, dv - half)};
}

void linear_backward(const Problem& p, const FeatureMapVars& map, const std::vector<Stream>& streams, const Tensor& out,
                     float floor, const Tensor& dout) {
  QkvGradients g = open_gradients(p);
  for (const Stream& s : streams) {
    launch(p.q.device(), LinearAttentionBwd{.dq = g.dq,
                                            .dk = g.dk,
                                            .dv = s.part(g.dv),
                                            .dmap = {.dw1 = map.w1.gradient().out(),
                                                     .dw2 = map.w2.gradient().out(),
                                                     .dtau = map.tau.gradient().out()},
                                            .dout = s.part(p.at_out.in(dout)),
                                            .out = s.part(p.at_out.in(out)),
                                            .q = p.at_q.in(p.q.value()),
                                            .k = p.at_k.in(p.k.value()),
                                            .v = s.part(p.at_v.in(p.v.value())),
                                            .running_max = s.running_max.data(),
                                            .denominator = s.denominator.data(),
                                            .unfloored = s.unfloored.data(),
                                            .key_mask = p.mask(),
                                            .map = kernel_map(map, s.opposite),
                                            .size = s.size,
                                            .floor = floor,
                                            .causal = p.causal});
    g.dq.grad.add = g.dk.grad.add = true;
  }
  close_gradients(p, g);
}

Var linear_of(const char* op, const Problem& p, const FeatureMapVars& map, float floor) {
  check_map(op, map, p.size.H, p.size.d, std::max(p.size.Nq, p.size.Nk));
  check(op, floor >= 0.0f && floor < 1.0f, "floor ", floor, " is not in [0, 1)");
  Tensor out = Tensor::empty(p.out, p.q.dtype(), p.q.device());
  const std::vector<Stream> streams = streams_of(p, map.kind);
  for (const Stream& s : streams) {
    Tensor running_max = s.running_max, denominator = s.denominator, unfloored = s.unfloored;
    launch(p.q.device(), LinearAttentionFwd{.out = s.part(p.at_out.out({out.values(), false})),
                                            .running_max = running_max.data(),
                                            .denominator = denominator.data(),
                                            .unfloored = unfloored.data(),
                                            .q = p.at_q.in(p.q.value()),
                                            .k = p.at_k.in(p.k.value()),
                                            .v = s.part(p.at_v.in(p.v.value())),
                                            .key_mask = p.mask(),
                                            .map = kernel_map(map, s.opposite),
                                            .size = s.size,
                                            .floor = floor,
                                            .causal = p.causal});
  }
  return record(
      op, out, {&p.q, &p.k, &p.v, &map.w1, &map.w2, &map.tau},
      [p, map, streams, out, floor](const Tensor& dout) { linear_backward(p, map, streams, out, floor, dout); });
}

}  // namespace

Var softmax_attention(const Var& q, const Var& k, const Var& v, const AttentionMask& mask, float scale) {
  return softmax_of("softmax_attention", separate_problem("softmax_attention", q, k, v, mask), scale);
}

Var softmax_self_attention(const Var& qkv, Index heads, const AttentionMask& mask) {
  return softmax_of("softmax_self_attention", packed_problem("softmax_self_attention", qkv, heads, mask), 0);
}

Var linear_attention(const Var& q, const Var& k, const Var& v, const FeatureMapVars& map, const AttentionMask& mask,
                     float floor) {
  return linear_of("linear_attention", separate_problem("linear_attention", q, k, v, mask), map, floor);
}

Var linear_self_attention(const Var& qkv, Index heads, const FeatureMapVars& map, const AttentionMask& mask,
                          float floor) {
  return linear_of("linear_self_attention", packed_problem("linear_self_attention", qkv, heads, mask), map, floor);
}

Var feature_map(const Var& x, const FeatureMapVars& map, bool keys) {
  check("feature_map", x.shape().rank() == 4 && x.size(3) >= 1, "x must be [B,H,N,d], got ", x.shape());
  const Index B = x.size(0), H = x.size(1), N = x.size(2), d = x.size(3);
  check_map("feature_map", map, H, d, N);
  Tensor y = Tensor::empty(x.shape().with(3, feature_count(map.kind, frequencies(map), d)), DType::f32, x.device());
  launch(x.device(), FeatureFwd{.y = y.data(),
                                .x = x.value().values(),
                                .map = kernel_map(map),
                                .B = B,
                                .H = H,
                                .N = N,
                                .d = d,
                                .keys = keys});
  return record("feature_map", y, {&x, &map.w1, &map.w2}, [x, map, B, H, N, d, keys](const Tensor& dy) {
    launch(x.device(), FeatureBwd{.dx = x.gradient().out(),
                                  .dmap = {.dw1 = map.w1.gradient().out(), .dw2 = map.w2.gradient().out(), .dtau = {}},
                                  .dy = dy.data(),
                                  .x = x.value().values(),
                                  .map = kernel_map(map),
                                  .B = B,
                                  .H = H,
                                  .N = N,
                                  .d = d,
                                  .keys = keys});
  });
}

Var rope(const Var& qkv, Index heads, Index position, float base) {
  const auto [B, T, C, d] = packed_size("rope", qkv, heads);
  check("rope", d % 2 == 0, "turns pairs of channels, so heads of ", d, " channels will not do");
  check("rope", position >= 0 && base > 0.0f, "position ", position, " must be at least 0 and base ", base,
        " positive");
  Tensor y = Tensor::empty(qkv.shape(), qkv.dtype(), qkv.device());
  const Rope turn{.y = {y.values(), false},
                  .x = qkv.value().values(),
                  .B = B,
                  .T = T,
                  .H = heads,
                  .kv_heads = heads,
                  .d = d,
                  .position = position,
                  .base = base,
                  .sign = 1};
  launch(qkv.device(), turn);
  return record("rope", y, {&qkv}, [device = qkv.device(), dqkv = qkv.gradient(), turn](const Tensor& dy) {
    Rope back = turn;
    back.y = dqkv.out();
    back.x = dy.values();
    back.sign = -1;
    launch(device, back);
  });
}

}  // namespace flexformer
