// Feature maps of all rows of an input at once: attention keeps the features of its queries and keys in scratch memory,
// and its products read them there. math.md sections 2 and 8.
#pragma once
#include "cuda/kernel.h"

namespace flexformer::cuda {

// The rows of queries or keys that go through a map.
struct FeatureRows {
  HeadsIn x;  // [B,N,H,d]
  FeatureMap map;
  Index B, H, N, d;
  bool keys;
  Index position;     // of the first row
  Index M;            // features of a row
  int sets;           // matrices that a row is multiplied with: 2 for trig_n, whose features are the mean of both
  const float* w[2];  // [H,n,d] each
  Index P;            // numbers that a row keeps for the backward pass: its sets * n projections

  FeatureRows(const HeadsIn& x, const FeatureMap& map, Index B, Index H, Index N, Index d, bool keys,
              Index position = 0);
  Index count() const { return B * H * N; }
};

// lw_j of keys as the sum of two floats: `high` is a float's rounding, `low`, cut to [-1, 1], what it left. Differences
// of large log-weights so keep their digits. Hidden keys have -infinity; 0 in kinds that do not weigh keys.
struct LogWeights {
  float *high = nullptr, *low = nullptr;   // [B,H,N]
  const std::int32_t* key_mask = nullptr;  // [B,N] or null
};
HD inline bool weighs_keys(const FeatureMap& map) { return map.tau || map.kind == FeatureKind::performer; }

// f [B,H,N,M] = phi(x) and p [B,H,N,P]. performer's features are divided by their largest, which goes into the key's
// log-weight, unless they are to be `whole`.
void compute_features(float* f, float* p, const FeatureRows& rows, bool whole, const LogWeights& lw = {});

// The way back. A gradient that is not wanted is null, as everywhere.
struct FeatureGradients {
  HeadsOut dx;
  GradOut dw1, dw2;
  const float *df, *f;  // [B,H,N,M]
  float* p;             // [B,H,N,P] what compute_features gave; it is overwritten
  // Rows that weigh: dlw_j = f_j.df_j + rest_j, dx_j += 2 factor dlw_j x_j (eq. 3.9 and 3.11). A whole feature of
  // performer, which is exp(lw) times the divided one, obeys the same formula.
  bool weighed;
  const float* rest = nullptr;  // [B,H,N] or null
  LogWeights lw = {};           // null: no key is hidden
  const float* most = nullptr;  // [B,H] the largest log-weight
  float* dtau = nullptr;        // [B,H,N] -(lw_j - most) dlw_j, or null
};
void features_backward(const FeatureGradients& gradients, const FeatureRows& rows);

}  // namespace flexformer::cuda
