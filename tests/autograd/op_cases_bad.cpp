// Calls that must be refused, and what the refusal says. A test compares this list with the checks in
// autograd/ops_*.cpp: a check without a row here is a failure.
#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

Device device = Device::cpu;  // where the calls' tensors are made

Tensor zeros(const Shape& shape, DType dtype = DType::f32) { return Tensor::zeros(shape, dtype, device); }
Var var(const Shape& shape) { return Var(zeros(shape), true); }
Tensor from_ints(const Shape& shape, const Ints& values) { return Tensor::from_ints(shape, values, device); }
Tensor ints(const Shape& shape, std::int32_t value = 0) {
  return from_ints(shape, Ints(std::size_t(shape.numel()), value));
}
Var whole(const Shape& shape) { return Var(ints(shape)); }

FeatureMapVars trig_s(const Shape& w1) { return {FeatureKind::trig_s, var(w1), {}, {}}; }
const FeatureMapVars elu1{FeatureKind::elu1, {}, {}, {}};

void add_elementwise(BadCases& cases) {
  cases.push_back({"undefined", [] { exp(Var()); }, "exp: x is undefined"});
  cases.push_back({"cast to ints", [] { cast(var({3}), DType::i32); }, "cast: i32 is no format of activations here"});
  cases.push_back({"cast to bf16", [] { cast(var({3}), DType::bf16); }, "bf16 is no format of activations here", true});
  cases.push_back({"bf16 on the host", [] { exp(Var(zeros({3}, DType::bf16))); }, "x holds bf16, this op needs", true});
  cases.push_back({"wrong type", [] { exp(whole({3})); }, "exp: x holds i32, this op needs f32"});
  cases.push_back({"undefined b", [] { add(var({3}), Var()); }, "add: b is undefined"});
  cases.push_back({"broadcast",
                   [] {
                     mul(var({2, 3}), var({2}));
                   },
                   "mul: shapes [2,3] and [2] do not broadcast: sizes 3 and 2 at axis -1 differ and neither is 1"});
  cases.push_back({"broadcast of sizes 0 and 2", [] { add(var({0}), var({2})); }, "do not broadcast: sizes 0 and 2"});
  cases.push_back(
      {"where shapes", [] { where(ints({2}), var({2}), var({1})); }, "where: a is [2], b is [1]; expand one of them"});
  cases.push_back({"where condition", [] { where(ints({3}), var({2}), var({2})); },
                   "where: the condition is [3], the values are [2]"});
  cases.push_back(
      {"where without condition", [] { where(Tensor(), var({2}), var({2})); }, "where: the condition is undefined"});
  cases.push_back({"mask type", [] { masked_fill(var({2}), zeros({2}), 0); },
                   "masked_fill: the condition holds f32, this op needs i32"});
  cases.push_back({"dropout of all", [] { dropout(var({2}), 1, {}); }, "dropout: p = 1 is not in [0, 1)"});
  cases.push_back({"dropout by no number", [] { dropout(var({2}), 0.5f, {}, zeros({2}, DType::i32)); },
                   "dropout: the step is [2], not one number"});
  cases.push_back({"dropout of less than nothing", [] { dropout(var({2}), -0.5f, {}); }, "p = -0.5 is not in [0, 1)"});
}

