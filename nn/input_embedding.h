// From token numbers to vectors: token embedding plus position. All models start here.
#pragma once
#include <optional>
#include <string>

#include "nn/adaptive.h"
#include "nn/attention.h"

namespace flexformer {

// How a model tells positions apart: a learned table, fixed sinusoids, rotated q and k (attention.h), or not at all.
// Only the learned table has an end.
enum class Position { learned, sinusoidal, rope, none };
Position position_from(const std::string& name);  // throws Error for any other name

// [count, dim]: half the channels sin(t f_c), half cos(t f_c), f_c = 10000^(-c / half), for t = first, first + 1 ...,
// scaled to root mean square `rms`.
Tensor sinusoids(Index first, Index count, Index dim, float rms);

struct InputOptions {
  Index vocabulary = 0;
  AdaptiveOptions adaptive = {};
  Index block = 0;  // rows of the learned position table: the longest sequence
  Position position = Position::learned;
  Index position_offset = 0;     // rows of the learned table before that of the first token
  Index token_types = 0;         // rows of a table of token types, added to the tokens; 0: none
  bool norm_embeddings = false;  // a norm behind the sum
  NormOptions norm = {};
  bool sinusoidal_start = true;  // the learned table starts as sinusoids of rms 0.02; else N(0, 0.02^2)
  float dropout = 0;
  std::int32_t padding = -1;  // this token's row gets no gradient
};

class InputEmbedding {
 public:
  InputEmbedding(const Scope& scope, Index dim, const InputOptions& options, const Initialisation& init);

  // ids i32 [B,T] -> [B,T,C]; the first token stands at position `first`. types: i32 [B,T], undefined: all 0. Throws
  // Error for an id outside the vocabulary and for a sequence that passes the end of the position table.
  Var forward(const Tensor& ids, Index first, const Pass& pass, const Tensor& types = Tensor()) const;

  // What is added to the tokens at positions first .. [count,C], where positions are learned or sinusoidal.
  Var positions(Index first, Index count) const;

  Var token;     // [V,C]; undefined if adaptive
  Var position;  // [position_offset + block,C], a parameter if learned; undefined unless learned or sinusoidal
  Var type;      // [token_types,C]; undefined if there are none
  std::optional<AdaptiveInput> adaptive;
  std::optional<Norm> norm;

 private:
  InputOptions options_;
  Index dim_;
};

}  // namespace flexformer
