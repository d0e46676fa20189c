// One attention layer against the length of the sequences.
#pragma once
#include "nn/attention_kinds.h"
#include "tests/bench/bench_measure.h"
#include "train/util/json_file.h"
#include "train/util/log.h"

namespace flexformer::bench {

struct LayerSize {
  Index batch, heads, d;
};
LayerSize small_layer(Index N);  // 4 heads of 32, 8,192 tokens in sequences of N; one sequence if N is larger
inline constexpr LayerSize gpt2_layer = {8, 12, 64};

// Forward and backward of sequences of N tokens, with as many features (frequencies) as a head has channels.
Case attention_case(const AttentionKind& kind, const LayerSize& size, Index N, bool causal);

// The section "attention": time and memory against N, and where a linear kind overtakes softmax.
Json attention(Console& console);

}  // namespace flexformer::bench
