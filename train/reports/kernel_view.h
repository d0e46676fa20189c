// What the attention kernels of a model have become, as numbers to draw. All of them come out of the ops that the model
// itself runs.
#pragma once
#include <functional>
#include <vector>

#include "nn/transformer.h"

namespace flexformer {

// What a layer was given to attend to.
struct LayerSight {
  const MultiHeadAttention* layer;
  Tensor q, k;  // [B,H,T,d]
  AttentionMask mask;
};

// Of every layer in order, while `forward` runs the model, whose layers attend as they always do.
std::vector<LayerSight> watch_layers(const std::function<void(const Pass&)>& forward);

// The weights A_ij that queries give to keys, [B,H,T,T]: the layer's op with unit vectors for values, or softmax of the
// same q and k. A row of softmax sums to 1; a row of a linear kind to 1 above the floor and to r_i / floor on it, see
// linear_attention(). polaformer has two weights for each pair, of its values' halves: [B,H,T,2T].
Tensor attention_weights(const LayerSight& sight, bool by_softmax);

// Of a head's rows that count (no padding), how many are on the floor; 0 to 1. `weights` are the layer's own.
double floored_share(const LayerSight& sight, const Tensor& weights, Index head);

// k(x, y) = phi(x).phi(y), y seen as keys: x [1,H,N,d], y [1,H,M,d] -> [H,N,M].
Tensor kernel_values(const MultiHeadAttention& layer, const Tensor& x, const Tensor& y);

// The directions in which a head's queries and keys spread: unit vectors, the widest spread first.
struct Spread {
  std::vector<float> direction;  // [d]
  double reach;                  // the largest |u.x| of all queries and keys x
};
std::vector<Spread> spreads(const LayerSight& sight, Index head, int count);
// The root mean square of |q - k| over all queries and keys of a head.
double typical_distance(const LayerSight& sight, Index head);

// What became of one row of w1 or w2, a frequency of the trigonometric kinds.
struct Turn {
  double norm_before, norm, cosine;  // cosine of the angle between before and now; 0 where one of them is 0
};
std::vector<Turn> turns(const Tensor& before, const Tensor& now, Index head);  // [H,n,d]

}  // namespace flexformer
