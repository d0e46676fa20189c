// Naive references in double precision: plain loops over plain vectors, written from the definitions alone. They share
// nothing with the engine but the Shape type, so that an error would have to be made twice.
#pragma once
#include <functional>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/shape.h"

namespace flexformer::naive {

using Numbers = std::vector<double>;

struct Array {
  Shape shape;
  Numbers data;

  Array() = default;
  explicit Array(const Shape& shape, double value = 0) : shape(shape), data(std::size_t(shape.numel()), value) {}
  Array(const Shape& shape, Numbers data) : shape(shape), data(std::move(data)) {}
  double& operator[](Index i) { return data[std::size_t(i)]; }
  double operator[](Index i) const { return data[std::size_t(i)]; }
  Index size(int axis) const { return shape[axis]; }
  Index numel() const { return Index(data.size()); }
};
using Arrays = std::vector<Array>;

// f of every element, and of every pair of elements of two arrays aligned at their last axes (a size 1 is repeated).
Array map(const Array& x, const std::function<double(double)>& f);
Array zip(const Array& a, const Array& b, const std::function<double(double, double)>& f);

// Replaces every line of x along an axis by f(line), which may have another length.
using Line = std::function<Numbers(const Numbers&)>;
Array along(const Array& x, int axis, const Line& f);

// Lines for along().
Numbers sum(const Numbers& x);
Numbers mean(const Numbers& x);
Numbers variance(const Numbers& x);  // biased
Numbers maximum(const Numbers& x);
Numbers running_sum(const Numbers& x);
Numbers softmax(const Numbers& x);      // zeros where everything is -infinity
Numbers log_softmax(const Numbers& x);  // -infinity there
Numbers logsumexp(const Numbers& x);
Numbers l2_normalize(const Numbers& x);
Line normalize(double eps);      // (x - mean) / sqrt(variance + eps)
Line rms_normalize(double eps);  // x / sqrt(mean(x^2) + eps)

// Shapes.
Array reshape(const Array& x, const Shape& shape);
Array permute(const Array& x, const std::vector<int>& order);
Array slice(const Array& x, int axis, Index start, Index stop, Index step = 1);
Array concat(const Arrays& parts, int axis);
Array expand(const Array& x, const Shape& shape);

// Products over the last two axes; leading axes are repeated where they are 1 or missing.
Array transpose(const Array& x);  // the last two axes
Array matmul(const Array& a, const Array& b);

// Tables and losses.
Array embedding(const Array& table, const std::vector<std::int32_t>& ids, const Shape& ids_shape);
Array cross_entropy(const Array& logits, const std::vector<std::int32_t>& targets, std::int32_t ignore,
                    double smoothing, bool mean);

// Attention by its definition: all Nq x Nk weights. key_mask [B,Nk], empty: every key is visible.
struct Mask {
  bool causal = false;
  std::vector<std::int32_t> keys;
  bool visible(Index b, Index i, Index j, Index Nk) const {
    return (!causal || j <= i) && (keys.empty() || keys[std::size_t(b * Nk + j)] != 0);
  }
};
// out_i = sum_j softmax_j(scale q_i.k_j) v_j.  q [B,H,Nq,d], k [B,H,Nk,d], v [B,H,Nk,dv] -> [B,H,Nq,dv].
Array softmax_attention(const Array& q, const Array& k, const Array& v, const Mask& mask, double scale);

// A feature map; arrays that it does not have are empty.
struct Map {
  FeatureKind kind = FeatureKind::elu1;
  Array w1 = {}, w2 = {}, tau = {};  // [H,n,d] [H,n,d] [H]
  Index max_length = 0;              // cosformer
  bool opposite = false;             // polaformer: queries meet keys of the other sign
};
Array features(const Array& x, const Map& map, bool keys = false);  // [B,H,N,d] -> [B,H,N,M]
// out_i = sum_j w_j k_ij v_j / (r_i > floor ? sum_j w_j k_ij : floor sum_j w_j), r_i = sum_j w_j k_ij / sum_j w_j,
// w_j = exp(|k_j|^2 / exp(tau)). polaformer: so with keys of the queries' sign for the first half of v (the larger, if
// dv is odd), and with keys of the other sign for the rest.
Array linear_attention(const Array& q, const Array& k, const Array& v, const Map& map, const Mask& mask, double floor);

// One of q, k, v (part 0, 1, 2) of a packed projection [B,T,3C] as [B,H,T,C/H]; and heads back to [B,T,C].
Array head_part(const Array& qkv, Index heads, int part);
Array merge_heads(const Array& x);
Array rope(const Array& qkv, Index heads, Index position, double base);

}  // namespace flexformer::naive
