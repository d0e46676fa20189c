// Rows of attention distillation: the loss by its definition, with all weights of teacher and student.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

struct Row {
  const char* name;
  Index B, H, N, d, n;
  FeatureKind kind;
  bool tau, causal, masked;
  float floor;
  DistilledSum by = DistilledSum::own;
};

// The map's inputs follow q' k' q k.
template <class Map, class Values> Map map_of(const Row& row, const Values& x) {
  Map map{.kind = row.kind};
  std::size_t next = 4;
  if (row.kind != FeatureKind::elu1) map.w1 = x[next++];
  if (row.kind == FeatureKind::trig_n) map.w2 = x[next++];
  if (row.tau) map.tau = x[next];
  return map;
}

// The weights A_ij of a kernel attention, or P_ij of softmax: what attention makes of the unit vectors as values.
Array unit_values(Index B, Index H, Index N) {
  Array v({B, H, N, N});
  for (Index i = 0; i < B * H * N; ++i) v[i * N + i % N] = 1;
  return v;
}

Array loss(const Row& row, const naive::Mask& mask, const Arrays& x) {
  const Index B = row.B, H = row.H, N = row.N;
  const Array units = unit_values(B, H, N);
  const Array P = naive::softmax_attention(x[0], x[1], units, mask, 1 / std::sqrt(double(x[0].size(3))));
  Array A = naive::linear_attention(x[2], x[3], units, map_of<naive::Map>(row, x), mask, double(row.floor));
  Array sums({H});
  double counted = 0;
  for (Index b = 0; b < B; ++b)
    for (Index i = 0; i < N; ++i) {
      if (!mask.keys.empty() && !mask.keys[std::size_t(b * N + i)]) continue;
      ++counted;
      for (Index h = 0; h < H; ++h) {
        const Index row_at = ((b * H + h) * N + i) * N;
        double magnitudes = 0;
        for (Index j = 0; j < N; ++j) magnitudes += std::abs(A[row_at + j]);
        // A has a positive denominator, as the floor is: with a larger one weights add up to 1, and stay where it
        // holds.
        const double by = row.by == DistilledSum::own ? 1 : std::max(magnitudes, 1.0);
        for (Index at = row_at; at < row_at + N; ++at) sums[h] -= P[at] * std::log(std::max(A[at] / by, 1e-6));
      }
    }
  return naive::map(sums, [&](double sum) { return counted > 0 ? sum / counted : 0; });
}

}  // namespace

void add_distillation_cases(OpCases& cases) {
  for (const Row& row :
       {Row{"one token", 1, 1, 1, 1, 1, FeatureKind::trig_s, true, false, false, 0},
        {"trig_s", 2, 2, 9, 4, 5, FeatureKind::trig_s, true, false, false, 0},
        {"trig_s causal", 2, 3, 17, 3, 8, FeatureKind::trig_s, true, true, false, 0.01f},
        {"trig_n masked", 2, 2, 11, 8, 8, FeatureKind::trig_n, true, false, true, 0},
        {"trig_n causal masked", 2, 2, 19, 5, 7, FeatureKind::trig_n, true, true, true, 0.05f},
        {"elu1", 1, 2, 13, 4, 0, FeatureKind::elu1, false, false, false, 0},
        {"elu1 causal", 2, 1, 65, 4, 0, FeatureKind::elu1, false, true, false, 0},
        {"by magnitudes", 2, 2, 18, 4, 3, FeatureKind::trig_s, true, false, true, 1e-3f, DistilledSum::magnitudes},
        {"by magnitudes, causal, floored", 2, 2, 17, 5, 4, FeatureKind::trig_n, true, true, false, 0.3f,
         DistilledSum::magnitudes},
        {"trig_n over more than one block", 1, 2, 130, 4, 4, FeatureKind::trig_n, true, true, false, 0},
        {"no token", 1, 2, 0, 3, 2, FeatureKind::trig_s, true, false, false, 0}}) {
    const Shape shape{row.B, row.H, row.N, row.d}, teacher = shape.with(3, row.d + 1);
    const float reach = row.by == DistilledSum::own ? 0.3f : 2;  // far enough apart for negative weights
    std::vector<Input> inputs{frozen(normal(teacher)), frozen(normal(teacher)), normal(shape, reach),
                              normal(shape, reach)};
    if (row.kind != FeatureKind::elu1) inputs.push_back(parameter(normal({row.H, row.n, row.d}, 0.5f)));
    if (row.kind == FeatureKind::trig_n) inputs.push_back(parameter(normal({row.H, row.n, row.d}, 0.5f)));
    if (row.tau) inputs.push_back(parameter(normal({row.H}, 0.25f, 1)));
    AttentionMask mask{row.causal, {}};
    naive::Mask reference{row.causal, {}};
    if (row.masked) {
      reference.keys = coin_flips(row.B * row.N, 0.7, 5);
      for (Index b = 0; b < row.B; ++b) reference.keys[std::size_t(b * row.N)] = 1;
      mask.key_mask = Tensor::from_ints({row.B, row.N}, reference.keys);
    }
    cases.push_back({text("attention_distillation ", row.name), inputs,
                     [=](const Vars& x) {
                       return attention_distillation(x[0].value(), x[1].value(), x[2], x[3],
                                                     map_of<FeatureMapVars>(row, x), mask, row.floor, row.by);
                     },
                     [=](const Arrays& x) { return loss(row, reference, x); }, 2e-5, 1e-4});
  }
}

}  // namespace flexformer::testing
