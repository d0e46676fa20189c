// Golden cases of attention.
#include "tests/golden_runner.h"

namespace flexformer::golden {
namespace {

AttentionMask mask_of(const Case& golden) {
  AttentionMask mask{golden.flag("causal"), {}};
  if (golden.has_input("key_mask")) mask.key_mask = golden.input("key_mask").ints();
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

Var flexformer_of(const Case& golden, const Inputs& x) {
  FeatureMapVars map{FeatureKind::trig_s, x.at("omega1"), {}, x.at("tau")};
  if (golden.word("variant") == "n") {
    map.kind = FeatureKind::trig_n;
    map.w2 = x.at("omega2");
  }
  return linear_attention(x.at("q"), x.at("k"), x.at("v"), map, mask_of(golden), float(golden.number("delta", 0)));
}

// The mean over heads of the op's losses.
Var distillation_of(const Case& golden, const Inputs& x) {
  FeatureMapVars map{FeatureKind::trig_s, x.at("omega1"), {}, x.at("tau")};
  if (golden.word("variant") == "n") {
    map.kind = FeatureKind::trig_n;
    map.w2 = x.at("omega2");
  }
  return mean(attention_distillation(x.at("q").value(), x.at("k").value(), x.at("q"), x.at("k"), map, mask_of(golden),
                                     float(golden.number("delta", 0))));
}

Var elu1_of(const Case& golden, const Inputs& x) {
  return linear_attention(x.at("q"), x.at("k"), x.at("v"), {FeatureKind::elu1, {}, {}, {}}, mask_of(golden), 0);
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
};

}  // namespace

Runner find_attention(const std::string& op) {
  for (const Row& row : rows)
    if (op == row.op) return row.run;
  return nullptr;
}

}  // namespace flexformer::golden
