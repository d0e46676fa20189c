// Multi-head self-attention of any kind, over whole sequences. One fused projection makes q, k and v; the attention ops
// read it in place.
#pragma once
#include <optional>
#include <string>

#include "nn/attention_kinds.h"
#include "nn/layers.h"

namespace flexformer {

// Normalisation of every head's q and k: none, to length 1, or to a mean square of 1.
enum class QkNorm { none, l2, rms };
QkNorm qk_norm_from(const std::string& name);  // throws Error for any other name

struct AttentionOptions {
  std::string kind = "flexformer_n";  // a name from attention_kinds()
  Index heads = 4;
  Index kv_heads = 0;        // heads of keys and values, each shared by heads / kv_heads heads of q; 0: heads
  Index features = 0;        // n, rows of w1 per head (frequencies, projections); 0: the head size
  float floor = -1;          // of the denominator, relative to the sum of key weights; negative: the kind's own
  float omega_scale = 0.5f;  // frequencies start as omega_scale * N(0, I / sqrt(head size)); 1 is the paper's
  bool train_tau = false;    // also in kinds where tau is fixed
  std::optional<bool> tie_qk_init = {};  // W_k starts as a copy of W_q; unset: the kind's own
  QkNorm qk_norm = QkNorm::none;
  bool rope = false;         // rotary positions; needs an even head size
  float rope_theta = 10000;  // their base, see rope()
  bool biases = true;        // of both projections
  Index max_length = 0;      // the longest sequence, for kinds that have an end
};

// Starts of a transformer's matrices by their part in it.
struct Initialisation {
  Init query_key, value, matrix, residual, embedding;

  // GPT-2's: N(0, 0.02^2), and 1/sqrt(2 layers) of that for the 2 layers' maps into the residual stream, so that the
  // stream's size does not grow with depth; but 1/sqrt(dim) for W_q and W_k, which lets attention pick from the start.
  static Initialisation gpt(Index dim, Index layers);
  // Xavier for all matrices, the usual choice for small encoders; W_q, W_k and W_v are three matrices [dim, dim] here,
  // so theirs is a deviation of 1/sqrt(dim) too. Embeddings N(0, 0.02^2).
  static Initialisation xavier();
};

class MultiHeadAttention {
 public:
  // Throws Error if the heads do not divide dim, kv_heads not the heads, or the kind is unknown.
  MultiHeadAttention(const Scope& scope, Index dim, const AttentionOptions& options, const Initialisation& init);

  // x [B,T,C] -> [B,T,C], plus `residual` unless that is undefined
  Var forward(const Var& x, const AttentionMask& mask, const Var& residual = Var(), const Pass& pass = {}) const;

  // The projection [B,T,3C] = q | k | v as the kernel sees it: grouped keys and values repeated, rotated and normalised
  // where that is asked for. The first token stands at `position`.
  Var project(const Var& x, Index position = 0) const;
  // Its part 0 (q), 1 (k) or 2 (v) as [B,H,T,d].
  Var heads_of(const Var& projected, Index part) const;
  FeatureMapVars feature_map() const { return {kind->features, w1, w2, tau, max_length}; }  // of a linear kind

  const AttentionKind* kind;
  Index heads, head_size, kv_heads, max_length;
  float floor;
  Linear qkv, out;  // qkv: heads of q, then kv_heads of k, then kv_heads of v
  Var w1, w2, tau;  // the feature map's, see FeatureKind: [H,n,d] [H,n,d] [H]; undefined where the kind has none

 private:
  Var normalise(const Var& packed) const;
  Var repeat_kv(const Var& projected) const;

  QkNorm qk_norm_;
  bool rope_;
  float rope_theta_;
};

}  // namespace flexformer
