// Rows of embedding and cross entropy.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

Ints numbers_below(Index n, Index limit, std::uint64_t stream) {
  Ints ids;
  for (Index i = 0; i < n; ++i) ids.push_back(std::int32_t(uniform_at({99, stream}, std::uint64_t(i)) * float(limit)));
  return ids;
}

void add_embeddings(OpCases& cases) {
  struct Row {
    Shape ids;
    Index V, C;
    std::int32_t padding;
  };
  const Row rows[] = {{{1}, 1, 1, -1}, {{3, 12}, 17, 5, -1}, {{2, 7}, 3, 8, 0},  {{2, 3, 5}, 7, 63, 6},
                      {{0}, 4, 3, -1}, {{}, 4, 3, -1},       {{2000}, 50, 33, 2}};
  for (const Row& row : rows) {
    const Ints ids = numbers_below(row.ids.numel(), row.V, 1);
    const Tensor positions = Tensor::from_ints(row.ids, ids);
    const std::vector<float> table = normal_numbers(row.V * row.C, 2);
    cases.push_back({text("embedding ", row.ids, " of ", row.V, "x", row.C, " padding ", row.padding),
                     {parameter(given({row.V, row.C}, table))},
                     [=](const Vars& x) { return embedding(x[0], positions.to(x[0].device()), row.padding); },
                     // The padding row is a constant: it is read as it was, whatever x says.
                     [=](const Arrays& x) {
                       Array y = x[0];
                       for (Index i = row.padding * row.C; row.padding >= 0 && i < (row.padding + 1) * row.C; ++i)
                         y[i] = double(table[std::size_t(i)]);
                       return naive::embedding(y, ids, row.ids);
                     }});
  }
}

void add_divergences(OpCases& cases) {
  struct Row {
    Shape shape;
    float deviation;
  };
  for (const Row& row : {Row{{5}, 1}, {{1, 1}, 1}, {{7, 2}, 3}, {{3, 11, 63}, 1}, {{9, 65}, 100}, {{0, 5}, 1}})
    cases.push_back({text("softmax_divergence ", row.shape, " x", row.deviation),
                     {frozen(normal(row.shape, row.deviation)), normal(row.shape, row.deviation)},
                     [](const Vars& x) { return softmax_divergence(x[0].value(), x[1]); },
                     [](const Arrays& x) {
                       const Array log_p = naive::along(x[0], -1, naive::log_softmax);
                       const Array log_q = naive::along(x[1], -1, naive::log_softmax);
                       Array sum(Shape{});
                       for (Index i = 0; i < log_p.numel(); ++i) sum[0] += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
                       return sum;
                     }});
  cases.push_back({"softmax_divergence from itself",
                   {normal({4, 6})},
                   [](const Vars& x) { return softmax_divergence(x[0].value(), x[0]); },
                   [](const Arrays&) { return Array(Shape{}); }});
}

}  // namespace

void add_loss_cases(OpCases& cases) {
  add_embeddings(cases);
  add_divergences(cases);
  struct Row {
    Shape targets;
    Index V;
    float smoothing;
    bool mean;
    std::int32_t ignore;
    float deviation;
  };
  const Row rows[] = {
      {{1}, 5, 0, true, -100, 2},      {{7}, 12, 0, true, -100, 2},      {{7}, 12, 0, false, -100, 2},
      {{33}, 17, 0.1f, true, -100, 2}, {{3, 11}, 17, 0.1f, false, 2, 2}, {{2, 3, 5}, 63, 0, true, 0, 2},
      {{9}, 1, 0, true, -100, 2},      {{9}, 5, 0, true, -100, 300},     {{9}, 65, 0.3f, true, -100, 1000},
      {{4}, 700, 0.1f, true, -100, 2}, {{0}, 5, 0, true, -100, 1},       {{}, 5, 0, true, -100, 1},
      {{600}, 130, 0.1f, true, 3, 2},
  };
  for (const Row& row : rows) {
    Ints targets = numbers_below(row.targets.numel(), row.V, 2);
    for (std::size_t i = 0; row.ignore < 0 && i < targets.size() && targets.size() > 1; i += 3) targets[i] = row.ignore;
    const Tensor wanted = Tensor::from_ints(row.targets, targets);
    Shape shape = row.targets;
    shape.append(row.V);
    const CrossEntropyOptions options{.ignore_index = row.ignore, .label_smoothing = row.smoothing, .mean = row.mean};
    cases.push_back(
        {text("cross_entropy ", shape, " smoothing ", row.smoothing, row.mean ? " mean" : " sum", " x", row.deviation),
         {normal(shape, row.deviation)},
         [=](const Vars& x) { return cross_entropy(x[0], wanted.to(x[0].device()), options); },
         [=](const Arrays& x) {
           return naive::cross_entropy(x[0], targets, row.ignore, double(row.smoothing), row.mean);
         }});
  }
  for (const Row& row : rows) {
    const Index I = row.V % 2 ? 7 : 16;
    const Ints targets = numbers_below(row.targets.numel(), row.V, 2);
    const Tensor wanted = Tensor::from_ints(row.targets, targets);
    Shape shape = row.targets;
    shape.append(I);
    const CrossEntropyOptions options{.ignore_index = row.ignore, .label_smoothing = row.smoothing, .mean = row.mean};
    cases.push_back(
        {text("linear_cross_entropy ", shape, " to ", row.V, " smoothing ", row.smoothing, row.mean ? " mean" : " sum",
              " x", row.deviation),
         {normal(shape), parameter(normal({row.V, I}, std::min(row.deviation, 3.0f) / 4)), parameter(normal({row.V}))},
         [=](const Vars& x) { return linear_cross_entropy(x[0], x[1], x[2], wanted.to(x[0].device()), options); },
         [=](const Arrays& x) {
           const Array flat = naive::reshape(x[0], {x[0].numel() / I, I});
           const Array logits =
               zip(naive::matmul(flat, naive::transpose(x[1])), x[2], [](double a, double b) { return a + b; });
           return naive::cross_entropy(naive::reshape(logits, shape.with(-1, row.V)), targets, row.ignore,
                                       double(row.smoothing), row.mean);
         },
         4e-6,
         2e-5});
  }
  cases.push_back({"cross_entropy with nothing to count",
                   {normal({3, 4})},
                   [](const Vars& x) {
                     return cross_entropy(x[0], Tensor::from_ints({3}, Ints{-100, -100, -100}, x[0].device()));
                   },
                   [](const Arrays&) { return Array(Shape{}); }});
}

}  // namespace flexformer::testing
