// Feature maps on tiles of rows: the attention kernels compute features a tile at a time and throw them away.
//
// trig_s and trig_n share one form. With p = W x, W = w1 or [a; b], a = (w1+w2)/2, b = (w1-w2)/2, the features are
// n^-1/2 [cos p, sin p] or n^-1/2 [cos pa cos pb, sin pa cos pb], and the gradients come from the features themselves
// (da = F_cos dF_sin - F_sin dF_cos) and, for b, from the companions E = n^-1/2 [cos pa sin pb, sin pa sin pb].
#pragma once
#include "tensor/cpu_attention.h"

namespace flexformer::cpu {

// Projections that one row needs: rows of W.
Index projection_count(FeatureKind kind, Index n);

// The map of one head at a time, for tiles of at most max_rows rows.
class TileFeatures {
 public:
  TileFeatures(Scratch& scratch, const FeatureMap& map, Index d, Index max_rows);

  Index count() const { return M_; }              // features per row
  Index weight_count() const { return P_ * d_; }  // elements of W
  bool needs_companions() const { return map_.kind == FeatureKind::trig_n; }

  void set_head(Index h);
  // f [rows,M] = phi(x), x [rows,d]. companions [rows,M] may be null when no backward pass follows, and is written for
  // trig_n only.
  void forward(float* f, float* companions, const float* x, Index x_row, Index rows);
  // dx [rows,d] (null: not wanted), and dW [P,d] += (null: not wanted), from df [rows,M] and what forward() gave.
  void backward(float* dx, float* dW, const float* df, const float* f, const float* companions, const float* x,
                Index x_row, Index rows);

 private:
  void trigonometric_row(float* f, float* companions, const float* p) const;
  void project_backward(float* dp, const float* df, const float* f, const float* companions) const;

  FeatureMap map_;
  Index d_, M_, P_;
  float root_;                    // n^-1/2
  const float* W_ = nullptr;      // [P,d]
  float *W_own_, *W_transposed_;  // [P,d] for a above b, [d,P]
  float* p_;                      // [max_rows,P] projections, or their gradients
};

// dw1, dw2 [H,n,d] from the gradients dW [B,H,P,d] of each batch, summed over B in order.
void reduce_map_gradient(const FeatureMapGrad& dmap, const FeatureMap& map, const float* dW, Index B, Index H, Index d);

// phi of the single row x by dot products with w1 and w2 as they are: f [M]; p [P] is scratch.
void feature_row(float* f, float* p, const FeatureMap& map, Index h, const float* x, Index d);

}  // namespace flexformer::cpu
