// THE list of kinds of attention. Models, trainers, the command line, distillation and benchmarks take all they need to
// know about a kind from its row; a new linear kind is a feature map, its start and a row.
#pragma once
#include <string>
#include <vector>

#include "nn/module.h"

namespace flexformer {

// What the start of a feature map's parameters depends on.
struct MapSize {
  Index heads, n, head_size;  // n: model.features, or the head size where that is 0
  float omega_scale;
};

struct AttentionKind {
  const char* name;
  bool is_linear;        // time linear in the length (a feature map) or quadratic (softmax)
  FeatureKind features;  // the feature map of a linear kind
  // How w1 and w2 start, as far as the map has them (weight_sets()): [heads, n, head_size], drawn from the scope.
  Tensor (*start)(const Scope& scope, const MapSize& size);
  bool learns_map;  // w1 and w2 are trained, at train.kernel_lr; otherwise they stay at their start
  bool has_tau;     // keys weigh exp(|k|^2 exp(-tau))
  bool learns_tau;  // otherwise tau stays at its start unless AttentionOptions::train_tau
  bool ties_qk;     // W_k starts as a copy of W_q
  bool has_end;     // made for sequences of at most AttentionOptions::max_length tokens
  // Defaults of AttentionOptions::floor. Trigonometric kernels can cancel out, and language models train best with a
  // generous floor; positive kernels only need to be kept from dividing by 0.
  float language_floor, classifier_floor;
};

const std::vector<AttentionKind>& attention_kinds();
// Throws Error, listing the names, if there is no such kind.
const AttentionKind& attention_kind(const std::string& name);
std::vector<std::string> attention_kind_names();

}  // namespace flexformer
