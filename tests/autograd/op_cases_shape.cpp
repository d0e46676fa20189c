// Rows of the ops that move elements.
#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

void add_permutations(OpCases& cases) {
  const std::pair<Shape, Axes> rows[] = {
      {{7}, {0}},
      {{3, 5}, {1, 0}},
      {{3, 5}, {0, 1}},
      {{2, 3, 5}, {2, 0, 1}},
      {{2, 3, 5}, {-1, -2, -3}},
      {{2, 3, 5, 7}, {0, 2, 1, 3}},
      {{2, 3, 5, 7}, {3, 1, 0, 2}},
      {{1, 65, 1, 2}, {3, 2, 1, 0}},
      {{4, 0, 2}, {2, 1, 0}},
      {{3, 130, 180}, {0, 2, 1}},
      {{2, 70, 33}, {0, 2, 1}},
  };
  for (const auto& [shape, order] : rows)
    cases.push_back({text("permute ", shape, " ", order[0], order.back()),
                     {normal(shape)},
                     [o = order](const Vars& x) { return permute(x[0], o); },
                     [o = order](const Arrays& x) { return naive::permute(x[0], o); }});
  for (const auto& axes : {std::pair{1, 2}, {-1, 0}, {2, 2}, {-2, -3}}) {
    const int a = axes.first, b = axes.second;
    cases.push_back({text("transpose ", a, " ", b),
                     {normal({3, 5, 7})},
                     [=](const Vars& x) { return transpose(x[0], a, b); },
                     [=](const Arrays& x) {
                       std::vector<int> order{0, 1, 2};
                       std::swap(order[std::size_t((a + 3) % 3)], order[std::size_t((b + 3) % 3)]);
                       return naive::permute(x[0], order);
                     }});
  }
}

void add_slices(OpCases& cases) {
  struct Row {
    Shape shape;
    int axis;
    Index start, stop, step;
  };
  const Row rows[] = {
      {{7}, 0, 0, 7, 1},           {{7}, 0, 2, 5, 1},          {{3, 7, 5}, 1, 1, 4, 2},  {{3, 7, 5}, -1, 0, 5, 3},
      {{3, 7, 5}, 0, 2, 3, 1},     {{3, 7, 5}, 1, -3, -1, 1},  {{3, 7, 5}, 1, 1, 99, 4}, {{3, 7}, -2, -2, 3, 1},
      {{3, 7}, 1, 4, 4, 1},        {{2, 3, 4, 5}, 2, 1, 4, 2}, {{0, 3}, 1, 1, 3, 1},     {{130, 65}, 0, 1, 130, 63},
      {{40, 1100}, 1, 3, 1100, 2},
  };
  for (const Row& row : rows)
    cases.push_back({text("slice ", row.shape, " axis ", row.axis, " ", row.start, ":", row.stop, ":", row.step),
                     {normal(row.shape)},
                     [=](const Vars& x) { return slice(x[0], row.axis, row.start, row.stop, row.step); },
                     [=](const Arrays& x) { return naive::slice(x[0], row.axis, row.start, row.stop, row.step); }});
}

void add_concats(OpCases& cases) {
  struct Row {
    int axis;
    std::vector<Shape> parts;
  };
  const Row rows[] = {
      {0, {{3}}},
      {0, {{3}, {1}, {63}}},
      {0, {{3}, {0}, {2}}},
      {1, {{2, 3, 5}, {2, 1, 5}}},
      {-1, {{2, 3, 5}, {2, 3, 5}, {2, 3, 1}}},
      {2, {{2, 3, 4, 5}, {2, 3, 1, 5}}},
      {1, {{0, 3}, {0, 2}}},
      {-1, {{300, 65}, {300, 130}}},
  };
  for (const Row& row : rows) {
    std::vector<Input> inputs;
    std::string shapes;
    for (const Shape& part : row.parts) {
      inputs.push_back(normal(part));
      shapes += text(" ", part);
    }
    cases.push_back({text("concat", shapes, " axis ", row.axis), inputs,
                     [=](const Vars& x) { return concat(x, row.axis); },
                     [=](const Arrays& x) { return naive::concat(x, row.axis); }});
  }
}

}  // namespace

void add_shape_cases(OpCases& cases) {
  const std::pair<Shape, Shape> reshapes[] = {{{6}, {2, 3}}, {{2, 3, 5}, {6, 5}}, {{1}, {}},
                                              {{}, {1, 1}},  {{0, 3}, {5, 0}},    {{5, 13}, {65}}};
  for (const auto& [from, to] : reshapes)
    cases.push_back({text("reshape ", from, " ", to),
                     {normal(from)},
                     [shape = to](const Vars& x) { return reshape(x[0], shape); },
                     [shape = to](const Arrays& x) { return naive::reshape(x[0], shape); }});
  const std::pair<Shape, Shape> expansions[] = {
      {{1}, {7}},       {{5}, {3, 5}},    {{3, 1}, {3, 65}},     {{}, {2, 3}}, {{1, 4, 1}, {2, 3, 4, 5}},
      {{2, 3}, {2, 3}}, {{1, 3}, {0, 3}}, {{1, 130}, {520, 130}}};
  for (const auto& [from, to] : expansions)
    cases.push_back({text("expand ", from, " ", to),
                     {normal(from)},
                     [shape = to](const Vars& x) { return expand(x[0], shape); },
                     [shape = to](const Arrays& x) { return naive::expand(x[0], shape); }});
  add_permutations(cases);
  add_slices(cases);
  add_concats(cases);
}

}  // namespace flexformer::testing
