// The public ops. Each is one function: a forward kernel, then a backward function put on the open tape (tape.h).
// Activations are f32 or, on a GPU, bf16, and results have their format unless said; parameters are f32 always. An axis
// may be negative (counted from the end). Bad shapes throw Error, naming the op and the sizes. Gradients have exactly
// the shape and the format of their input.
#pragma once
#include <initializer_list>
#include <vector>

#include "autograd/tape.h"

namespace flexformer {

using Axes = std::vector<int>;

// ---- arithmetic (ops_elementwise.cpp) -------------------------------------------------------------------------------
// Shapes are aligned at their last axes; a size 1, or a missing axis, is repeated. A broadcast operand's gradient is
// summed over the repeats.
Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
Var div(const Var& a, const Var& b);
Var maximum(const Var& a, const Var& b);  // at a tie the gradient goes to a
Var minimum(const Var& a, const Var& b);  // at a tie the gradient goes to a
Var scale(const Var& x, float factor);    // factor * x
Var shift(const Var& x, float amount);    // x + amount
Var neg(const Var& x);
inline Var operator+(const Var& a, const Var& b) { return add(a, b); }
inline Var operator-(const Var& a, const Var& b) { return sub(a, b); }
inline Var operator*(const Var& a, const Var& b) { return mul(a, b); }
inline Var operator/(const Var& a, const Var& b) { return div(a, b); }
inline Var operator*(float factor, const Var& x) { return scale(x, factor); }
inline Var operator-(const Var& x) { return neg(x); }

// Elementwise functions. Where the incoming gradient is exactly 0 the outgoing one is 0 too, even where the derivative
// is infinite (sqrt at 0), so that a masked branch cannot leak a NaN.
Var exp(const Var& x);
Var log(const Var& x);
Var sqrt(const Var& x);
Var rsqrt(const Var& x);  // 1 / sqrt(x)
Var sin(const Var& x);
Var cos(const Var& x);
Var tanh(const Var& x);
Var sigmoid(const Var& x);
Var relu(const Var& x);      // gradient 0 at 0
Var elu(const Var& x);       // x > 0 ? x : e^x - 1
Var gelu(const Var& x);      // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
Var gelu_erf(const Var& x);  // x Phi(x)
Var silu(const Var& x);      // x sigmoid(x)
Var softplus(const Var& x);  // log(1 + e^x)
Var square(const Var& x);
Var abs(const Var& x);  // gradient 0 at 0
Var pow(const Var& x, float exponent);

// condition [i32, shape of a and b, not 0 = true] ? a : b.
Var where(const Tensor& condition, const Var& a, const Var& b);
// x with `value` where mask (i32, x's shape) is not 0.
Var masked_fill(const Var& x, const Tensor& mask, float value);

// x as f32 or bf16 (activations on a GPU; precision.h); the gradient is cast back.
Var cast(const Var& x, DType dtype);

// x * keep / (1 - p), keep ~ Bernoulli(1 - p) drawn from `key`; p in [0, 1). p = 0 is x itself. `step` (i32 [1], on x's
// device, or undefined) times 2^32 is added to key.stream when the mask is drawn: the masks of a step that is repeated
// as a whole are others when that number is.
Var dropout(const Var& x, float p, RandomKey key, const Tensor& step = {});

// ---- shape (ops_shape.cpp) ------------------------------------------------------------------------------------------
Var reshape(const Var& x, const Shape& shape);  // equally many elements
Var permute(const Var& x, const Axes& order);   // axis i of the result is axis order[i] of x
Var transpose(const Var& x, int axis_a, int axis_b);
// Elements start, start+step, ... below stop of one axis; stop may pass the end, negative positions count from the end.
Var slice(const Var& x, int axis, Index start, Index stop, Index step = 1);
// Joins along an axis; all other sizes must agree. Throws Error for an empty list.
Var concat(const std::vector<Var>& parts, int axis);
// Repeats axes of size 1 (or missing in front) up to `shape`.
Var expand(const Var& x, const Shape& shape);

// ---- reductions (ops_reduce.cpp) ------------------------------------------------------------------------------------
// Over the given axes, all axes if none are given; reduced axes stay with size 1 if keep. The sum of nothing is 0;
// mean, max and variance of nothing throw Error.
Var sum(const Var& x, const Axes& axes = {}, bool keep = false);
Var mean(const Var& x, const Axes& axes = {}, bool keep = false);
Var variance(const Var& x, const Axes& axes = {}, bool keep = false);  // biased: mean((x - mean)^2), two passes
Var max(const Var& x, int axis, bool keep = false);  // at a tie the whole gradient goes to the first largest
Var cumsum(const Var& x, int axis);
// These three give f32 whatever x is.
Var softmax(const Var& x, int axis);      // a row of -infinity gives zeros
Var log_softmax(const Var& x, int axis);  // a row of -infinity gives -infinity
Var logsumexp(const Var& x, int axis, bool keep = false);

// ---- norms over the last axis (ops_norm.cpp) ------------------------------------------------------------------------
// y = (x - mean) / sqrt(var + eps) * gamma + beta.  x [.., C], gamma [C], beta [C] -> y [.., C].
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float eps = 1e-5f);
// y = x / sqrt(mean(x^2) + eps) * gamma.  x [.., C], gamma [C] or undefined (ones) -> y [.., C].
Var rms_norm(const Var& x, const Var& gamma, float eps = 1e-6f);
// y = x / |x| over the last axis; a row of zeros stays zero, with zero gradient.
Var l2_normalize(const Var& x);

