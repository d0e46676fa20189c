// How far the weights of kernel attention are from softmax's. Queries go through in blocks, each with a tape of its own
// that is replayed at once: the gradients are made on the way, and a block's rows of weights are all that ever exist.
#include <algorithm>
#include <cmath>

#include "autograd/op_util.h"

namespace flexformer {
namespace {

constexpr float kLeastWeight = 1e-6f;  // of a student's key: the loss stays finite, and keys below get no gradient

// Queries from .. to, keys 0 .. keys.
struct Block {
  Index from, to, keys;
};

struct Visibility {
  Tensor keys;     // [B or 1, 1, R, keys]: 0 where a query sees a key, else -infinity
  Tensor queries;  // [B or 1, 1, R, 1]: 1 for queries that count
};

// On the host, as the mask must be.
Visibility visibility(const Block& block, const AttentionMask& mask, Index N) {
  const Index B = mask.key_mask.defined() ? mask.key_mask.size(0) : 1, R = block.to - block.from;
  const std::int32_t* present = mask.key_mask.defined() ? mask.key_mask.ints() : nullptr;
  Visibility v{Tensor::full({B, 1, R, block.keys}, 0), Tensor::full({B, 1, R, 1}, 1)};
  for (Index b = 0; b < B; ++b)
    for (Index r = 0; r < R; ++r) {
      const Index i = block.from + r;
      if (present && !present[b * N + i]) v.queries.data()[b * R + r] = 0;
      for (Index j = 0; j < block.keys; ++j)
        if ((mask.causal && j > i) || (present && !present[b * N + j]))
          v.keys.data()[(b * R + r) * block.keys + j] = -INFINITY;
    }
  return v;
}

// -sum over batch and queries of sum_j P_ij log A_ij, for each head: [H].
Var block_loss(const Var& fq, const Var& fk, const Var& log_weights, const Var& teacher, const Visibility& visible,
               float floor, DistilledSum by) {
  const Device device = fq.device();
  const auto constant = [device](float value) { return Var(Tensor::full({1}, value, device)); };
  const Var hidden(visible.keys.to(device));
  const Var P = softmax(teacher + hidden, -1) * Var(visible.queries.to(device));
  const Var kw = matmul(fq, fk, false, true) * softmax(log_weights + hidden, -1);  // k_ij w_j / sum_j w_j
  const Var ratio = sum(by == DistilledSum::own ? kw : abs(kw), {-1}, true);
  const Var A = kw / (floor > 0 ? maximum(ratio, constant(floor)) : ratio);
  return -sum(P * log(maximum(A, constant(kLeastWeight))), {0, 2, 3});
}

// The losses [H] of a student with features fq, fk [B,H,N,M] and log_weights [B,H,N,1] of its keys.
Var distance_from(const Tensor& teacher_q, const Tensor& teacher_k, const Var& fq, const Var& fk,
                  const Var& log_weights, const AttentionMask& mask, float floor, DistilledSum by) {
  const Index B = fq.size(0), H = fq.size(1), N = fq.size(2);
  // Leaves of the blocks' tapes: the same values, with gradients of their own.
  const bool recording = Tape::current() && (fq.requires_grad() || fk.requires_grad() || log_weights.requires_grad());
  const auto leaf = [&](const Var& x) { return Var(x.value(), recording && x.requires_grad()); };
  const Var q_leaf = leaf(fq), k_leaf = leaf(fk), w_leaf = leaf(log_weights);

  constexpr Index block_size = 1 << 20;  // weights at once, 4 MB, in each of about ten tensors
  const Index rows = std::clamp<Index>(block_size / std::max<Index>(1, B * H * N), 8, 128);
  const Device device = fq.device();
  const AttentionMask on_host{mask.causal, mask.key_mask.to(Device::cpu)};
  Tensor losses = Tensor::zeros({H}, DType::f32, device);
  double counted = 0;
  for (Index from = 0; from == 0 || from < N; from += rows) {  // once without queries: gradients are then 0
    const Index to = std::min(N, from + rows);
    const Block block{from, to, mask.causal ? to : N};
    const Visibility visible = visibility(block, on_host, N);
    const std::vector<float> counts = visible.queries.to_vector();
    for (float count : counts) counted += double(count) * double(B) / double(visible.queries.size(0));
    const auto keys = [&](const Var& x) { return slice(x, 2, 0, block.keys); };
    const Var teacher = scale(matmul(slice(Var(teacher_q), 2, from, to), keys(Var(teacher_k)), false, true),
                              1 / std::sqrt(float(teacher_q.size(3))));
    const auto loss = [&] {
      return block_loss(slice(q_leaf, 2, from, to), keys(k_leaf), transpose(keys(w_leaf), 2, 3), teacher, visible,
                        floor, by);
    };
    Tensor part;
    if (recording) {
      Tape tape;
      const Var sums = loss();
      part = sums.value();
      tape.backward(sums, Tensor::full({H}, 1, device));
    } else {
      part = loss().value();
    }
    pass_gradient(device, {losses.data(), true}, part.values(), H);  // losses += part
  }
  const float mean = counted > 0 ? float(1 / counted) : 0;
  const auto gradient = [&](const Var& x) { return x.has_grad() ? x.grad() : Tensor(); };
  return scale(record("attention_distillation", losses, {&fq, &fk, &log_weights},
                      [to_q = fq.gradient(), to_k = fk.gradient(), to_w = log_weights.gradient(), dq = gradient(q_leaf),
                       dk = gradient(k_leaf), dw = gradient(w_leaf)](const Tensor& dy) {
                        // grad [B,H,..] times the gradient of the head's loss
                        const auto release = [&](const Gradient& to, const Tensor& grad) {
                          if (grad.defined()) pass_scaled(to, grad, dy, grad.size(0));
                        };
                        release(to_q, dq);
                        release(to_k, dk);
                        release(to_w, dw);
                      }),
               mean);
}

}  // namespace

Var attention_distillation(const Tensor& teacher_q, const Tensor& teacher_k, const Var& given_q, const Var& given_k,
                           const FeatureMapVars& map, const AttentionMask& mask, float floor, DistilledSum by) {
  const char* op = "attention_distillation";
  for (const auto& [name, x] :
       {std::pair("teacher_q", Var(teacher_q)), {"teacher_k", Var(teacher_k)}, {"q", given_q}, {"k", given_k}})
    check_input(op, name, x);
  const auto in_float = [](const Var& x) { return cast(x, DType::f32); };  // scores and log-weights become exponents
  const Var q = in_float(given_q), k = in_float(given_k);
  check(op, q.shape().rank() == 4 && k.shape() == q.shape(), "q is ", q.shape(), ", k ", k.shape(),
        "; both must be [B,H,N,d]");
  const Index B = q.size(0), H = q.size(1), N = q.size(2);
  check(op, teacher_k.shape() == teacher_q.shape() && teacher_q.shape() == q.shape().with(3, teacher_q.size(3)),
        "the teacher's q is ", teacher_q.shape(), ", its k ", teacher_k.shape(), ", but the student's ", q.shape());
  check(op, floor >= 0.0f && floor < 1.0f, "floor ", floor, " is not in [0, 1)");
  check(op, map.kind != FeatureKind::performer && map.kind != FeatureKind::polaformer,
        "performer and polaformer have no weights phi(q).phi(k) that could be compared");
  if (mask.key_mask.defined()) {
    check_ints(op, "key_mask", mask.key_mask);
    check(op, mask.key_mask.shape() == Shape({B, N}), "key_mask ", mask.key_mask.shape(), " for ", B, " sequences of ",
          N, " keys");
  }
  const Var fq = feature_map(q, map), fk = feature_map(k, map, true);
  const Var log_weights = map.tau.defined()
                              ? sum(square(k), {3}, true) * reshape(exp(neg(map.tau)), {1, H, 1, 1})  // [B,H,N,1]
                              : Var(Tensor::zeros({B, H, N, 1}, DType::f32, q.device()));
  return distance_from(in_float(Var(teacher_q)).value(), in_float(Var(teacher_k)).value(), fq, fk, log_weights, mask,
                       floor, by);
}

}  // namespace flexformer