void add_shapes(BadCases& cases) {
  cases.push_back({"reshape", [] { reshape(var({2, 3}), {4}); }, "reshape: [2,3] has 6 elements, [4] has 4"});
  cases.push_back({"permute count", [] { permute(var({2, 3}), {0}); }, "permute: 1 axes given for shape [2,3]"});
  cases.push_back({"permute twice", [] { permute(var({2, 3}), {1, 1}); }, "permute: axis 1 is repeated"});
  cases.push_back({"permute axis", [] { permute(var({2, 3}), {0, 2}); }, "permute: there is no axis 2 in shape [2,3]"});
  cases.push_back({"transpose axis",
                   [] {
                     transpose(var({2, 3}), 0, -3);
                   },
                   "transpose: there is no axis -3 in shape [2,3]"});
  cases.push_back({"slice step", [] { slice(var({4}), 0, 0, 4, 0); }, "slice: step 0 is not positive"});
  cases.push_back(
      {"slice start", [] { slice(var({4}), 0, 5, 6); }, "slice: positions 5 to 6 do not lie in axis 0 of shape [4]"});
  cases.push_back({"slice before the start", [] { slice(var({4}), 0, -5, 4); }, "positions -5 to 4 do not lie in"});
  cases.push_back({"slice axis", [] { slice(var({4}), 1, 0, 1); }, "slice: there is no axis 1 in shape [4]"});
  cases.push_back({"concat of nothing", [] { concat({}, 0); }, "concat: there is nothing to join"});
  cases.push_back({"concat shapes",
                   [] {
                     concat({var({2, 3}), var({2, 4})}, 0);
                   },
                   "concat: part 1 is [2,4], which does not fit to part 0, [2,3], along axis 0"});
  cases.push_back({"concat ranks", [] { concat({var({2, 3}), var({2})}, 0); }, "which does not fit to part 0"});
  cases.push_back({"concat undefined", [] { concat({var({2}), Var()}, 0); }, "concat: part 1 is undefined"});
  cases.push_back({"expand", [] { expand(var({2, 3}), {3}); }, "expand: shape [2,3] does not expand to [3]"});
  cases.push_back({"expand size", [] { expand(var({2}), {3}); }, "expand: shapes [2] and [3] do not broadcast"});
}

void add_reductions(BadCases& cases) {
  cases.push_back({"sum axis", [] { sum(var({2, 3}), {2}); }, "sum: there is no axis 2 in shape [2,3]"});
  cases.push_back({"sum twice", [] { sum(var({2, 3}), {1, -1}); }, "sum: axis -1 is repeated"});
  cases.push_back({"mean of nothing",
                   [] {
                     mean(var({2, 0}), {1});
                   },
                   "mean: the mean of nothing is undefined: shape [2,0]"});
  cases.push_back({"variance of nothing", [] { variance(var({0})); }, "variance: the mean of nothing is undefined"});
  cases.push_back({"max of nothing",
                   [] {
                     max(var({2, 0}), 1);
                   },
                   "max: the maximum of nothing is undefined: axis 1 of shape [2,0]"});
  cases.push_back({"softmax axis", [] { softmax(var({}), 0); }, "softmax: there is no axis 0 in shape []"});
  cases.push_back({"log_softmax axis", [] { log_softmax(var({3}), 1); }, "log_softmax: there is no axis 1"});
  cases.push_back({"logsumexp axis", [] { logsumexp(var({3}), -2); }, "logsumexp: there is no axis -2"});
  cases.push_back({"cumsum axis", [] { cumsum(var({3}), 3); }, "cumsum: there is no axis 3"});
}

void add_norms(BadCases& cases) {
  cases.push_back({"layer_norm scalar", [] { layer_norm(var({}), var({1}), var({1})); },
                   "layer_norm: x needs a last axis to normalise, got a scalar"});
  cases.push_back({"layer_norm gamma",
                   [] {
                     layer_norm(var({2, 3}), var({2}), var({3}));
                   },
                   "layer_norm: gamma is [2], the last axis of x [2,3] needs [3]"});
  cases.push_back({"layer_norm beta",
                   [] {
                     layer_norm(var({2, 3}), var({3}), var({1, 3}));
                   },
                   "layer_norm: beta is [1,3], the last axis of x [2,3] needs [3]"});
  cases.push_back({"layer_norm eps",
                   [] {
                     layer_norm(var({2, 3}), var({3}), var({3}), 0);
                   },
                   "layer_norm: eps = 0 is not positive"});
  cases.push_back({"rms_norm gamma", [] { rms_norm(var({2, 3}), var({4})); }, "rms_norm: gamma is [4]"});
  cases.push_back({"rms_norm eps", [] { rms_norm(var({2, 3}), var({3}), -1); }, "rms_norm: eps = -1 is negative"});
  cases.push_back({"l2_normalize scalar", [] { l2_normalize(var({})); }, "l2_normalize: x needs a last axis"});
}