// ---- products (ops_matmul.cpp) --------------------------------------------------------------------------------------
// Matrix product over the last two axes, leading axes broadcast: a [.., M, K], b [.., K, N] -> [.., M, N].
// With transpose_a, a is [.., K, M]; with transpose_b, b is [.., N, K].
Var matmul(const Var& a, const Var& b, bool transpose_a = false, bool transpose_b = false);
// y = x W^T + b (+ residual).  x [.., I], W [O, I], b [O] or undefined, residual as y or undefined -> y [.., O].
Var linear(const Var& x, const Var& W, const Var& b, const Var& residual = Var());
// y = gelu(x W1^T + b1) W2^T + b2 (+ residual), fused: linear, gelu and linear without a pass over memory of their own
// for biases, gelu and residual, and gelu's values are made again in the backward pass instead of being kept.
// x [.., I], W1 [F, I], b1 [F] or undefined, W2 [O, F], b2 [O] or undefined, residual as y or undefined -> y [.., O].
Var mlp(const Var& x, const Var& W1, const Var& b1, const Var& W2, const Var& b2, const Var& residual = Var());

// ---- tables and losses (ops_loss.cpp) -------------------------------------------------------------------------------
// Ids and targets are checked on the host before a kernel gets them. That is where to keep them, wherever the values
// are: they move by themselves, while those on a GPU would have to be fetched, and waited for.

// Rows of a table [V, C] -> [ids.., C]. An id outside 0 .. V-1 throws Error. Row `padding` is read as any other but
// gets no gradient; -1: none.
Var embedding(const Var& table, const Tensor& ids, std::int32_t padding = -1);

struct CrossEntropyOptions {
  std::int32_t ignore_index = -100;  // targets of this value count for nothing
  float label_smoothing = 0;         // s: the target distribution is (1-s) one-hot + s uniform
  bool mean = true;                  // over the targets that count (0 if there are none); otherwise the sum
};
// logits [.., V], targets i32 [..] -> a scalar, in nats. A target outside 0 .. V-1 that is not ignore_index throws
// Error with its position and value.
Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options = {});
// How far softmax(logits) is from the teacher's softmax(teacher), sum over rows of KL(teacher || student) in nats:
// sum_v p_v (log p_v - log softmax(logits)_v), p = softmax(teacher). teacher, logits [.., V] -> a scalar. The teacher
// gets no gradient.
Var softmax_divergence(const Tensor& teacher, const Var& logits);
// cross_entropy(linear(x, W, b), targets, options) for large vocabularies: rows go through in chunks, and the gradients
// are made on the way, so that logits of one chunk are all that ever exists.
// x [.., I], W [V, I], b [V] or undefined, targets i32 [..] -> a scalar, in nats.
Var linear_cross_entropy(const Var& x, const Var& W, const Var& b, const Tensor& targets,
                         const CrossEntropyOptions& options = {});

