// Attention problems for tests, and their gradients derived by hand in double precision, pair by pair.
#pragma once
#include <cstring>
#include <vector>

#include "autograd/ops.h"
#include "tests/autograd/reference.h"

namespace flexformer::testing {

// Softmax attention, or linear attention with one of the feature maps.
enum class Kind { softmax, identity, elu1, trig_s, trig_n, rfa, performer, hedgehog, cosformer, polaformer };
inline constexpr Kind all_kinds[] = {Kind::softmax, Kind::identity,  Kind::elu1,     Kind::trig_s,    Kind::trig_n,
                                     Kind::rfa,     Kind::performer, Kind::hedgehog, Kind::cosformer, Kind::polaformer};
inline FeatureKind feature_kind(Kind kind) { return FeatureKind(int(kind) - 1); }
inline int weight_sets(Kind kind) { return kind == Kind::softmax ? 0 : weight_sets(feature_kind(kind)); }
inline bool has_tau(Kind kind) { return kind >= Kind::identity && kind <= Kind::trig_n; }

// One problem. Inputs are q, k, v, then w1, w2, tau as far as the kind has them. cosformer's max_length is 1000.
struct Problem {
  Kind kind;
  std::vector<Tensor> inputs;
  naive::Mask mask;
  float floor = 0.05f;

  AttentionMask attention_mask() const;
  FeatureMapVars map(const std::vector<Var>& x) const;
  FeatureMap kernel_map() const;
  Var attend(const std::vector<Var>& x) const;
};

Tensor random_normal(const Shape& shape, float deviation, std::uint64_t stream, float mean = 0);
// Random inputs whose denominators stay away from 0; about 0.6 of the keys visible if masked.
Problem problem(Kind kind, Index B, Index H, Index N, Index d, Index dv, bool causal, bool masked);

struct Answer {
  Tensor out;
  std::vector<Tensor> gradients;
};
Answer solve(const Problem& p, const Tensor& dout);
// The definition's answer: value, then one gradient for each input.
naive::Arrays exact_answer(const Problem& p, const Tensor& dout);

naive::Array array_of(const Tensor& x);
double norm(const naive::Array& x);
// |ours - reference| / |reference|, where a reference near 0 counts as 1e-3 of `least`; infinite for a NaN.
double error(const Tensor& ours, const naive::Array& reference, double least);

inline bool same_bits(const float* a, const float* b, Index n) {
  return std::memcmp(a, b, std::size_t(n) * sizeof(float)) == 0;
}
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && same_bits(a.data(), b.data(), a.numel());
}

}  // namespace flexformer::testing
