// Rows of the products.
#include "tests/op_cases.h"

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
  const auto product = [](const Arrays& x) {
    const Index I = x[0].shape.last(), O = x[1].size(0), rows = I ? x[0].numel() / I : 0;
    const Array flat = naive::reshape(x[0], {I ? rows : x[0].size(0), I});
    const Shape shape = x[0].shape.with(-1, O);
    return naive::reshape(naive::matmul(flat, naive::transpose(x[1])), shape);
  };
  struct LinearRow {
    Shape x;
    Index outputs;
  };
  for (const LinearRow& row : {LinearRow{{5}, 3},
                               {{1, 1}, 1},
                               {{63, 5}, 65},
                               {{3, 7, 12}, 5},
                               {{2, 3, 4, 5}, 6},
                               {{0, 4}, 3},
                               {{3, 0}, 2},
                               {{130, 65}, 129},
                               {{515, 67}, 70}}) {
    const Input W = normal({row.outputs, row.x.last()});
    cases.push_back({text("linear ", row.x, " to ", row.outputs),
                     {normal(row.x), W, normal({row.outputs})},
                     [](const Vars& x) { return linear(x[0], x[1], x[2]); },
                     [=](const Arrays& x) { return zip(product(x), x[2], [](double a, double b) { return a + b; }); },
                     4e-6,
                     2e-5});
    cases.push_back({text("linear without bias ", row.x, " to ", row.outputs),
                     {normal(row.x), W},
                     [](const Vars& x) { return linear(x[0], x[1], Var()); },
                     product,
                     4e-6,
                     2e-5});
  }
}

}  // namespace flexformer::testing