void add_products(BadCases& cases) {
  cases.push_back({"matmul vector",
                   [] {
                     matmul(var({3}), var({3, 2}));
                   },
                   "matmul: needs matrices, got shape [3]; reshape a vector to [1,n] or [n,1]"});
  cases.push_back({"matmul inner",
                   [] {
                     matmul(var({2, 3}), var({2, 3}));
                   },
                   "matmul: inner sizes differ: a [2,3], b [2,3]; transpose one?"});
  cases.push_back({"matmul inner transposed",
                   [] {
                     matmul(var({2, 3}), var({3, 4}), true, true);
                   },
                   "a [2,3] transposed, b [3,4] transposed"});
  cases.push_back({"matmul batches",
                   [] {
                     matmul(var({2, 2, 3}), var({3, 3, 2}));
                   },
                   "matmul: leading sizes cannot be broadcast: a [2,2,3], b [3,3,2]"});
  cases.push_back(
      {"linear W", [] { linear(var({2}), var({2}), Var()); }, "linear: W must be [outputs, inputs], got [2]"});
  cases.push_back({"linear scalar",
                   [] {
                     linear(var({}), var({2, 2}), Var());
                   },
                   "linear: x must have at least one axis"});
  cases.push_back({"linear inputs",
                   [] {
                     linear(var({4, 3}), var({5, 2}), Var());
                   },
                   "linear: x [4,3] ends in 3, but W [5,2] takes 2 inputs"});
  cases.push_back({"linear bias",
                   [] {
                     linear(var({4, 3}), var({5, 3}), var({3}));
                   },
                   "linear: bias [3] for 5 outputs"});
  cases.push_back({"linear residual",
                   [] {
                     linear(var({4, 3}), var({5, 3}), var({5}), var({4, 3}));
                   },
                   "linear: the residual is [4,3], the result [4,5]"});
  cases.push_back({"mlp second matrix",
                   [] {
                     mlp(var({4, 3}), var({6, 3}), Var(), var({3, 5}), Var());
                   },
                   "mlp: x [4,6] ends in 6, but W [3,5] takes 5 inputs"});
  cases.push_back({"mlp residual",
                   [] {
                     mlp(var({4, 3}), var({6, 3}), Var(), var({3, 6}), Var(), var({4, 2}));
                   },
                   "mlp: the residual is [4,2], the result [4,3]"});
}