// ---- attention (ops_attention.cpp) ----------------------------------------------------------------------------------
struct AttentionMask {
  bool causal = false;
  Tensor key_mask;  // i32 [B, Nk], 0 = this key is invisible; undefined: all visible
};

// out_i = sum_j softmax_j(scale q_i.k_j) v_j.  q [B,H,Nq,d], k [B,H,Nk,d], v [B,H,Nk,dv] -> [B,H,Nq,dv]. scale = 0
// stands for 1/sqrt(d). Never an Nq x Nk matrix in memory. A query that sees no key gets 0 and gives no gradient.
Var softmax_attention(const Var& q, const Var& k, const Var& v, const AttentionMask& mask, float scale = 0);
// The same on a packed projection: qkv [B,T,3C], channels q | k | v, each H heads of C/H -> [B,T,C].
Var softmax_self_attention(const Var& qkv, Index heads, const AttentionMask& mask);

// A feature map and its parameters; see FeatureMap in kernels_attention.h.
struct FeatureMapVars {
  FeatureKind kind = FeatureKind::elu1;
  Var w1 = {}, w2 = {};  // [H,n,d]; undefined where the map has none
  Var tau = {};          // [H]; undefined: all keys weigh 1
  Index max_length = 0;  // cosformer: of the sequences it is made for; longer ones throw Error
};

// Features of x [B,H,N,d], queries or keys -> f32 [B,H,N,M].
Var feature_map(const Var& x, const FeatureMapVars& map, bool keys = false);

// Kernel attention in linear time: out_i = sum_j w_j k_ij v_j / max(den_i, floor * sum_j w_j), math.md "Linear
// attention". Shapes as softmax_attention. floor = 0 is the paper's formula as it is.
Var linear_attention(const Var& q, const Var& k, const Var& v, const FeatureMapVars& map, const AttentionMask& mask,
                     float floor);
Var linear_self_attention(const Var& qkv, Index heads, const FeatureMapVars& map, const AttentionMask& mask,
                          float floor);

// How far the weights of kernel attention are from those of a softmax attention, the teacher: for each head the mean,
// over batch and queries, of the cross-entropy in nats (the paper's attention weight distillation)
//   L = -sum_j P_ij log max(A_ij, 1e-6),   P = softmax(q' k'^T / sqrt(d')),   A_ij = w_j k_ij / D_i
// Queries that key_mask hides do not count. teacher_q, teacher_k [B,H,N,d'], q, k [B,H,N,d] -> [H]. Time N^2, memory N.
//   attention's own   D_i = max(den_i, floor sum_j w_j). The paper's loss. Where k_ij may be negative it has no
//                     minimum: against enough negative weights the others grow beyond 1.
//   magnitudes        D_i = max(sum_j w_j |k_ij|, floor sum_j w_j). Equal without negative weights; then, and only
//                     then, L can fall to its least, the entropy of P. math.md (10.2)
enum class DistilledSum { own, magnitudes };
Var attention_distillation(const Tensor& teacher_q, const Tensor& teacher_k, const Var& q, const Var& k,
                           const FeatureMapVars& map, const AttentionMask& mask, float floor,
                           DistilledSum by = DistilledSum::own);

// Rotary positions on the q and k parts of qkv [B,T,3C]; token t stands at `position` + t.
Var rope(const Var& qkv, Index heads, Index position = 0, float base = 10000);

}  // namespace flexformer
