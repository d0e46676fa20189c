// Whole models: training steps of language models, passes of a long encoder, decoding token by token.
#pragma once
#include <string>

#include "nn/attention_kinds.h"
#include "tests/bench/bench_measure.h"
#include "train/util/json_file.h"
#include "train/util/log.h"

namespace flexformer::bench {

// The two language models that figures are quoted for, with a tied head and learned positions.
struct LanguageShape {
  const char* name;
  Index dim, layers, heads, vocabulary, block, batch;  // the MLP's inner size is 4 dim
  bool all_kinds;  // in the table; else only softmax and flexformer_n, since steps are slow
};
inline constexpr LanguageShape language_shapes[] = {
    {"small", 128, 4, 4, 256, 256, 16, true},
    {"big", 512, 6, 8, 8192, 512, 4, false},
};
// GPT-2's smallest, of 124 million parameters: a batch for a GPU, in no table.
inline constexpr LanguageShape gpt2_shape = {"gpt2", 768, 12, 12, 50257, 1024, 16, false};

// Forward, backward and AdamW, without clipping.
Case step_case(const LanguageShape& shape, const AttentionKind& kind);
// Forward and backward of an encoder with 10 classes (dim 128, 2 layers, 4 heads, mean pooling) on 8,192 tokens in
// sequences of N; one sequence if N is larger.
Case encoder_case(const AttentionKind& kind, Index N);
// One more token of the small language model, batch 1, behind `context` tokens.
Case decode_case(const AttentionKind& kind, Index context);

// The sections of these names.
Json steps(Console& console);
Json encoder(Console& console);
Json decode(Console& console);

}  // namespace flexformer::bench