void add_losses(BadCases& cases) {
  cases.push_back(
      {"embedding table", [] { embedding(var({3}), ints({1})); }, "embedding: the table is [3], not [V,C]"});
  cases.push_back({"embedding ids type",
                   [] {
                     embedding(var({3, 2}), zeros({1}));
                   },
                   "embedding: ids holds f32, this op needs i32"});
  cases.push_back({"embedding id",
                   [] {
                     embedding(var({3, 2}), from_ints({2}, Ints{2, 3}));
                   },
                   "embedding: id 3 at position 1 is outside the table of 3 rows"});
  cases.push_back({"embedding negative id", [] { embedding(var({3, 2}), ints({2}, -1)); }, "id -1 at position 0"});
  cases.push_back({"embedding padding",
                   [] {
                     embedding(var({3, 2}), ints({2}), 3);
                   },
                   "embedding: padding row 3 is not in a table of 3 rows"});
  cases.push_back(
      {"cross_entropy shapes",
       [] {
         cross_entropy(var({2, 3}), ints({3}));
       },
       "cross_entropy: logits are [2,3], targets [3]; targets need the logits' shape without the last axis"});
  cases.push_back(
      {"cross_entropy smoothing",
       [] {
         cross_entropy(var({2, 3}), ints({2}), {.ignore_index = -100, .label_smoothing = 1.5f, .mean = true});
       },
       "cross_entropy: label smoothing 1.5 is not in [0, 1]"});
  cases.push_back({"softmax_divergence shapes",
                   [] {
                     softmax_divergence(zeros({2, 4}), var({2, 3}));
                   },
                   "softmax_divergence: logits are [2,3], the teacher's [2,4]; both models need the same inputs"});
  cases.push_back({"linear_cross_entropy shapes",
                   [] {
                     linear_cross_entropy(var({2, 3}), var({5, 3}), Var(), ints({3}));
                   },
                   "linear_cross_entropy: x is [2,3], targets [3]; targets need x's shape without the last axis"});
  cases.push_back({"linear_cross_entropy target",
                   [] {
                     linear_cross_entropy(var({1, 2}), var({3, 2}), Var(), from_ints({1}, Ints{-1}));
                   },
                   "linear_cross_entropy: target -1 at position 0 is outside the 3 classes"});
  cases.push_back({"cross_entropy target",
                   [] {
                     cross_entropy(var({2, 3}), from_ints({2}, Ints{0, 3}));
                   },
                   "cross_entropy: target 3 at position 1 is outside the 3 classes and is not the ignore index -100"});
}

