// Rows of the reductions, of softmax and of the norms.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

// A reduction over several axes, which stay with size 1 or go.
Array over_axes(const Array& x, const Axes& axes, bool keep, const naive::Line& line) {
  std::vector<bool> reduced(std::size_t(x.shape.rank()), axes.empty());
  for (int axis : axes) reduced[std::size_t(x.shape.normalise("axes", axis))] = true;
  std::vector<int> order;  // reduced axes last, so that they form one line
  Shape outer, result;
  for (int axis = 0; axis < x.shape.rank(); ++axis)
    if (!reduced[std::size_t(axis)]) order.push_back(axis), outer.append(x.size(axis));
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    if (reduced[std::size_t(axis)]) order.push_back(axis);
    if (!reduced[std::size_t(axis)] || keep) result.append(reduced[std::size_t(axis)] ? 1 : x.size(axis));
  }
  const Index rows = outer.numel(), n = rows ? x.numel() / rows : 0;
  return naive::reshape(naive::along(naive::reshape(naive::permute(x, order), {rows, n}), 1, line), result);
}

void add_sums(OpCases& cases) {
  struct Row {
    const char* name;
    Var (*op)(const Var&, const Axes&, bool);
    naive::Line line;
  };
  const Row rows[] = {{"sum", sum, naive::sum}, {"mean", mean, naive::mean}, {"variance", variance, naive::variance}};
  struct Form {
    Shape shape;
    Axes axes;
    bool keep;
  };
  const Form forms[] = {
      {{1}, {}, false},
      {{63}, {0}, false},
      {{3, 5, 7}, {}, false},
      {{3, 5, 7}, {}, true},
      {{3, 5, 7}, {1}, false},
      {{3, 5, 7}, {0, 2}, false},
      {{3, 5, 7}, {-1}, true},
      {{3, 5, 7}, {2, 0}, true},
      {{2, 3, 4, 5}, {1, -1}, false},
      {{2, 3, 4, 5}, {0, 1, 2, 3}, true},
      {{0, 3}, {1}, false},
      {{65, 1}, {1}, false},
      {{9, 40, 3}, {1}, false},
      {{}, {}, false},
      {{7, 20001}, {1}, false},
      {{20001, 7}, {0}, false},
  };
  for (const Row& row : rows)
    for (const Form& form : forms) {
      std::string axes;
      for (int axis : form.axes) axes += text(axis, ",");
      cases.push_back({text(row.name, " ", form.shape, " axes ", axes, form.keep ? " keep" : ""),
                       {normal(form.shape, 1, 0.5f)},
                       [=, op = row.op](const Vars& x) { return op(x[0], form.axes, form.keep); },
                       [=, line = row.line](const Arrays& x) { return over_axes(x[0], form.axes, form.keep, line); }});
    }
  cases.push_back({"sum of nothing",
                   {normal({3, 0})},
                   [](const Vars& x) { return sum(x[0], {1}); },
                   [](const Arrays&) { return Array(Shape{3}); }});
  cases.push_back({"variance of large offset",
                   {normal({5, 65}, 1, 1000)},
                   [](const Vars& x) { return variance(x[0], {1}); },
                   [](const Arrays& x) { return over_axes(x[0], {1}, false, naive::variance); }});
}

struct LineRow {
  const char* name;
  std::function<Var(const Var&, int)> op;
  naive::Line line;
};

void add_lines(OpCases& cases) {
  const LineRow rows[] = {
      {"max", [](const Var& x, int axis) { return max(x, axis, true); }, naive::maximum},
      {"cumsum", [](const Var& x, int axis) { return cumsum(x, axis); }, naive::running_sum},
      {"softmax", [](const Var& x, int axis) { return softmax(x, axis); }, naive::softmax},
      {"log_softmax", [](const Var& x, int axis) { return log_softmax(x, axis); }, naive::log_softmax},
      {"logsumexp", [](const Var& x, int axis) { return logsumexp(x, axis, true); }, naive::logsumexp},
  };
  const std::pair<Shape, int> forms[] = {{{1}, 0},        {{63}, 0},          {{4, 65}, -1}, {{65, 3}, 0},
                                         {{3, 5, 7}, 1},  {{2, 3, 4, 5}, -2}, {{4, 1}, 1},   {{0, 3}, 1},
                                         {{1100, 37}, 1}, {{37, 1100}, 0}};
  for (const LineRow& row : rows) {
    const auto reference = [line = row.line](int axis) {
      return [=](const Arrays& x) { return naive::along(x[0], axis, line); };
    };
    for (const auto& [shape, axis] : forms)
      cases.push_back({text(row.name, " ", shape, " axis ", axis),
                       {normal(shape, 2)},
                       [op = row.op, a = axis](const Vars& x) { return op(x[0], a); },
                       reference(axis),
                       4e-6});
    cases.push_back({text(row.name, " large"),
                     {given({2, 5}, {1000, 999, -1000, 0, 998.5f, -1e4f, -1e4f + 3, -1e4f + 2, -1e4f + 1, -2e4f})},
                     [op = row.op](const Vars& x) { return op(x[0], -1); },
                     reference(-1)});
  }
}

