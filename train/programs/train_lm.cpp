// train_lm: trains a language model on a text file, or on the embedded stories.
#include <cmath>
#include <iostream>
#include <optional>

#include "train/models/generation.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"
#include "train/reports/report.h"
#include "train/synthetic/story_grammar.h"
#include "train/text/unknown_share.h"
#include "train/tokenizers/tokenizer_options.h"
#include "train/util/program.h"
#include "train/util/utf8.h"
#include "train/util/whole_characters.h"

namespace flexformer {
namespace {

// Empty where no token can be <unk>.
std::vector<UnknownShare> unknown_shares(const LanguageData& data) {
  if (data.embedded || !may_be_unknown(*data.tokenizer)) return {};
  const std::int32_t unknown = data.tokenizer->unknown_id();
  return {{"training", unknown_share(data.text.train, unknown)},
          {"validation", unknown_share(data.text.valid, unknown)}};
}

void describe(Console& console, const Options& options, const LanguageData& data, const LanguageModel& model) {
  const TextData& t = data.text;
  console.say(text("data: ", grouped(Index(t.train.size())), " training and ", grouped(Index(t.valid.size())),
                   " validation tokens, ", data.tokenizer->name(), " vocabulary of ", data.tokenizer->vocab_size(),
                   data.embedded ? ", embedded stories"
                   : t.split_off ? ", validation split off the end"
                                 : ""));
  if (t.valid_is_train) console.say("warning: the text is too short to split; validation is on the training text");
  if (const std::vector<UnknownShare> shares = unknown_shares(data); !shares.empty())
    for (const std::string& line : describe_unknown(shares, *data.tokenizer)) console.say(line);
  const TransformerOptions& m = model.options().transformer;
  const Index tokens = options.integer("train.batch") * options.integer("train.block");
  const Index width = data.tokenizer->vocab_size();
  const Index bytes = training_bytes(m, model.parameters().count(), tokens, logit_rows(tokens, width), width);
  console.say(text("model: ", m.attention.kind, ", ", m.layers, " layers, ", m.attention.heads, " heads, ", m.dim,
                   " channels, ", grouped(model.parameters().count()), " parameters; training takes about ",
                   megabytes(bytes)));
  check_memory(bytes, model.parameters().device());
}

// Where the embedded grammar stands beside the model: its loss can never fall below the entropy, which is per word.
void compare_with_grammar(Console& console, const Tokenizer& tokenizer, double loss) {
  if (tokenizer.name() != "word") return;
  const StoryGrammar grammar;
  console.say(text("the stories' entropy is ", fixed(grammar.entropy_per_token(), 4),
                   " nats per token (no model can do better); without memory of the story ",
                   fixed(grammar.entropy_without_recall(), 4)));
  console.say(text("this model: ", fixed(loss, 4), ", ", fixed(loss - grammar.entropy_per_token(), 4),
                   " nats per token above the limit"));
}

std::string draw_sample(const LanguageModel& model, const Tokenizer& tokenizer, std::uint64_t seed) {
  Generator generator(model, {}, seed);
  std::int32_t id = tokenizer.start_id(), previous = id;
  generator.feed(id);
  std::string sample;
  for (int i = 0; i < 120; ++i, previous = id) sample += tokenizer.decode_next(previous, id = generator.next());
  return whole_characters(sample);
}

int evaluate_saved(const Options& options, Console& console, Device device) {
  const RunFolder folder = RunFolder::for_use(options.text("out"), "train_lm");
  SavedLanguageModel saved(folder, device);
  for (const char* key : {"data.train", "data.valid", "data.valid_stride", "data.cache", "train.block"})
    if (options.given(key)) saved.options.set(key, options.value(key));
  if (!options.given("data.valid")) check_data_given(saved.options, folder, "data.valid");
  LanguageData data;
  const CacheOptions cache = cache_options(saved.options, folder, console);
  if (options.given("data.valid")) {  // the text to evaluate stands alone
    const std::string valid = options.text("data.valid");
    data.text = load_text_data(valid, valid, *saved.tokenizer, cache);
  } else {
    data = load_language_data(saved.options, load_tokenizer(folder), cache);
  }
  LanguageTask task(*saved.model, data.text, window_options(saved.options, data.embedded));
  const Evaluation result = task.evaluate({});
  console.say(text(folder.path().string(), ", best weights (step ", saved.step, "): validation loss ",
                   fixed(result.loss, 6), " nats per token over ", grouped(result.targets), " tokens, ", result.words,
                   ", ", fixed(result.summary.at("valid_bits_per_byte").get<double>(), 4), " bits per byte"));
  if (const WeightFormat format = weight_format_from(options.text("weights")); format != WeightFormat::f32) {
    round_weights(*saved.model, format);
    const double rounded = task.evaluate({}).loss;
    console.say(text("weights as ", options.text("weights"), ": validation loss ", fixed(rounded, 6), ", perplexity ",
                     fixed(std::exp(rounded), 3), "; ", rounded < result.loss ? "-" : "+",
                     fixed(std::fabs(rounded - result.loss), 6), " nats per token against f32"));
  }
  if (data.embedded) compare_with_grammar(console, *saved.tokenizer, result.loss);
  return 0;
}

int train(Options& options, Console& console) {
  Device device = use_machine_options(options);
  if (options.flag("eval")) return evaluate_saved(options, console, device);
  if (options.text("weights") != "f32")
    throw UsageError("weights=" + options.text("weights") + " belongs to eval; training keeps f32 weights");

  RunFolder folder = RunFolder::for_training(options.text("out"), "lm", options.flag("resume"));
  const bool resumed = folder.has_checkpoint();
  std::optional<RunFolder> initial;  // whose weights to start from: they only make sense with its tokenizer
  const auto find_initial = [&] {
    if (options.text("init").empty() || resumed) return;
    initial = RunFolder::for_use(options.text("init"), "train_lm");
    check_data_given(options, *initial);
  };
  const bool known = options.flag("resume") && folder.has_config();  // also where it was killed before its first save
  if (known) {
    folder.resume_options(options);
    device = use_machine_options(options);  // as stored
    find_initial();
  } else {
    settle_story_options(options);
    find_initial();
    if (initial) inherit_model_options(options, *initial);
    settle_model_options(options, true);
    settle_tokenizer_options(options);
  }
  TrainingOptions{options};  // refuses what does not fit together before any work is done
  const bool has_tokenizer =
      resumed || initial ||
      (known && !options.given("data.train") && std::filesystem::exists(folder.file("tokenizer.json")));
  LanguageData data = load_language_data(options, has_tokenizer ? load_tokenizer(initial.value_or(folder)) : nullptr,
                                         cache_options(options, folder, console));
  record_tokenizer(options, *data.tokenizer);
  check_block(data.text, options.integer("train.block"));
  const auto seed = std::uint64_t(options.integer("seed"));
  Random random(seed);
  LanguageModel model(language_model_options(options, data.tokenizer->vocab_size()), random, device);
  if (initial) initial->load_best(model.parameters(), data.tokenizer->fingerprint());
  describe(console, options, data, model);
  if (const std::string why = why_on_cpu(options); !why.empty()) console.say(why);
  if (!resumed) {
    folder.begin(options);
    write_json_atomic(folder.file("tokenizer.json"), data.tokenizer->to_json());
  }
  console.say(text("run folder: ", folder.path().string()));

  LanguageTask task(model, data.text, window_options(options, data.embedded),
                    [&] { return draw_sample(model, *data.tokenizer, seed); });
  Trainer trainer(options, folder, model.parameters(), task, console);
  const int status = trainer.run(data.text.train_fingerprint, data.tokenizer->fingerprint());
  if (status != 0 || trainer.summary().is_null()) return status;
  Json summary = trainer.summary();
  for (const UnknownShare& set : unknown_shares(data)) summary["unknown_share"][set.name] = json_number(set.share);
  folder.write_summary(summary);
  write_report(folder, console);

  folder.load_best(model.parameters(), data.tokenizer->fingerprint());
  console.say(text("\nsample of the best model:\n", draw_sample(model, *data.tokenizer, seed), "\n"));
  const Json& s = trainer.summary();
  console.say(text("trained ", trainer.state().step, " steps, ", grouped(trainer.state().tokens), " tokens in ",
                   duration(trainer.state().seconds), "; validation loss ",
                   fixed(number_from_json(s.at("valid_loss"), "summary"), 4), " nats per token, perplexity ",
                   fixed(number_from_json(s.at("valid_ppl"), "summary"), 3), "; best ",
                   fixed(number_from_json(s.at("best_valid_loss"), "summary"), 4), " at step ",
                   trainer.state().best_step));
  if (data.embedded) compare_with_grammar(console, *data.tokenizer, trainer.state().best_loss);
  const std::string path = folder.path().string();
  console.say(text("run folder: ", path, "  (", make_command("generate", "--run=", path), ")"));
  return 0;
}

int train_lm(Options& options) {
  Console console;
  try {
    return train(options, console);
  } catch (const Stopped&) {
    console.say("stopped while reading the text: nothing was changed");
    return 128 + stop_signal();
  }
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("train_lm", "Trains a language model on a text file, or on embedded stories.");
  flexformer::add_language_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::train_lm);
}
