// The data.* keys of tokenizers, which both trainers have.
#pragma once
#include "train/tokenizers/tokenizer.h"
#include "train/util/config.h"

namespace flexformer {

// Declares them. `kind` is the default of data.tokenizer, `note` is added to its help.
void add_tokenizer_options(Options& options, const std::string& kind, const std::string& note = "");

// For a new run with a tokenizer of its own (not with init=RUN). Throws UsageError if data.tokenizer is neither a kind
// nor an existing file or folder. A ready vocabulary was made for texts as they are: data.lowercase, where there is
// such a key, becomes false unless it is given.
void settle_tokenizer_options(Options& options);

// What make_tokenizer(kind, ...) needs; special tokens are the caller's.
TokenizerOptions tokenizer_options(const Options& options, const std::string& kind);

// Once the tokenizer is there: data.tokenizer becomes its kind. The name of a file or folder stays, so that the run's
// config.json can start the same run again.
void record_tokenizer(Options& options, const Tokenizer& tokenizer);

}  // namespace flexformer
