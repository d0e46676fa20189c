// Golden cases of single tensor ops: one row each.
#include "tests/golden/golden_runner.h"

namespace flexformer::golden {
namespace {

const Var& a(const Inputs& x) { return x.at("a"); }
const Var& b(const Inputs& x) { return x.at("b"); }
const Var& x_of(const Inputs& x) { return x.at("x"); }
int axis_of(const Case& golden) { return int(golden.number("axis", -1)); }

Var cross_entropy_of(const Case& golden, const Inputs& x) {
  return cross_entropy(x.at("logits"), golden.input("target").ints(),
                       {.ignore_index = std::int32_t(golden.number("ignore_index", -100)),
                        .label_smoothing = float(golden.number("label_smoothing", 0)),
                        .mean = golden.word("reduction", "mean") == "mean"});
}

struct Row {
  const char* op;
  Var (*run)(const Case&, const Inputs&);
};

const Row rows[] = {
    {"matmul", [](const Case&, const Inputs& x) { return matmul(a(x), b(x)); }},
    {"matmul a^T b", [](const Case&, const Inputs& x) { return matmul(a(x), b(x), true, false); }},
    {"matmul a b^T", [](const Case&, const Inputs& x) { return matmul(a(x), b(x), false, true); }},
    {"x W^T + bias (W is [out,in])",
     [](const Case&, const Inputs& x) { return linear(x_of(x), x.at("w"), x.at("b")); }},
    {"add", [](const Case&, const Inputs& x) { return a(x) + b(x); }},
    {"sub", [](const Case&, const Inputs& x) { return a(x) - b(x); }},
    {"mul", [](const Case&, const Inputs& x) { return a(x) * b(x); }},
    {"div", [](const Case&, const Inputs& x) { return a(x) / b(x); }},
    {"exp", [](const Case&, const Inputs& x) { return exp(x_of(x)); }},
    {"log", [](const Case&, const Inputs& x) { return log(x_of(x)); }},
    {"sqrt", [](const Case&, const Inputs& x) { return sqrt(x_of(x)); }},
    {"rsqrt", [](const Case&, const Inputs& x) { return rsqrt(x_of(x)); }},
    {"sin", [](const Case&, const Inputs& x) { return sin(x_of(x)); }},
    {"cos", [](const Case&, const Inputs& x) { return cos(x_of(x)); }},
    {"tanh", [](const Case&, const Inputs& x) { return tanh(x_of(x)); }},
    {"sigmoid", [](const Case&, const Inputs& x) { return sigmoid(x_of(x)); }},
    {"relu", [](const Case&, const Inputs& x) { return relu(x_of(x)); }},
    {"elu", [](const Case&, const Inputs& x) { return elu(x_of(x)); }},
    {"silu", [](const Case&, const Inputs& x) { return silu(x_of(x)); }},
    {"softplus", [](const Case&, const Inputs& x) { return softplus(x_of(x)); }},
    {"gelu_erf", [](const Case&, const Inputs& x) { return gelu_erf(x_of(x)); }},
    {"gelu_tanh", [](const Case&, const Inputs& x) { return gelu(x_of(x)); }},
    {"sum_axis1", [](const Case&, const Inputs& x) { return sum(x_of(x), {1}); }},
    {"sum_axis02", [](const Case&, const Inputs& x) { return sum(x_of(x), {0, 2}); }},
    {"sum_all", [](const Case&, const Inputs& x) { return sum(x_of(x)); }},
    {"mean_last", [](const Case&, const Inputs& x) { return mean(x_of(x), {-1}, true); }},
    {"mean_all", [](const Case&, const Inputs& x) { return mean(x_of(x)); }},
    {"max_last", [](const Case&, const Inputs& x) { return max(x_of(x), -1); }},
    {"cumsum_axis1", [](const Case&, const Inputs& x) { return cumsum(x_of(x), 1); }},
    {"var_biased_last", [](const Case&, const Inputs& x) { return variance(x_of(x), {-1}); }},
    {"logsumexp last", [](const Case&, const Inputs& x) { return logsumexp(x_of(x), -1); }},
    {"l2norm_last", [](const Case&, const Inputs& x) { return l2_normalize(x_of(x)); }},
    {"transpose12", [](const Case&, const Inputs& x) { return transpose(x_of(x), 1, 2); }},
    {"permute201", [](const Case&, const Inputs& x) { return permute(x_of(x), {2, 0, 1}); }},
    {"slice_axis1_1_4_step2", [](const Case&, const Inputs& x) { return slice(x_of(x), 1, 1, 4, 2); }},
    {"concat", [](const Case&, const Inputs& x) { return concat({a(x), b(x)}, 1); }},
    {"masked_fill(x,mask,-2)",
     [](const Case& golden, const Inputs& x) {
       return masked_fill(x_of(x), golden.input("mask").ints(golden.device), -2);
     }},
    {"softmax", [](const Case& golden, const Inputs& x) { return softmax(x_of(x), axis_of(golden)); }},
    {"log_softmax", [](const Case& golden, const Inputs& x) { return log_softmax(x_of(x), axis_of(golden)); }},
    {"layer_norm",
     [](const Case& golden, const Inputs& x) {
       return layer_norm(x_of(x), x.at("w"), x.at("b"), float(golden.number("eps", 1e-5)));
     }},
    {"x/sqrt(mean(x^2)+eps)*w",
     [](const Case& golden, const Inputs& x) {
       return rms_norm(x_of(x), x.at("w"), float(golden.number("eps", 1e-6)));
     }},
    {"embedding",
     [](const Case& golden, const Inputs& x) {
       return embedding(x.at("w"), golden.input("idx").ints(), std::int32_t(golden.number("padding_idx", -1)));
     }},
    {"cross_entropy", cross_entropy_of},
};

// Runner is a plain function pointer, so the row is looked up once more by the case's op.
void run_tensor_op(const Case& golden, Verdict& verdict) {
  for (const Row& row : rows)
    if (golden.op == row.op) compare_op(golden, verdict, row.run, [](const Case&, const std::string&) { return 1e-5; });
}

}  // namespace

Runner find_tensor_op(const std::string& op) {
  for (const Row& row : rows)
    if (op == row.op) return run_tensor_op;
  return nullptr;
}

}  // namespace flexformer::golden
