// What the programs around a language model share: its keys, its data, and loading it back from a run folder.
#pragma once
#include <memory>

#include "nn/language_model.h"
#include "train/training/language_task.h"
#include "train/training/run_folder.h"

namespace flexformer {

// Declares every key of train_lm.
void add_language_options(Options& options);

// Gives keys that were not given the values that suit the embedded stories, if those are what there is to train on.
void settle_story_options(Options& options);

// The text that the options ask for: files, or stories of the embedded grammar where data.train is empty.
struct LanguageData {
  std::unique_ptr<Tokenizer> tokenizer;
  TextData text;
  bool embedded = false;
};
// `stored`: the tokenizer of the run that goes on or whose weights are the start, or null to make one. `cache`: as
// cache_options() gives it.
LanguageData load_language_data(const Options& options, std::unique_ptr<Tokenizer> stored,
                                const CacheOptions& cache = {});

// Where data.cache keeps the tokens of long texts, for the run in `folder`.
CacheOptions cache_options(const Options& options, const RunFolder& folder, Console& console);

// The windows that the options describe.
WindowOptions window_options(const Options& options, bool embedded);

// A trained model as a run folder holds it, with its best weights.
struct SavedLanguageModel {
  explicit SavedLanguageModel(const RunFolder& folder, Device device = Device::cpu);

  Options options;  // of the training run
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<LanguageModel> model;
  Index step;  // at which these weights were best
};

}  // namespace flexformer
