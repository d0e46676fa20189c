// Rows of the elementwise ops.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

double sigmoid_of(double x) { return x > 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

struct UnaryRow {
  const char* name;
  Var (*op)(const Var&);
  double (*f)(double);
  float low, high;          // ordinary inputs
  float far_low, far_high;  // inputs where a careless formula overflows or loses its digits
};

const UnaryRow unary_rows[] = {
    {"exp", exp, [](double x) { return std::exp(x); }, -3, 3, -85, 85},
    {"log", log, [](double x) { return std::log(x); }, 0.1f, 4, 0.001f, 1e6f},
    {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0.1f, 4, 0.01f, 1e6f},
    {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.1f, 4, 0.01f, 1e4f},
    {"sin", sin, [](double x) { return std::sin(x); }, -9, 9, -30000, 30000},
    {"cos", cos, [](double x) { return std::cos(x); }, -9, 9, -30000, 30000},
    {"tanh", tanh, [](double x) { return std::tanh(x); }, -3, 3, -120, 120},
    {"sigmoid", sigmoid, sigmoid_of, -5, 5, -120, 120},
    {"relu", relu, [](double x) { return x > 0 ? x : 0; }, -2, 2, -1e6f, 1e6f},
    {"elu", elu, [](double x) { return x > 0 ? x : std::expm1(x); }, -3, 3, -120, 120},
    {"gelu", gelu, [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); },
     -4, 4, -60, 60},
    {"gelu_erf", gelu_erf, [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }, -4, 4, -60, 60},
    {"silu", silu, [](double x) { return x * sigmoid_of(x); }, -5, 5, -120, 120},
    {"softplus", softplus, [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }, -5, 5, -120,
     120},
    {"square", square, [](double x) { return x * x; }, -2, 2, -1e5f, 1e5f},
    {"abs", abs, [](double x) { return std::fabs(x); }, -2, 2, -1e6f, 1e6f},
    {"neg", neg, [](double x) { return -x; }, -2, 2, -1e6f, 1e6f},
    {"scale", [](const Var& x) { return scale(x, -1.5f); }, [](double x) { return -1.5 * x; }, -2, 2, -1e6f, 1e6f},
    {"shift", [](const Var& x) { return shift(x, 0.75f); }, [](double x) { return x + 0.75; }, -2, 2, -1e6f, 1e6f},
    {"pow_cube", [](const Var& x) { return pow(x, 3); }, [](double x) { return x * x * x; }, -2, 2, -100, 100},
    {"pow_fraction", [](const Var& x) { return pow(x, 2.5f); }, [](double x) { return std::pow(x, 2.5); }, 0.1f, 3,
     0.1f, 1000},
    {"pow_negative", [](const Var& x) { return pow(x, -0.5f); }, [](double x) { return 1 / std::sqrt(x); }, 0.2f, 3,
     0.1f, 1000},
};

struct BinaryRow {
  const char* name;
  Var (*op)(const Var&, const Var&);
  double (*f)(double, double);
  float low = -2, high = 2;  // of a; b lies in [0.5, 2]
};
const BinaryRow binary_rows[] = {
    {"add", add, [](double a, double b) { return a + b; }},
    {"sub", sub, [](double a, double b) { return a - b; }},
    {"mul", mul, [](double a, double b) { return a * b; }},
    {"div", div, [](double a, double b) { return a / b; }, -3, -0.5f},
    {"maximum", maximum, [](double a, double b) { return a >= b ? a : b; }},
    {"minimum", minimum, [](double a, double b) { return a <= b ? a : b; }},
    {"operator+", [](const Var& a, const Var& b) { return a + b; }, [](double a, double b) { return a + b; }},
    {"operator-", [](const Var& a, const Var& b) { return a - b; }, [](double a, double b) { return a - b; }},
    {"operator*", [](const Var& a, const Var& b) { return a * b; }, [](double a, double b) { return a * b; }},
    {"operator/", [](const Var& a, const Var& b) { return a / b; }, [](double a, double b) { return a / b; }, -3,
     -0.5f},
};

const std::pair<Shape, Shape> binary_shapes[] = {
    {{}, {}},
    {{1}, {1}},
    {{63}, {63}},
    {{5, 13}, {5, 13}},
    {{0}, {0}},
    {{3, 0, 2}, {1, 2}},
    {{4, 7}, {}},
    {{4, 7}, {7}},
    {{4, 7}, {4, 1}},
    {{7}, {4, 7}},
    {{4, 1}, {1, 7}},
    {{2, 1, 5}, {3, 1}},
    {{2, 3, 4, 5}, {5}},
    {{2, 3, 4, 5}, {3, 1, 5}},
    {{2, 1, 4, 1}, {1, 3, 1, 5}},
    {{1, 3, 1, 5}, {2, 3, 4, 5}},
};

void add_unary(OpCases& cases) {
  for (const UnaryRow& row : unary_rows) {
    const std::string name = row.name;
    const auto op = [f = row.op](const Vars& x) { return f(x[0]); };
    const auto reference = [f = row.f](const Arrays& x) { return naive::map(x[0], f); };
    cases.push_back({name, {uniform({5, 13}, row.low, row.high)}, op, reference});
    cases.push_back({name + " 1", {uniform({1}, row.low, row.high)}, op, reference});
    cases.push_back({name + " 63", {uniform({3, 7, 3}, row.low, row.high)}, op, reference});
    cases.push_back({name + " far", {uniform({2, 33}, row.far_low, row.far_high)}, op, reference});
    cases.push_back({name + " empty", {uniform({3, 0}, row.low, row.high)}, op, reference});
    cases.push_back({name + " scalar", {uniform({}, row.low, row.high)}, op, reference});
    cases.push_back({name + " long", {uniform({70001}, row.low, row.high)}, op, reference});
  }
}