void add_attention(BadCases& cases) {
  const Shape heads{2, 1, 4, 6}, qkv{2, 4, 18};
  cases.push_back({"attention rank",
                   [=] {
                     softmax_attention(var({4, 6}), var(heads), var(heads), {});
                   },
                   "softmax_attention: q, k and v must be [B,H,N,d], got [4,6]"});
  cases.push_back({"attention sizes",
                   [=] {
                     linear_attention(var(heads), var({2, 1, 4, 5}), var(heads), elu1, {}, 0);
                   },
                   "linear_attention: sizes differ: q [2,1,4,6], k [2,1,4,5], v [2,1,4,6]"});
  cases.push_back({"attention heads empty",
                   [=] {
                     softmax_attention(var({1, 1, 2, 0}), var({1, 1, 2, 0}), var({1, 1, 2, 3}), {});
                   },
                   "heads are empty"});
  cases.push_back({"causal cross attention",
                   [=] {
                     softmax_attention(var({2, 1, 3, 6}), var(heads), var(heads), {true, {}});
                   },
                   "causal attention needs as many queries as keys, got 3 and 4"});
  cases.push_back({"mask type",
                   [=] {
                     softmax_attention(var(heads), var(heads), var(heads), {false, zeros({2, 4})});
                   },
                   "key_mask must be i32, got f32"});
  cases.push_back({"mask shape",
                   [=] {
                     softmax_attention(var(heads), var(heads), var(heads), {false, ints({2, 5})});
                   },
                   "key_mask [2,5] for 2 sequences of 4 keys"});
  cases.push_back({"packed rank",
                   [=] {
                     softmax_self_attention(var({2, 4, 17}), 1, {});
                   },
                   "softmax_self_attention: qkv must be [B,T,3C], got [2,4,17]"});
  cases.push_back({"packed heads", [=] { linear_self_attention(var(qkv), 4, elu1, {}, 0); },
                   "linear_self_attention: 6 channels cannot be cut into 4 heads"});
  cases.push_back({"floor", [=] { linear_self_attention(var(qkv), 2, elu1, {}, 1.5f); }, "floor 1.5 is not in [0, 1)"});
  cases.push_back({"map without frequencies",
                   [=] {
                     linear_self_attention(var(qkv), 2, {FeatureKind::trig_s, {}, {}, {}}, {}, 0);
                   },
                   "this feature map has w1, but no w2"});
  cases.push_back({"map with needless frequencies",
                   [=] {
                     feature_map(var(heads), {FeatureKind::elu1, var({1, 2, 6}), {}, {}});
                   },
                   "feature_map: this feature map has neither w1 nor w2"});
  cases.push_back({"frequencies",
                   [=] {
                     feature_map(var(heads), trig_s({1, 2, 5}));
                   },
                   "feature_map: w1 must be [1,n,6], got [1,2,5]"});
  cases.push_back({"second frequencies",
                   [=] {
                     feature_map(var(heads), {FeatureKind::trig_n, var({1, 2, 6}), var({1, 3, 6}), {}});
                   },
                   "w2 [1,3,6] must have the shape of w1 [1,2,6]"});
  cases.push_back({"tau",
                   [=] {
                     linear_attention(var(heads), var(heads), var(heads), {FeatureKind::elu1, {}, {}, var({2})}, {}, 0);
                   },
                   "tau must be [1], got [2]"});
  const auto distill = [=](const Shape& teacher, const Shape& k, Tensor key_mask) {
    const Tensor t = zeros(teacher);
    attention_distillation(t, t, var(heads), var(k), elu1, {false, std::move(key_mask)}, 0);
  };
  cases.push_back({"distillation keys",
                   [=] {
                     distill(heads, {2, 1, 5, 6}, {});
                   },
                   "attention_distillation: q is [2,1,4,6], k [2,1,5,6]; both must be [B,H,N,d]"});
  cases.push_back({"distillation teacher",
                   [=] {
                     distill({2, 1, 5, 6}, heads, {});
                   },
                   "the teacher's q is [2,1,5,6], its k [2,1,5,6], but the student's [2,1,4,6]"});
  cases.push_back({"distillation mask",
                   [=] {
                     distill(heads, heads, ints({2, 5}));
                   },
                   "attention_distillation: key_mask [2,5] for 2 sequences of 4 keys"});
  cases.push_back({"distillation kind",
                   [=] {
                     const Tensor t = zeros(heads);
                     const FeatureMapVars map{.kind = FeatureKind::polaformer, .w1 = var({1, 1, 6})};
                     attention_distillation(t, t, var(heads), var(heads), map, {}, 0);
                   },
                   "performer and polaformer have no weights phi(q).phi(k) that could be compared"});
  cases.push_back({"exponents per row",
                   [=] {
                     feature_map(var(heads), {.kind = FeatureKind::polaformer, .w1 = var({1, 2, 6})});
                   },
                   "polaformer has one exponent per channel, w1 [1,1,6], got [1,2,6]"});
  cases.push_back({"tau of performer",
                   [=] {
                     feature_map(var(heads), {.kind = FeatureKind::performer, .w1 = var({1, 2, 6}), .tau = var({1})});
                   },
                   "performer weighs keys by itself, without tau"});
  cases.push_back({"longer than cosformer",
                   [=] { feature_map(var(heads), {.kind = FeatureKind::cosformer, .max_length = 3}); },
                   "cosformer is set up for at most 3 tokens, got 4; train it with a longer context, or take another "
                   "kind of attention"});
  cases.push_back({"feature_map rank", [=] { feature_map(var({2, 3}), elu1); }, "x must be [B,H,N,d], got [2,3]"});
  cases.push_back(
      {"rope pairs", [=] { rope(var(qkv), 2); }, "rope: turns pairs of channels, so heads of 3 channels will not do"});
  cases.push_back({"rope position", [=] { rope(var(qkv), 1, -1); },
                   "rope: position -1 must be at least 0 and base 10000 positive"});
}

}  // namespace

const BadCases& bad_cases() {
  static const BadCases all = [] {
    BadCases cases;
    add_elementwise(cases);
    add_shapes(cases);
    add_reductions(cases);
    add_norms(cases);
    add_products(cases);
    add_losses(cases);
    add_attention(cases);
    return cases;
  }();
  return all;
}

std::string refusal(const BadCase& row, Device where) {
  device = where;
  try {
    row.call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace flexformer::testing
