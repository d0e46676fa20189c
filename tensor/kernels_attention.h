// The contract's structs for attention; kernels.h has the legend, what all kernels share, and the list.
#pragma once
#include "tensor/values.h"

namespace flexformer {

// One of q, k, v or out as [B,N,H,d] seen through strides: element (b,i,h,c) is p[b*batch + i*row + h*head + c]. The
// same kernel so serves separate tensors [B,H,N,d] and one packed projection [B,N,3,H,d].
struct HeadsIn {
  ValuesIn p;
  Index batch, row, head;
};
struct HeadsOut {
  GradOut grad;
  Index batch, row, head;
};
struct AttentionSize {
  Index B, H, Nq, Nk, d, dv;
};

// out_i = sum_j softmax_j(scale q_i.k_j) v_j over visible keys, in tiles: no [Nq,Nk] matrix exists. Visible: key_mask
// is null or not 0 and, if causal, j <= i. A query that sees no key gets 0 and gives no gradient.
struct SoftmaxAttentionFwd {
  HeadsOut out;                  // [B,Nq,H,dv]
  float* lse;                    // [B,H,Nq] log of the sum of exponentials; -infinity where no key is visible
  HeadsIn q, k, v;               // [B,Nq,H,d] [B,Nk,H,d] [B,Nk,H,dv]
  const std::int32_t* key_mask;  // [B,Nk] or null
  AttentionSize size;
  float scale;
  bool causal;
};
struct SoftmaxAttentionBwd {
  HeadsOut dq, dk, dv;
  HeadsIn dout, out, q, k, v;
  const float* lse;              // [B,H,Nq]
  const std::int32_t* key_mask;  // [B,Nk] or null
  AttentionSize size;
  float scale;
  bool causal;
};
// One query against a cache of the keys and values so far. Each head of these serves H / kv_heads heads of queries.
struct SoftmaxAttentionStep {
  ValuesOut out;          // [B,H,dv]
  ValuesIn q;             // [B,H,d]
  ValuesIn keys, values;  // [B,kv_heads,capacity,d] [B,kv_heads,capacity,dv], the first `length` rows filled
  Index B, H, kv_heads, d, dv, length, capacity;
  float scale;
};

// A feature map phi of queries and keys; math.md "Feature maps" and "Other kinds of linear attention".
//   identity    phi(x) = x                                                                    M = d
//   elu1        phi(x) = elu(x) + 1                                                           M = d
//   trig_s      phi(x) = n^-1/2 [cos w1.x, sin w1.x]                                          M = 2n  (paper eq. 5)
//   trig_n      phi(x) = n^-1/2 [cos a.x cos b.x, sin a.x cos b.x], a, b = (w1 +- w2)/2       M = 2n  (paper eq. 6)
//   rfa         phi(x) = trig_s of x / |x|                                                    M = 2n
//   performer   phi(x) = n^-1/2 exp(w1.x' - |x'|^2/2), x' = x / d^1/4                         M = n
//   hedgehog    phi(x) = [softmax(w x), softmax(-w x)], w = w1 for queries and w2 for keys    M = 2n
//   cosformer   phi(x_i) = relu(x_i) [cos a, sin a], a = pi/2 i / max_length, i from 1        M = 2d
//   polaformer  phi(x) = [relu(x)^p, relu(-x)^p], p = 1 + 4 sigmoid(w1); see `opposite`       M = 2d
enum class FeatureKind { identity, elu1, trig_s, trig_n, rfa, performer, hedgehog, cosformer, polaformer };
struct FeatureMap {
  FeatureKind kind;
  Index n;                // rows of w1 per head: frequencies; 1 for polaformer; 0 for maps without any
  const float *w1, *w2;   // [H,n,d]; null where the map has none
  const float* tau;       // [H]: keys weigh exp(|k|^2 exp(-tau)); null: all keys weigh 1
  Index max_length = 0;   // cosformer: the longest sequence
  bool opposite = false;  // polaformer: queries swap the halves of phi, and so meet keys of the other sign
};
struct FeatureMapGrad {
  GradOut dw1, dw2;  // [H,n,d]
  GradOut dtau;      // [H]
};
Index feature_count(FeatureKind kind, Index n, Index d);
int weight_sets(FeatureKind kind);  // 2: the map has w1 and w2; 1: w1; 0: neither

// A feature map by itself, of queries or of keys. Features are float.
struct FeatureFwd {
  float* y;    // [B,H,N,M]
  ValuesIn x;  // [B,H,N,d]
  FeatureMap map;
  Index B, H, N, d;
  bool keys;
};
struct FeatureBwd {
  GradOut dx;  // [B,H,N,d]
  FeatureMapGrad dmap;
  const float* dy;  // [B,H,N,M]
  ValuesIn x;       // [B,H,N,d]
  FeatureMap map;
  Index B, H, N, d;
  bool keys;
};

// out_i = sum_j w_j k_ij v_j / max(sum_j w_j k_ij, floor * sum_j w_j), k_ij = phi(q_i).phi(k_j), over visible keys;
// math.md "Linear attention". Time and memory are linear in N: features and states live in scratch memory (for a chunk
// in each thread on the CPU, for the whole sequence on a GPU) and are computed again by the backward pass. performer's
// features are divided by their largest; a key's goes into its weight w_j = exp(max w1.k' - |k'|^2/2), a query's
// cancels, so that nothing overflows or vanishes, however large q and k are. polaformer is two launches, one for each
// part of the values: `opposite` false and true.
struct LinearAttentionFwd {
  HeadsOut out;                  // [B,Nq,H,dv]
  float* running_max;            // [B,H,Nq] m_i, the largest log-weight seen (0 where all keys weigh 1)
  float* denominator;            // [B,H,Nq] D_i, floored; 0 where no key is visible
  float* unfloored;              // [B,H,Nq] u_i: 1 where the denominator is above its floor, else 0
  HeadsIn q, k, v;               // [B,Nq,H,d] [B,Nk,H,d] [B,Nk,H,dv]
  const std::int32_t* key_mask;  // [B,Nk] or null
  FeatureMap map;
  AttentionSize size;
  float floor;
  bool causal;  // needs Nq == Nk
};
struct LinearAttentionBwd {
  HeadsOut dq, dk, dv;
  FeatureMapGrad dmap;
  HeadsIn dout, out, q, k, v;
  const float *running_max, *denominator, *unfloored;  // [B,H,Nq]
  const std::int32_t* key_mask;                        // [B,Nk] or null
  FeatureMap map;
  AttentionSize size;
  float floor;
  bool causal;
};
// What LinearAttentionStep's state is after the N tokens that begin a sequence.
struct LinearAttentionState {
  float* state;             // [B,H,M,dv+1]
  float *weight_sum, *max;  // [B,H] [B,H]
  HeadsIn k, v;             // [B,N,H,d] [B,N,H,dv]
  FeatureMap map;
  Index B, H, N, d, dv;
};
// One token of causal linear attention: the state takes the key in, then answers the query. Both parts of polaformer's
// values are served at once (the first has (dv+1)/2 of them).
struct LinearAttentionStep {
  ValuesOut out;            // [B,H,dv]
  float* state;             // [B,H,M,dv+1]: sum of w_j phi(k_j) [v_j, 1]
  float *weight_sum, *max;  // [B,H] [B,H]: sum of w_j; the largest log-weight, -infinity at the start
  ValuesIn q, k, v;         // [B,H,d] [B,H,d] [B,H,dv]
  FeatureMap map;
  Index B, H, d, dv;
  float floor;
  Index position = 0;  // of this token, from 0
};

// Rotary positions on the q and k parts of a packed projection: channels 2c and 2c+1 of a head turn by
// (position + t) * base^(-2c/d). sign = -1 turns back, which is the gradient. y may be x.
struct Rope {
  GradOut y;   // [B,T,H + 2 kv_heads,d]: heads of q, of k, of v; the last are copied
  ValuesIn x;  // the same
  Index B, T, H, kv_heads, d, position;
  float base, sign;
};

}  // namespace flexformer
