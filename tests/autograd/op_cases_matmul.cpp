// Rows of the products.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

struct MatmulRow {
  Shape a, b;
  bool transpose_a = false, transpose_b = false;
};
const MatmulRow matmul_rows[] = {
    {{1, 1}, {1, 1}},
    {{3, 5}, {5, 7}},
    {{1, 63}, {63, 1}},
    {{63, 1}, {1, 63}},
    {{65, 33}, {33, 17}},
    {{2, 1, 3, 5}, {4, 5, 2}},
    {{2, 3, 17, 5}, {2, 3, 5, 8}},
    {{7, 12}, {3, 12, 5}},
    {{3, 7, 12}, {12, 5}},
    {{1, 3, 33}, {2, 33, 1}},
    {{2, 3, 4, 5}, {5, 6}},
    {{3, 1, 4, 5}, {1, 2, 5, 6}},
    {{5, 3}, {5, 7}, true, false},
    {{3, 5}, {7, 5}, false, true},
    {{5, 3}, {7, 5}, true, true},
    {{2, 17, 5}, {2, 17, 8}, true, false},
    {{2, 17, 5}, {7, 5}, false, true},
    {{2, 5, 17}, {3, 2, 7, 5}, true, true},
    {{0, 5}, {5, 3}},
    {{3, 5}, {5, 0}},
    {{3, 0}, {0, 4}},
    {{2, 0, 5}, {5, 3}},
    {{130, 65}, {65, 129}},
    {{257, 300}, {300, 70}},
    {{8, 65, 33}, {8, 33, 65}},
};

// x W^T
Array linear_of(const Array& x, const Array& W) {
  const Index I = x.shape.last(), O = W.size(0), rows = I ? x.numel() / I : 0;
  const Array flat = naive::reshape(x, {I ? rows : x.size(0), I});
  return naive::reshape(naive::matmul(flat, naive::transpose(W)), x.shape.with(-1, O));
}
Array plus(const Array& x, const Array& y) {
  return zip(x, y, [](double a, double b) { return a + b; });
}

void add_linear_cases(OpCases& cases) {
  struct Row {
    Shape x;
    Index outputs;
  };
  for (const Row& row : {Row{{5}, 3},
                         {{1, 1}, 1},
                         {{63, 5}, 65},
                         {{3, 7, 12}, 5},
                         {{2, 3, 4, 5}, 6},
                         {{0, 4}, 3},
                         {{3, 0}, 2},
                         {{130, 65}, 129},
                         {{515, 67}, 70}}) {
    const Input x = normal(row.x), W = parameter(normal({row.outputs, row.x.last()})),
                b = parameter(normal({row.outputs}));
    const Input residual = normal(row.x.with(-1, row.outputs));
    const std::string sizes = text(row.x, " to ", row.outputs);
    cases.push_back({"linear " + sizes,
                     {x, W, b},
                     [](const Vars& v) { return linear(v[0], v[1], v[2]); },
                     [](const Arrays& v) { return plus(linear_of(v[0], v[1]), v[2]); },
                     4e-6,
                     2e-5});
    cases.push_back({"linear without bias " + sizes,
                     {x, W},
                     [](const Vars& v) { return linear(v[0], v[1], Var()); },
                     [](const Arrays& v) { return linear_of(v[0], v[1]); },
                     4e-6,
                     2e-5});
    cases.push_back({"linear with residual " + sizes,
                     {x, W, b, residual},
                     [](const Vars& v) { return linear(v[0], v[1], v[2], v[3]); },
                     [](const Arrays& v) { return plus(plus(linear_of(v[0], v[1]), v[2]), v[3]); },
                     4e-6,
                     2e-5,
                     2e-2,
                     2e-2});  // a single number may be the small sum of larger ones
  }
  cases.push_back({"linear with a residual in float",
                   {normal({9, 5}), parameter(normal({7, 5})), parameter(normal({9, 7}))},
                   [](const Vars& v) { return linear(v[0], v[1], Var(), v[2]); },
                   [](const Arrays& v) { return plus(linear_of(v[0], v[1]), v[2]); }});
  cases.push_back({"linear of its own residual",
                   {normal({3, 5}), parameter(normal({5, 5}))},
                   [](const Vars& v) { return linear(v[0], v[1], Var(), v[0]); },
                   [](const Arrays& v) { return plus(linear_of(v[0], v[1]), v[0]); }});
}

void add_mlp_cases(OpCases& cases) {
  const auto gelu_of = [](const Array& x) {
    return map(x, [](double u) { return u / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u))); });
  };
  struct Row {
    Shape x;
    Index inner, outputs;
  };
  for (const Row& row : {Row{{5}, 7, 3},
                         {{1, 1}, 1, 1},
                         {{63, 5}, 65, 4},
                         {{2, 7, 12}, 33, 12},
                         {{0, 4}, 5, 3},
                         {{130, 65}, 70, 129},
                         {{65, 33}, 520, 17}}) {
    const Index I = row.x.last();
    const Input x = normal(row.x), W1 = parameter(normal({row.inner, I}, 0.5f)), b1 = parameter(normal({row.inner}));
    const Input W2 = parameter(normal({row.outputs, row.inner}, 0.5f)), b2 = parameter(normal({row.outputs}));
    const Input residual = normal(row.x.with(-1, row.outputs));
    const std::string sizes = text(row.x, " to ", row.inner, " to ", row.outputs);
    cases.push_back({"mlp " + sizes,
                     {x, W1, b1, W2, b2, residual},
                     [](const Vars& v) { return mlp(v[0], v[1], v[2], v[3], v[4], v[5]); },
                     [=](const Arrays& v) {
                       const Array hidden = gelu_of(plus(linear_of(v[0], v[1]), v[2]));
                       return plus(plus(linear_of(hidden, v[3]), v[4]), v[5]);
                     },
                     4e-6,
                     2e-5});
    cases.push_back({"mlp without biases " + sizes,
                     {x, W1, W2},
                     [](const Vars& v) { return mlp(v[0], v[1], Var(), v[2], Var()); },
                     [=](const Arrays& v) { return linear_of(gelu_of(linear_of(v[0], v[1])), v[2]); },
                     4e-6,
                     2e-5});
  }
}

}  // namespace

void add_product_cases(OpCases& cases) {
  for (const MatmulRow& row : matmul_rows) {
    const bool ta = row.transpose_a, tb = row.transpose_b;
    cases.push_back({text("matmul ", row.a, ta ? "^T " : " ", row.b, tb ? "^T" : ""),
                     {normal(row.a), normal(row.b)},
                     [=](const Vars& x) { return matmul(x[0], x[1], ta, tb); },
                     [=](const Arrays& x) {
                       return naive::matmul(ta ? naive::transpose(x[0]) : x[0], tb ? naive::transpose(x[1]) : x[1]);
                     },
                     4e-6,
                     2e-5});
  }
  cases.push_back({"matmul large values",
                   {normal({5, 7}, 1e15f), normal({7, 3}, 1e15f)},
                   [](const Vars& x) { return matmul(x[0], x[1]); },
                   [](const Arrays& x) { return naive::matmul(x[0], x[1]); }});
  add_linear_cases(cases);
  add_mlp_cases(cases);
}

}  // namespace flexformer::testing
