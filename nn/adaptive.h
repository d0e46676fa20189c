// Adaptive inputs and adaptive softmax (Grave et al., "Efficient softmax approximation for GPUs", 2017; Baevski and
// Auli, "Adaptive input representations for neural language modeling", 2018): vocabularies of hundreds of thousands of
// words, of which most are rare. Ids stand in order of falling frequency and are cut into bands; the rarer a band, the
// shorter its vectors, and a map brings them to the model's width. The output layer first tells the frequent words and,
// as one class each, the other bands apart; which word of a band it is, is only asked where the target is in it.
#pragma once
#include <vector>

#include "nn/layers.h"

namespace flexformer {

struct AdaptiveOptions {
  std::vector<Index> cutoffs = {};  // the first id of the second band, of the third ..; empty: not adaptive
  Index factor = 4;                 // from band to band vectors get shorter by this
};

// Ids first .. first + size - 1, with vectors of `width` channels.
struct Band {
  Index first, size, width;
};
// One band more than cut-offs. Throws Error if these do not rise, leave the vocabulary, or a width would be 0.
std::vector<Band> adaptive_bands(Index vocabulary, Index dim, const AdaptiveOptions& options);

// x_t = P_b E_b[id_t - first_b], b the band of id_t.  ids i32 [..] -> [.., dim].      math.md (9.1)
class AdaptiveInput {
 public:
  // Tables start as `init`, maps such that the vectors they make are as large as those of a full table.
  AdaptiveInput(const Scope& scope, Index vocabulary, Index dim, const AdaptiveOptions& options, Init init);

  // Throws Error for an id outside the vocabulary.
  Var forward(const Tensor& ids) const;

  std::vector<Band> bands;
  std::vector<Var> table, projection;  // E_b [size_b, width_b], P_b [dim, width_b]
};

// log p(v | h) = log softmax([E_0; C] h)_v                                             v in band 0
//              = log softmax([E_0; C] h)_(size_0 + b - 1) + log softmax(E_b P_b^T h)_v    v in band b > 0
// with a row of C [bands - 1, dim] for each band behind the first.                     math.md (9.2)
class AdaptiveSoftmax {
 public:
  // `tied`: whose tables and maps are used here too; null: own ones.
  AdaptiveSoftmax(const Scope& scope, Index vocabulary, Index dim, const AdaptiveOptions& options, Init init,
                  const AdaptiveInput* tied);

  // Cross-entropy as cross_entropy() has it, of h [.., dim] and targets i32 [..]: of a band, only the rows whose target
  // is in it are multiplied, and no more logits exist at a time than in linear_cross_entropy(). Without label
  // smoothing.
  Var loss(const Var& h, const Tensor& targets, const CrossEntropyOptions& options = {}) const;
  // Of the whole vocabulary: h [.., dim] -> [.., V]. They are logits, too: their softmax is the distribution.
  Var log_probabilities(const Var& h) const;

  std::vector<Band> bands;
  std::vector<Var> table, projection;  // projection[0] is undefined: the first band's words read h itself
  Var tails;                           // C
};

}  // namespace flexformer
