// Whole small training runs in a temporary folder, put together as the programs do it.
#pragma once
#include <iostream>
#include <memory>
#include <sstream>

#include "tests/train/util/messages.h"
#include "tests/train/util/temporary_folder.h"
#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"
#include "train/training/classification_task.h"
#include "train/training/trainer.h"
#include "train/util/files.h"

namespace flexformer::tests {

// What a program says goes here instead of to the terminal.
class Captured {
 public:
  Captured() : before_(std::cout.rdbuf(text_.rdbuf())) {}
  ~Captured() { std::cout.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

// Makes a run folder, or opens it to go on, and lets go of it: tests open a folder again while a run in it still lives.
inline void begin_again(const std::filesystem::path& out) {
  RunFolder::for_training(out.string(), "", RunFolder(out).has_checkpoint()).keep();
}

// A power cut: thrown by a task when a certain step begins.
struct PowerCut {};

// Another task, watched.
class WatchedTask : public Task {
 public:
  explicit WatchedTask(Task& task) : task_(task) {}

  Index begin_step(Index step) override {
    if (step == cut_at) throw PowerCut{};
    if (before_step) before_step(step);
    return task_.begin_step(step);
  }
  Index step_tokens() const override { return task_.step_tokens(); }
  Index micro_batches() const override { return task_.micro_batches(); }
  Batch batch(Index micro) const override { return task_.batch(micro); }
  Var loss_sum(const Batch& batch, const Pass& pass) override { return task_.loss_sum(batch, pass); }
  bool has_validation() const override { return task_.has_validation(); }
  Evaluation evaluate(const Pass& pass) override {
    ++evaluations;
    graphs += Tape::current() != nullptr;
    return task_.evaluate(pass);
  }

  Index cut_at = -1;
  std::function<void(Index step)> before_step;
  int evaluations = 0, graphs = 0;  // ... and how many of them found a tape open

 private:
  Task& task_;
};

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline const Arguments kTinyModel = {
    "--model.layers=2", "--model.heads=2",   "--model.dim=32",   "--model.ffn=64", "--log_every=1",
    "--train.batch=4",  "--train.warmup=12", "--train.steps=20", "--threads=1",    "--train.label_smoothing=0"};

// Around both kinds of run: `out` is a folder that may hold a checkpoint already.
class SmallRun {
 public:
  virtual ~SmallRun() = default;
  // Trains as far as it goes; a power cut at step `cut_at` ends it early.
  int train(Index cut_at = -1) {
    watched->cut_at = cut_at;
    const Captured captured;
    struct Keep {
      const Captured& from;
      std::string& to;
      ~Keep() { to = from.text(); }
    } keep{captured, said};
    try {
      Console console;
      Trainer trainer(options, folder, parameters(), *watched, console);
      const int status = trainer.run(data_fingerprint(), vocabulary());
      summary = trainer.summary();
      if (!summary.is_null()) folder.write_summary(summary);
      return status;
    } catch (const PowerCut&) {
      return -1;
    }
  }
  virtual const Parameters& parameters() const = 0;
  virtual std::string data_fingerprint() const = 0;
  virtual std::string vocabulary() const = 0;

  std::string checkpoint() const { return read_file(folder.file("checkpoint/last.safetensors")); }
  // Lines of metrics.jsonl without the speed.
  std::vector<Json> metrics() const {
    std::vector<Json> lines;
    std::istringstream in(read_file(folder.file("metrics.jsonl")));
    for (std::string line; std::getline(in, line);) {
      lines.push_back(parse_json(line, "metrics.jsonl"));
      lines.back().erase("tokens_per_second");
    }
    return lines;
  }
  // One column of the training lines.
  std::vector<double> column(const char* key) const {
    std::vector<double> values;
    for (const Json& line : metrics())
      if (line.contains(key)) values.push_back(number_from_json(line.at(key), key));
    return values;
  }

  Options options;
  RunFolder folder;
  std::unique_ptr<WatchedTask> watched;
  std::string said;
  Json summary;

 protected:
  SmallRun(const char* program, void (*declare)(Options&), const std::filesystem::path& out, bool language,
           const Arguments& arguments)
      : options(program, ""), folder(out) {
    declare(options);
    options.parse(kTinyModel + arguments);
    begin_again(out);
    if (folder.has_checkpoint())
      folder.resume_options(options);
    else
      settle_model_options(options, language);
  }
};

struct SmallLanguageRun : SmallRun {
  SmallLanguageRun(const std::filesystem::path& out, const std::string& text, const Arguments& arguments = {})
      : SmallRun("train_lm", add_language_options, out, true, Arguments{"--train.block=16"} + arguments) {
    tokenizer = make_tokenizer("char", text, {});
    data = make_text_data(text, "text", nullptr, "", *tokenizer);
    Random random(std::uint64_t(options.integer("seed")));
    model = std::make_unique<LanguageModel>(language_model_options(options, tokenizer->vocab_size()), random);
    task = std::make_unique<LanguageTask>(*model, data, window_options(options, false));
    watched = std::make_unique<WatchedTask>(*task);
    if (!folder.has_checkpoint()) write_json_atomic(folder.file("tokenizer.json"), tokenizer->to_json());
  }
  const Parameters& parameters() const override { return model->parameters(); }
  std::string data_fingerprint() const override { return data.train_fingerprint; }
  std::string vocabulary() const override { return tokenizer->fingerprint(); }

  std::unique_ptr<Tokenizer> tokenizer;
  TextData data;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<LanguageTask> task;
};

struct SmallClassifierRun : SmallRun {
  SmallClassifierRun(const std::filesystem::path& out, const std::string& table_file, const Arguments& arguments = {})
      : SmallRun("train_classifier", add_classifier_options, out, false,
                 Arguments{"--data.min_count=1", "--data.max_length=16", "--data.train=" + table_file} + arguments),
        data(load_classifier_data(options, nullptr, {})) {
    Random random(std::uint64_t(options.integer("seed")));
    model = std::make_unique<Classifier>(classifier_options(options, *data.tokenizer, data.labels->outputs()), random);
    task = make_text_task(*model, data.train_texts, data.valid_texts, *data.labels, options);
    watched = std::make_unique<WatchedTask>(*task);
    if (!folder.has_checkpoint()) {
      write_json_atomic(folder.file("tokenizer.json"), data.tokenizer->to_json());
      write_json_atomic(folder.file("labels.json"), data.labels->to_json());
    }
  }
  const Parameters& parameters() const override { return model->parameters(); }
  std::string data_fingerprint() const override { return data.fingerprint; }
  std::string vocabulary() const override { return data.vocabulary(); }

  ClassifierData data;
  std::unique_ptr<Classifier> model;
  std::unique_ptr<TextTask> task;
};

// A text with something to learn: words of a small vocabulary in a random order.
inline std::string small_text(Index words = 120, std::uint64_t seed = 1) {
  static const char* const vocabulary[] = {"a", "ba", "cab", "dab", "face", "bead", "fade"};
  Random random(seed);
  std::string out;
  for (Index i = 0; i < words; ++i) out += text(vocabulary[random.below(7)], i % 9 == 8 ? "\n" : " ");
  return out;
}

// A table of `rows` texts of 1 to 12 words; the label says which of two words comes more often.
inline std::string small_table(Index rows = 40, std::uint64_t seed = 1) {
  Random random(seed);
  std::string out = "label\ttext\n";
  for (Index i = 0; i < rows; ++i) {
    const bool up = i % 2;
    out += up ? "up\t" : "down\t";
    for (Index words = 1 + Index(random.below(12)); words > 0; --words)
      out += random.below(4) == 0 ? "and " : up ? "rise " : "fall ";
    out += up ? "rise\n" : "fall\n";
  }
  return out;
}

}  // namespace flexformer::tests
