#include "tests/bench/bench_attention.h"

#include <algorithm>
#include <memory>

#include "autograd/ops.h"

namespace flexformer::bench {
namespace {

constexpr Index tokens = 8192;

struct Layer {
  Layer(const AttentionKind& kind, const LayerSize& size, Index N, bool causal)
      : kind(kind),
        heads(size.heads),
        N(N),
        mask{.causal = causal, .key_mask = {}},
        qkv(cast(Var(random_tensor({size.batch, N, 3 * heads * size.d}, 3)), activation_dtype(target)).value(), true),
        w1(random_tensor({heads, kind.features == FeatureKind::polaformer ? 1 : size.d, size.d}, 4, 0.2f),
           kind.learns_map),
        w2(random_tensor({heads, size.d, size.d}, 5, 0.2f), kind.learns_map),
        tau(Tensor::full({heads}, 2.4f, target), true),
        dy(random_tensor({size.batch, N, heads * size.d}, 6)) {}

  void pass() {
    for (const Var* v : {&qkv, &w1, &w2, &tau}) v->clear_grad();
    Tape tape;
    const int sets = weight_sets(kind.features);
    const FeatureMapVars map{kind.features, sets > 0 ? w1 : Var(), sets > 1 ? w2 : Var(), kind.has_tau ? tau : Var(),
                             N};
    const Var y = kind.is_linear ? linear_self_attention(qkv, heads, map, mask, kind.language_floor)
                                 : softmax_self_attention(qkv, heads, mask);
    tape.backward(y, dy);
  }

  AttentionKind kind;
  Index heads, N;
  AttentionMask mask;
  Var qkv, w1, w2, tau;
  Tensor dy;
};

Json table(Console& console, bool causal) {
  console.say(text("\nattention, forward + backward, ", causal ? "causal" : "full", ", ", grouped(tokens),
                   " tokens in sequences of N (4 heads of 32): ms, and peak memory of tensors"));
  std::string head = cell("N", 8);
  for (const AttentionKind& kind : attention_kinds()) head += cell(kind.name, 22);
  console.say(head);
  Json rows = Json::array();
  std::vector<Index> overtakes(attention_kinds().size(), 0);
  for (Index N = 128; N <= tokens; N *= 2) {
    std::string line = cell(N, 8);
    double softmax = 0;
    for (std::size_t i = 0; i < attention_kinds().size(); ++i) {
      const AttentionKind& kind = attention_kinds()[i];
      const Measurement m = measure(attention_case(kind, small_layer(N), N, causal));
      const double seconds = median(m.seconds);
      if (!kind.is_linear) softmax = seconds;
      if (kind.is_linear && seconds < softmax && overtakes[i] == 0) overtakes[i] = N;
      line += cell(1e3 * seconds, 1, 11) + memory_cell(m.peak_tensor_bytes, 11);
      rows.push_back(
          {{"attention", kind.name}, {"N", N}, {"ms", 1e3 * seconds}, {"peak_tensor_bytes", m.peak_tensor_bytes}});
    }
    console.say(line);
  }
  for (std::size_t i = 0; i < overtakes.size(); ++i)
    if (overtakes[i])
      console.say(text(attention_kinds()[i].name, " is faster than softmax from N = ", grouped(overtakes[i]), " on"));
  return rows;
}

}  // namespace

LayerSize small_layer(Index N) { return {std::max<Index>(1, tokens / N), 4, 32}; }

Case attention_case(const AttentionKind& kind, const LayerSize& size, Index N, bool causal) {
  const auto prepare = [kind, size, N, causal]() -> Call {
    const auto layer = std::make_shared<Layer>(kind, size, N, causal);
    return [layer] { layer->pass(); };
  };
  return {text("attention:", causal ? "causal" : "full", ":", kind.name, ":", N), double(size.batch * N),
          N > 4096 ? 1 : 3, 0, prepare};
}

Json attention(Console& console) {
  Json result;
  for (const bool causal : {false, true}) result[causal ? "causal" : "full"] = table(console, causal);
  return result;
}

}  // namespace flexformer::bench
