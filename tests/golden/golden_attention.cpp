// Golden cases of attention.
#include "tests/golden/golden_runner.h"

namespace flexformer::golden {
namespace {

AttentionMask mask_of(const Case& golden) {
  AttentionMask mask{golden.flag("causal"), {}};
  if (golden.has_input("key_mask")) mask.key_mask = golden.input("key_mask").ints(golden.device);
  return mask;
}

Var softmax_of(const Case& golden, const Inputs& x) {
  return softmax_attention(x.at("q"), x.at("k"), x.at("v"), mask_of(golden), float(golden.number("scale", 0)));
}

// A whole layer with its projections; wq, wk and wv are joined into one matrix, as models have it.
Var layer_of(const Case& golden, const Inputs& x) {
  const Var qkv = linear(x.at("x"), concat({x.at("wq"), x.at("wk"), x.at("wv")}, 0),
                         concat({x.at("bq"), x.at("bk"), x.at("bv")}, 0));
  const Var heads = softmax_self_attention(qkv, Index(golden.number("heads", 1)), mask_of(golden));
  return linear(heads, x.at("wo"), x.at("bo"));
}

FeatureMapVars flexformer_map(const Case& golden, const Inputs& x) {
  if (golden.word("variant") == "n") return {FeatureKind::trig_n, x.at("omega1"), x.at("omega2"), x.at("tau")};
  return {FeatureKind::trig_s, x.at("omega1"), {}, x.at("tau")};
}

Var flexformer_of(const Case& golden, const Inputs& x) {
  return linear_attention(x.at("q"), x.at("k"), x.at("v"), flexformer_map(golden, x), mask_of(golden),
                          float(golden.number("delta", 0)));
}

// The mean over heads of the op's losses.
Var distillation_of(const Case& golden, const Inputs& x) {
  return mean(attention_distillation(x.at("q").value(), x.at("k").value(), x.at("q"), x.at("k"),
                                     flexformer_map(golden, x), mask_of(golden), float(golden.number("delta", 0))));
}

// The kinds without a floor, whose keys weigh 1.
Var baseline_of(const Case& golden, const Inputs& x, const FeatureMapVars& map) {
  return linear_attention(x.at("q"), x.at("k"), x.at("v"), map, mask_of(golden), 0);
}
Var elu1_of(const Case& golden, const Inputs& x) { return baseline_of(golden, x, {.kind = FeatureKind::elu1}); }
Var performer_of(const Case& golden, const Inputs& x) {
  return baseline_of(golden, x, {.kind = FeatureKind::performer, .w1 = x.at("proj")});
}
Var rfa_of(const Case& golden, const Inputs& x) {
  return baseline_of(golden, x, {.kind = FeatureKind::rfa, .w1 = x.at("omega")});
}
Var hedgehog_of(const Case& golden, const Inputs& x) {
  return baseline_of(golden, x, {.kind = FeatureKind::hedgehog, .w1 = x.at("wq"), .w2 = x.at("wk")});
}
Var cosformer_of(const Case& golden, const Inputs& x) {
  return baseline_of(golden, x, {.kind = FeatureKind::cosformer, .max_length = Index(golden.number("M", 0))});
}
Var polaformer_of(const Case& golden, const Inputs& x) {
  const Var& power = x.at("power");  // [H,d]
  if (golden.number("alpha", 4) != 4) fail("polaformer's exponents end at 1 + 4, not 1 + alpha");
  return baseline_of(golden, x,
                     {.kind = FeatureKind::polaformer, .w1 = reshape(power, {power.size(0), 1, power.size(1)})});
}

// Near a denominator of 0 all errors grow by its inverse. A weight's exponent of 100 and more costs tau two digits.
// The gradient of the key bias is exactly 0 under softmax, so that there is only rounding to be seen: not compared.
double limit(const Case& golden, const std::string& gradient) {
  const std::string kind = golden.word("kind");
  if (kind == "small_denominator")
    return (gradient.empty() ? 1 : 10) * (2e-5 + 1e-6 / golden.number("min_abs_rel_den", 1));
  if (gradient.empty()) return 2e-5;
  if (gradient == "bk") return 0;
  return !kind.empty() && gradient == "tau" ? 1e-2 : 1e-4;
}

struct Row {
  const char* op;
  Runner run;
};
const Row rows[] = {
    {"softmax_attention", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, softmax_of, limit); }},
    {"multi_head_attention_layer", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, layer_of, limit); }},
    {"flexformer_attention", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, flexformer_of, limit); }},
    {"flexformer_attention_relfloor",
     [](const Case& c, Verdict& verdict) { compare_op(c, verdict, flexformer_of, limit); }},
    {"attention_weight_distillation",
     [](const Case& c, Verdict& verdict) { compare_op(c, verdict, distillation_of, limit); }},
    {"linear_attention_elu1", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, elu1_of, limit); }},
    {"performer_favor_positive", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, performer_of, limit); }},
    {"rfa_fixed_gaussian", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, rfa_of, limit); }},
    {"hedgehog", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, hedgehog_of, limit); }},
    {"cosformer", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, cosformer_of, limit); }},
    {"polaformer_core", [](const Case& c, Verdict& verdict) { compare_op(c, verdict, polaformer_of, limit); }},
};

}  // namespace

Runner find_attention(const std::string& op) {
  for (const Row& row : rows)
    if (op == row.op) return row.run;
  return nullptr;
}

}  // namespace flexformer::golden