void add_binary(OpCases& cases) {
  for (const BinaryRow& row : binary_rows) {
    const auto op = [f = row.op](const Vars& x) { return f(x[0], x[1]); };
    const auto reference = [f = row.f](const Arrays& x) { return naive::zip(x[0], x[1], f); };
    for (const auto& [a, b] : binary_shapes) {
      if (std::string(row.name).starts_with("operator") && !(a == b && a.rank() == 2)) continue;
      cases.push_back(
          {text(row.name, " ", a, " ", b), {uniform(a, row.low, row.high), uniform(b, 0.5f, 2)}, op, reference});
    }
    cases.push_back(
        {text(row.name, " long"), {uniform({3, 23001}, row.low, row.high), uniform({3, 1}, 0.5f, 2)}, op, reference});
    cases.push_back({text(row.name, " long rows"),
                     {uniform({900, 77}, row.low, row.high), uniform({77}, 0.5f, 2)},
                     op,
                     reference,
                     2e-6,
                     2e-5});
  }
}

void add_masks(OpCases& cases) {
  for (const Shape& shape : {Shape{1}, Shape{63}, Shape{2, 3, 5, 7}, Shape{4, 0}, Shape{70001}}) {
    const Ints flips = coin_flips(shape.numel(), 0.4, 1);
    const Tensor condition = Tensor::from_ints(shape, flips);
    cases.push_back({text("where ", shape),
                     {normal(shape), normal(shape)},
                     [condition](const Vars& x) { return where(condition.to(x[0].device()), x[0], x[1]); },
                     [flips](const Arrays& x) {
                       Array y = x[1];
                       for (Index i = 0; i < y.numel(); ++i)
                         if (flips[std::size_t(i)]) y[i] = x[0][i];
                       return y;
                     }});
    for (float value : {-2.0f, -HUGE_VALF})
      cases.push_back({text("masked_fill ", value, " ", shape),
                       {normal(shape)},
                       [=](const Vars& x) { return masked_fill(x[0], condition.to(x[0].device()), value); },
                       [=](const Arrays& x) {
                         Array y = x[0];
                         for (Index i = 0; i < y.numel(); ++i)
                           if (flips[std::size_t(i)]) y[i] = double(value);
                         return y;
                       }});
  }
}

// The reference draws the kept elements from the same numbers: element i is kept where uniform_at(key, i) >= p.
void add_dropout(OpCases& cases) {
  const RandomKey key{7, 3};
  const auto kept = [](const Array& x, float p, RandomKey key) {
    Array y = x;
    for (Index i = 0; i < x.numel(); ++i) y[i] *= uniform_at(key, std::uint64_t(i)) >= p ? 1 / (1 - double(p)) : 0;
    return y;
  };
  for (float p : {0.0f, 0.1f, 0.75f})
    for (Index n : {0, 1, 63, 40001})
      cases.push_back({text("dropout ", p, " ", n),
                       {normal({n})},
                       [=](const Vars& x) { return dropout(x[0], p, key); },
                       [=](const Arrays& x) { return kept(x[0], p, key); }});
  for (std::int32_t step : {1, 5})
    cases.push_back({text("dropout in step ", step),
                     {normal({65})},
                     [=](const Vars& x) {
                       return dropout(x[0], 0.5f, key, Tensor::from_ints({1}, std::vector{step}).to(x[0].device()));
                     },
                     [=](const Arrays& x) {
                       return kept(x[0], 0.5f, {key.seed, key.stream + (std::uint64_t(step) << 32)});
                     }});
}

// A parameter among activations, in bfloat16 two formats in one op.
void add_mixed(OpCases& cases) {
  const std::vector<Input> both{normal({7, 5}), parameter(normal({7, 5}))}, swapped{both[1], both[0]};
  const Ints flips = coin_flips(35, 0.5, 3);
  const Tensor condition = Tensor::from_ints({7, 5}, flips);
  for (const std::vector<Input>& inputs : {both, swapped}) {
    const char* order = inputs[0].parameter ? "parameter first" : "parameter last";
    cases.push_back({text("mul, ", order), inputs, [](const Vars& x) { return mul(x[0], x[1]); },
                     [](const Arrays& x) { return zip(x[0], x[1], [](double a, double b) { return a * b; }); }});
    cases.push_back({text("concat, ", order), inputs,
                     [](const Vars& x) {
                       return concat({x[0], x[1]}, 1);
                     },
                     [](const Arrays& x) {
                       return naive::concat({x[0], x[1]}, 1);
                     }});
    cases.push_back({text("where, ", order), inputs,
                     [=](const Vars& x) { return where(condition.to(x[0].device()), x[0], x[1]); },
                     [=](const Arrays& x) {
                       Array y = x[1];
                       for (Index i = 0; i < y.numel(); ++i)
                         if (flips[std::size_t(i)]) y[i] = x[0][i];
                       return y;
                     }});
    cases.push_back({text("cast, ", order),
                     {inputs[0]},
                     [](const Vars& x) { return cast(x[0], activation_dtype(x[0].device())); },
                     [](const Arrays& x) { return x[0]; }});
  }
}

}  // namespace

void add_elementwise_cases(OpCases& cases) {
  add_mixed(cases);
  add_unary(cases);
  add_binary(cases);
  add_masks(cases);
  add_dropout(cases);
}

}  // namespace flexformer::testing