// Rows of -infinity: the masked entries of a softmax.
void add_masked_lines(OpCases& cases) {
  const float inf = HUGE_VALF;
  const Input masked = given({3, 3}, {-inf, 0.5f, -1, -inf, -inf, -inf, 2, -inf, -inf});
  cases.push_back({"softmax masked",
                   {masked},
                   [](const Vars& x) { return softmax(x[0], 1); },
                   [](const Arrays& x) { return naive::along(x[0], 1, naive::softmax); }});
  cases.push_back({"log_softmax masked",
                   {masked},
                   [](const Vars& x) { return log_softmax(x[0], 1); },
                   [](const Arrays& x) { return naive::along(x[0], 1, naive::log_softmax); }});
  cases.push_back({"logsumexp masked",
                   {masked},
                   [](const Vars& x) { return logsumexp(x[0], 1); },
                   [](const Arrays& x) { return naive::reshape(naive::along(x[0], 1, naive::logsumexp), {3}); }});
}

void add_dropped_axes(OpCases& cases) {
  cases.push_back({"max drops its axis",
                   {normal({3, 5, 7})},
                   [](const Vars& x) { return max(x[0], 1); },
                   [](const Arrays& x) {
                     return naive::reshape(naive::along(x[0], 1, naive::maximum), {3, 7});
                   }});
  cases.push_back({"logsumexp drops its axis",
                   {normal({3, 5, 7})},
                   [](const Vars& x) { return logsumexp(x[0], -3); },
                   [](const Arrays& x) {
                     return naive::reshape(naive::along(x[0], 0, naive::logsumexp), {5, 7});
                   }});
}

double product(double a, double b) { return a * b; }
double total(double a, double b) { return a + b; }

}  // namespace

void add_reduction_cases(OpCases& cases) {
  add_sums(cases);
  add_lines(cases);
  add_masked_lines(cases);
  add_dropped_axes(cases);
}

void add_norm_cases(OpCases& cases) {
  const auto layer = [](const Vars& x) { return layer_norm(x[0], x[1], x[2]); };
  const auto layer_reference = [](const Arrays& x) {
    return zip(zip(naive::along(x[0], -1, naive::normalize(double(1e-5f))), x[1], product), x[2], total);
  };
  const auto rms = [](const Vars& x) { return rms_norm(x[0], x[1]); };
  const auto rms_reference = [](const Arrays& x) {
    return zip(naive::along(x[0], -1, naive::rms_normalize(double(1e-6f))), x[1], product);
  };
  const auto bare = [](const Vars& x) { return rms_norm(x[0], Var(), 0.1f); };
  const auto bare_reference = [](const Arrays& x) {
    return naive::along(x[0], -1, naive::rms_normalize(double(0.1f)));
  };
  const auto unit = [](const Vars& x) { return l2_normalize(x[0]); };
  const auto unit_reference = [](const Arrays& x) { return naive::along(x[0], -1, naive::l2_normalize); };
  for (const Shape& shape : {Shape{7}, Shape{2, 3, 5}, Shape{1, 12}, Shape{7, 65}, Shape{3, 63}, Shape{2, 1, 3, 8},
                             Shape{5, 2}, Shape{0, 4}, Shape{1500, 33}, Shape{3, 515}}) {
    const Input x = normal(shape, 2, 0.5f), gamma = parameter(normal({shape.last()})),
                beta = parameter(normal({shape.last()}));
    cases.push_back({text("layer_norm ", shape), {x, gamma, beta}, layer, layer_reference, 5e-6, 5e-5});
    cases.push_back({text("rms_norm ", shape), {x, gamma}, rms, rms_reference, 5e-6, 5e-5});
    cases.push_back({text("rms_norm without gamma ", shape), {x}, bare, bare_reference});
    cases.push_back({text("l2_normalize ", shape), {x}, unit, unit_reference});
  }
  cases.push_back({"layer_norm offset",
                   {normal({3, 8}, 1, 1000), parameter(normal({8})), parameter(normal({8}))},
                   layer,
                   layer_reference,
                   5e-6,
                   5e-5});
  cases.push_back({"layer_norm of one channel",
                   {normal({5, 1}), parameter(normal({1})), parameter(normal({1}))},
                   layer,
                   layer_reference,
                   5e-6,
                   5e-5});
  cases.push_back({"layer_norm eps",
                   {normal({3, 8}), parameter(normal({8})), parameter(normal({8}))},
                   [](const Vars& x) { return layer_norm(x[0], x[1], x[2], 0.5f); },
                   [](const Arrays& x) {
                     return zip(zip(naive::along(x[0], -1, naive::normalize(0.5)), x[1], product), x[2], total);
                   }});
  cases.push_back({"rms_norm large", {normal({3, 8}, 1e6f), parameter(normal({8}))}, rms, rms_reference});
}

}  // namespace flexformer::testing
