// One attention layer against the length of the sequences.
#pragma once
#include "nn/attention_kinds.h"
#include "tests/bench_measure.h"
#include "train/json_file.h"
#include "train/log.h"

namespace flexformer::bench {

// Forward and backward of 4 heads of 32, 8,192 tokens in sequences of N; one sequence if N is larger.
Case attention_case(const AttentionKind& kind, Index N, bool causal);

// The section "attention": time and memory against N, and where a linear kind overtakes softmax.
Json attention(Console& console);

}  // namespace flexformer::bench
