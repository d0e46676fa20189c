// The table behind attention_kinds.h.
#include "nn/attention_kinds.h"

namespace flexformer {

const std::vector<AttentionKind>& attention_kinds() {
  static const std::vector<AttentionKind> kinds = {
      // name, linear, feature map, frequency sets, has tau, learns tau, ties q and k, floors
      {"softmax", false, FeatureKind::identity, 0, false, false, false, 0, 0},
      {"flexformer_s", true, FeatureKind::trig_s, 1, true, false, true, 0.05f, 0.01f},
      {"flexformer_n", true, FeatureKind::trig_n, 2, true, true, true, 0.05f, 0.01f},
      {"linear", true, FeatureKind::elu1, 0, false, false, false, 1e-6f, 1e-6f},
  };
  return kinds;
}

const AttentionKind& attention_kind(const std::string& name) {
  std::string names;
  for (const AttentionKind& kind : attention_kinds()) {
    if (name == kind.name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  fail("there is no attention '", name, "'; there are ", names);
}

std::vector<std::string> attention_kind_names() {
  std::vector<std::string> names;
  for (const AttentionKind& kind : attention_kinds()) names.emplace_back(kind.name);
  return names;
}

}  // namespace flexformer
