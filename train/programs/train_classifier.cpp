// train_classifier: trains a classifier (or a regression) on labelled texts or pictures, or on the embedded ListOps
// task.
#include <iostream>
#include <optional>

#include "train/models/classifier_run.h"
#include "train/models/model_options.h"
#include "train/reports/report.h"
#include "train/tokenizers/tokenizer_options.h"
#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// train.epochs -> train.steps, and unless the run is `known` from before, train.warmup and train.eval_every.
void settle_epochs(Options& options, Index rows, bool embedded, bool known) {
  const bool by_steps = options.given("train.steps");
  if (known && !options.given("train.epochs")) {
    if (by_steps) options.set("train.epochs", 0.0);
    return;
  }
  if (!embedded && !options.given("train.epochs") && !by_steps) options.set("train.epochs", 10.0);
  const double epochs = options.real("train.epochs");
  if (epochs == 0) return;
  const Index per_epoch = TextTask::steps_per_epoch(rows, classification_options(options));
  const Index steps = std::max<Index>(1, Index(epochs * double(per_epoch) + 0.5));
  if (by_steps && options.integer("train.steps") != steps)
    throw UsageError(
        text("give train.epochs or train.steps, not both: ", epochs, " epochs of these data are ", steps, " steps"));
  options.set("train.steps", steps);
  if (known) return;
  if (!options.given("train.warmup")) options.set("train.warmup", steps / 10);
  if (!options.given("train.eval_every")) options.set("train.eval_every", per_epoch);
}

int evaluate_saved(const Options& options, Console& console, Device device) {
  const RunFolder folder = RunFolder::for_use(options.text("out"), "train_classifier");
  SavedClassifier saved(folder, device);
  for (const Key& key : options.keys())
    if (key.given && key.name.starts_with("data.")) saved.options.set(key.name, key.value);
  if (!options.given("data.valid")) check_data_given(saved.options, folder, "data.valid");
  EncodedTexts texts;
  if (options.given("data.valid"))
    texts = load_labelled(saved.options, options.text("data.valid"), *saved.tokenizer, saved.labels);
  else
    texts = load_classifier_data(saved.options, std::move(saved.tokenizer), saved.labels, true).valid_texts;
  const Figures result = make_text_task(*saved.model, texts, texts, saved.labels, saved.options)->figures(texts, {});
  console.say(text(folder.path().string(), ", best weights (step ", saved.step, "): ", result.words));
  if (!result.table.empty()) console.say(result.table);
  return 0;
}

void describe(Console& console, const Options& options, const ClassifierData& data, const Classifier& model) {
  for (const std::string& line : data.description()) console.say(line);
  const TransformerOptions& m = model.options().transformer;
  const Index rows = std::min<Index>(options.integer("train.batch"), Index(data.train_texts.rows.size()));
  const Index bytes =
      training_bytes(m, model.parameters().count(), rows * data.train_texts.longest, rows, model.options().classes);
  console.say(text("model: ", m.attention.kind, ", ", m.layers, " layers, ", m.attention.heads, " heads, ", m.dim,
                   " channels, ", data.tokenizer->name(), " vocabulary of ", data.tokenizer->vocab_size(), ", ",
                   grouped(model.parameters().count()), " parameters; training takes about ", megabytes(bytes)));
  check_memory(bytes, model.parameters().device());
}

// Prints how the last weights do in validation and the best in the test; returns the summary with the test's figures.
Json final_figures(Console& console, const RunFolder& folder, const ClassifierData& data, const Classifier& model,
                   const TextTask& task, const Trainer& trainer) {
  const Figures last = task.figures(data.valid_texts, {});
  console.say(text("\nvalidation, last weights: ", last.words));
  if (!last.table.empty()) console.say(last.table);
  Json summary = trainer.summary();
  if (const Json unknown = data.unknown_share(); !unknown.empty()) summary["unknown_share"] = unknown;
  if (!data.test) return summary;
  folder.load_best(model.parameters(), data.vocabulary());
  const Figures test = task.figures(data.test_texts, {});
  console.say(text("test, best weights (step ", trainer.state().best_step, "): ", test.words));
  for (const auto& [name, value] : test.scores.items()) summary["test_" + name] = json_number(value.get<double>());
  summary["test_loss"] = json_number(test.loss);
  return summary;
}

int train(Options& options) {
  Console console;
  Device device = use_machine_options(options);
  if (options.flag("eval")) return evaluate_saved(options, console, device);

  RunFolder folder = RunFolder::for_training(options.text("out"), "text", options.flag("resume"));
  const bool resumed = folder.has_checkpoint();
  std::optional<RunFolder> initial;  // whose weights to start from: they only make sense with its tokenizer and labels
  const auto find_initial = [&] {
    if (options.text("init").empty() || resumed) return;
    initial = RunFolder::for_use(options.text("init"), "train_classifier");
    check_data_given(options, *initial);
  };
  const bool known = options.flag("resume") && folder.has_config();  // also where it was killed before its first save
  if (known) {
    folder.resume_options(options);
    device = use_machine_options(options);  // as stored
    find_initial();
  } else {
    find_initial();
    if (initial) inherit_model_options(options, *initial);
    settle_model_options(options, false);
    settle_tokenizer_options(options);
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<LabelMap> labels;
  if (resumed || initial ||
      (known && !options.given("data.train") && std::filesystem::exists(folder.file("labels.json")))) {
    tokenizer = load_tokenizer(initial.value_or(folder));
    labels = load_labels(initial.value_or(folder));
  }
  const ClassifierData data = load_classifier_data(options, std::move(tokenizer), std::move(labels), known);
  record_tokenizer(options, *data.tokenizer);
  settle_epochs(options, Index(data.train_texts.rows.size()), data.embedded, known);
  TrainingOptions{options};
  Random random(std::uint64_t(options.integer("seed")));
  Classifier model(classifier_options(options, *data.tokenizer, data.labels->outputs()), random, device);
  if (initial) initial->load_best(model.parameters(), data.vocabulary());
  describe(console, options, data, model);
  if (const std::string why = why_on_cpu(options); !why.empty()) console.say(why);
  if (!resumed) {
    folder.begin(options);
    write_json_atomic(folder.file("tokenizer.json"), data.tokenizer->to_json());
    write_json_atomic(folder.file("labels.json"), data.labels->to_json());
  }
  console.say(text("run folder: ", folder.path().string()));

  const std::unique_ptr<TextTask> task =
      make_text_task(model, data.train_texts, data.valid_texts, *data.labels, options);
  Trainer trainer(options, folder, model.parameters(), *task, console);
  const int status = trainer.run(data.fingerprint, data.vocabulary());
  if (status != 0 || trainer.summary().is_null()) return status;
  try {
    folder.write_summary(final_figures(console, folder, data, model, *task, trainer));
    write_report(folder, console);
  } catch (const Stopped&) {
    console.say(text("stopped before the last figures; training is complete and saved, and --resume adds them"));
    return 128 + stop_signal();
  }
  console.say(text("trained ", trainer.state().step, " steps in ", duration(trainer.state().seconds),
                   "; run folder: ", folder.path().string(), "  (",
                   make_command("predict", "--run=", folder.path().string(), " --file=texts.txt"), ")"));
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("train_classifier",
                              "Trains a classifier on labelled texts or pictures, or on embedded ListOps.");
  flexformer::add_classifier_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::train);
}
