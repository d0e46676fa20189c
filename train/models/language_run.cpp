#include "train/models/language_run.h"

#include "train/models/model_options.h"
#include "train/synthetic/story_grammar.h"
#include "train/tokenizers/tokenizer_options.h"
#include "train/util/program.h"

namespace flexformer {
namespace {

// Enough stories that no window is seen twice in the default run, and a validation text that tells 0.01 nats apart.
constexpr Index kTrainStories = 60000, kValidStories = 1500;

const std::vector<std::pair<const char*, Value>>& story_defaults() {
  // A small model and many small steps: recalling who holds what takes some thousand of them to appear, and rotary
  // positions, which let a head look back by a distance, bring it out much sooner.
  static const std::vector<std::pair<const char*, Value>> defaults = {{"model.layers", std::int64_t(2)},
                                                                      {"model.dim", std::int64_t(64)},
                                                                      {"model.position", "rope"},
                                                                      {"train.batch", std::int64_t(8)},
                                                                      {"train.steps", std::int64_t(10000)},
                                                                      {"train.eval_every", std::int64_t(2500)},
                                                                      {"train.lr", 4e-3},
                                                                      {"log_every", std::int64_t(500)}};
  return defaults;
}

// "model.layers=2, ...": the defaults of the embedded stories, for --help.
std::string story_words() {
  std::string words;
  for (const auto& [key, value] : story_defaults()) words += text(words.empty() ? "" : ", ", key, "=", to_text(value));
  return words;
}

}  // namespace

void add_language_options(Options& options) {
  options.add_path("data.train", "",
                   "text file to train on; empty: stories of the embedded grammar, with " + story_words());
  options.add_path("data.valid", "", "text file to validate on; empty: the last tenth of data.train");
  add_tokenizer_options(options, "char", "; embedded stories: word");
  options.add_path("data.cache", "auto",
                   "where the tokens of texts of 16 MB and more are kept for later runs: auto (beside the text as "
                   "FILE.tokens-*, else in the run folder), none (in memory), or a folder");
  options.add_integer("data.valid_stride", 0,
                      {.unit = "tokens",
                       .help = "between starts of validation windows: less than train.block gives every "
                               "target more context, and takes longer; 0: train.block (embedded stories: half)"});
  add_training_options(options, {.steps = 2000,
                                 .batch = 16,
                                 .warmup = 100,
                                 .eval_every = 500,
                                 .lr = 1e-3,
                                 .min_lr = 1e-4,
                                 .weight_decay = 0.1,
                                 .beta2 = 0.99,
                                 .label_smoothing = 0,
                                 .steps_help = "optimiser steps"});
  options.add_integer("train.block", 128, {.min = 1, .max = 1 << 24, .unit = "tokens", .help = "context length"});
  add_model_options(options, 4, 4, 128, 0, 0);
  add_language_model_options(options);
  add_machine_options(options);
  options.add_flag("eval", false,
                   "evaluate the best model of the run in out (or the last run) on data.valid, and stop");
  options.add_choice("weights", "f32", {"f32", "bf16", "int8"},
                     "with eval: evaluate with the rounded weights that generate decodes with, too");
}

void settle_story_options(Options& options) {
  if (!options.text("data.train").empty()) return;
  for (const auto& [key, value] : story_defaults())
    if (!options.given(key)) options.set(key, value);
}

LanguageData load_language_data(const Options& options, std::unique_ptr<Tokenizer> stored, const CacheOptions& cache) {
  LanguageData data;
  data.tokenizer = std::move(stored);
  const std::string &train = options.text("data.train"), &valid = options.text("data.valid");
  data.embedded = train.empty();
  if (data.embedded && !valid.empty())
    throw UsageError("data.valid is given without data.train; give both, or neither for the embedded stories");
  const std::string train_stories = data.embedded ? StoryGrammar::corpus(1, kTrainStories) : "",
                    valid_stories = data.embedded ? StoryGrammar::corpus(2, kValidStories) : "";
  std::vector<TextSource> texts;  // to train on and, if there is one, to validate on
  texts.push_back(data.embedded ? TextSource(train_stories, "embedded stories") : TextSource::open(train));
  if (data.embedded) texts.emplace_back(valid_stories, "embedded validation stories");
  if (!valid.empty()) texts.push_back(TextSource::open(valid));
  if (!data.tokenizer) {
    // Characters come from both texts: one that only the validation text has must not end a run hours later.
    const std::string name =
        data.embedded && !options.given("data.tokenizer") ? "word" : options.text("data.tokenizer");
    const std::size_t learned_from = name == "char" ? texts.size() : 1;
    data.tokenizer =
        cached_tokenizer(name, std::span(texts).first(learned_from), tokenizer_options(options, name), cache);
  }
  if (!options.text("model.adaptive").empty() && data.tokenizer->name() != "word")
    throw UsageError(
        text("model.adaptive needs tokens in order of falling frequency, as those of data.tokenizer=word; ",
             data.tokenizer->name(), "'s are not"));
  data.text = make_text_data(texts[0], texts.size() > 1 ? &texts[1] : nullptr, *data.tokenizer, cache);
  return data;
}

CacheOptions cache_options(const Options& options, const RunFolder& folder, Console& console) {
  return {.reading = {.console = &console}, .place = options.text("data.cache"), .run_folder = folder.path()};
}

WindowOptions window_options(const Options& options, bool embedded) {
  WindowOptions w;
  w.block = options.integer("train.block");
  w.batch = options.integer("train.batch");
  w.accumulate = options.integer("train.accumulate");
  w.valid_stride = options.integer("data.valid_stride");
  if (embedded && w.valid_stride == 0) w.valid_stride = std::max<Index>(1, w.block / 2);
  w.label_smoothing = float(options.real("train.label_smoothing"));
  w.seed = std::uint64_t(options.integer("seed"));
  return w;
}

SavedLanguageModel::SavedLanguageModel(const RunFolder& folder, Device device) : options("train_lm", "") {
  add_language_options(options);
  folder.load_config(options);
  tokenizer = load_tokenizer(folder);
  const LanguageModelOptions sizes = language_model_options(options, tokenizer->vocab_size());
  folder.check_model_size(least_parameters(sizes, sizes.block));
  Random random(0);
  model = std::make_unique<LanguageModel>(sizes, random, device);
  step = folder.load_best(model->parameters(), tokenizer->fingerprint());
}

}  // namespace flexformer
