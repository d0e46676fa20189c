// Feature maps on tiles of rows: the attention kernels compute features a tile at a time and throw them away.
//
// trig_s and trig_n share one form. With p = W x, W = w1 or [a; b], a = (w1+w2)/2, b = (w1-w2)/2, the features are
// n^-1/2 [cos p, sin p] or n^-1/2 [cos pa cos pb, sin pa cos pb], and the gradients come from the features themselves
// (da = F_cos dF_sin - F_sin dF_cos) and, for b, from the companions E = n^-1/2 [cos pa sin pb, sin pa sin pb]. The
// other maps need their features, x and p's scale alone, too.
#pragma once
#include "tensor/cpu_attention.h"

namespace flexformer::cpu {

// Projections that one row needs, p = W x; and rows of dW, the gradient of a head's w1 and w2.
Index projection_count(FeatureKind kind, Index n);
Index weight_rows(FeatureKind kind, Index n);

// Queries or keys `first` .. first+rows-1 of one head.
struct FeatureRows {
  const float* x;  // [rows,d], x_row apart
  Index x_row, rows, first;
  bool keys;
};
inline FeatureRows queries_of(const HeadsIn& q, Index b, Index h, Index first, Index rows) {
  return {row_of(q, b, h, first), q.row, rows, first, false};
}
inline FeatureRows keys_of(const HeadsIn& k, Index b, Index h, Index first, Index rows) {
  return {row_of(k, b, h, first), k.row, rows, first, true};
}

// Whether keys weigh anything but 1, and the factor of |k|^2 in a key's log-weight.
inline bool weighs_keys(const FeatureMap& map) { return map.tau || map.kind == FeatureKind::performer; }
double norm_factor(const FeatureMap& map, Index h, Index d);

// The map of one head at a time, for tiles of at most max_rows rows.
class TileFeatures {
 public:
  TileFeatures(Scratch& scratch, const FeatureMap& map, Index d, Index max_rows);

  Index count() const { return M_; }  // features per row
  bool needs_companions() const { return map_.kind == FeatureKind::trig_n; }

  void set_head(Index h);
  // f [rows,M] = phi(x). companions [rows,M] may be null when no backward pass follows, and is written for trig_n only.
  void forward(float* f, float* companions, const FeatureRows& in);
  // dx [rows,d] (null: not wanted), and dW += (null: not wanted), from df [rows,M] and what forward() gave.
  void backward(float* dx, float* dW, const float* df, const float* f, const float* companions, const FeatureRows& in);
  // shifts [rows]: forward() divides features by e^shift, which belongs into the weight of a key. All 0 but for
  // performer.
  void log_shifts(float* shifts, const FeatureRows& in);

 private:
  void project(const FeatureRows& in);
  void project_backward(float* dp, const float* df, const float* f, const float* companions) const;
  void rows_backward(float* dx, float* dW, const float* df, const float* f, const FeatureRows& in) const;

  FeatureMap map_;
  Index d_, M_, P_;
  float root_;                                 // n^-1/2
  const float* W_[2] = {};                     // [P,d] of queries and of keys, the same but for hedgehog
  float *W_own_, *W_transposed_[2];            // [P,d] for a above b; [d,P] of queries and of keys
  float *exponents_, *exponent_slopes_, *dp_;  // [d] each, polaformer
  float* p_;                                   // [max_rows,P] projections, or their gradients
};

// dw1, dw2 [H,n,d] from the gradients dW [B,H,weight_rows,d] of each batch, summed over B in order.
void reduce_map_gradient(const FeatureMapGrad& dmap, const FeatureMap& map, const float* dW, Index B, Index H, Index d);

// phi of the single row x [d] by dot products with w1 and w2 as they are: f [M]; returns the row's log_shift. p is
// scratch of row_scratch() floats.
Index row_scratch(const FeatureMap& map, Index d);
float feature_row(float* f, float* p, const FeatureMap& map, Index h, const float* x, Index d, Index position,
                  bool keys);

}  // namespace flexformer::cpu
