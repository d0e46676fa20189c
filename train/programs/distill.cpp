// distill: turns a trained softmax model into one with linear attention. First the kernels alone learn the teacher's
// attention weights, in the run folder OUT/kernels; then the whole model is fine-tuned on the teacher's task, in OUT,
// which is a run folder like any other.
#include <optional>

#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"
#include "train/reports/report.h"
#include "train/training/distillation_task.h"
#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// Kinds whose kernels learn and have weights to compare with softmax's.
std::vector<std::string> student_kinds() {
  std::vector<std::string> names;
  for (const AttentionKind& kind : attention_kinds())
    if (kind.learns_map && kind.features != FeatureKind::polaformer) names.push_back(kind.name);
  return names;
}

void add_distill_options(Options& options) {
  options.add_path("run", "", "run folder of the teacher, a model with softmax attention");
  options.add_path("out", "", "run folder to write; empty: the next free one under runs/");
  options.add_flag("resume", false, "go on with the distillation in out");
  options.add_path("kernels", "", "run folder whose kernels to start from: learned on another data set, say");
  options.add_integer("seed", 1, {.max = 9.0e15, .help = "of the kernels' start, data order and dropout"});
  options.add_integer("log_every", 10, {.min = 1, .unit = "steps", .help = "between lines of metrics.jsonl"});
  options.add_path("data.train", "", "data to train on; empty: the teacher's");
  options.add_path("data.valid", "", "data to validate on; empty: the teacher's");
  options.add_choice("model.attention", "flexformer_n", student_kinds(), "kind of attention of the student");
  options.add_integer("model.features", 0, {.max = 1 << 16, .help = "as for training; 0: the head size"});
  options.add_real("model.floor", -1, {.min = -1, .max = 1, .below = true, .help = "as for training"});
  options.add_choice("start", "fitted", {"fitted", "paper"},
                     "of the frequencies and tau: fitted to how far apart the teacher's queries and keys are, which "
                     "makes nearly even weights; or the paper's, an approximation of softmax's kernel");
  options.add_real("model.omega_scale", 1, {.max = 1000, .help = "as for training; start=fitted shrinks it further"});
  options.add_flag("model.train_tau", false, "learn the scale of the norm factor in flexformer_s too");
  options.add_integer("train.steps", 2000, {.unit = "steps", .help = "in which the kernels alone learn"});
  options.add_integer("train.batch", 32, {.min = 1, .max = 1e7, .unit = "rows", .help = "rows of a batch"});
  options.add_real("train.lr", 1e-3, {.max = 1e6, .help = "learning rate of the kernels"});
  options.add_integer("train.warmup", 100, {.unit = "steps", .help = "steps in which the rate rises from 0"});
  options.add_integer("train.eval_every", 200, {.unit = "steps", .help = "between evaluations; 0: only at the end"});
  options.add_integer("finetune.steps", 1000, {.unit = "steps", .help = "in which the whole model learns its task"});
  options.add_real("finetune.lr", 3e-4, {.max = 1e6, .help = "learning rate of fine-tuning"});
  options.add_integer("finetune.warmup", 100, {.unit = "steps", .help = "steps in which that rate rises from 0"});
  options.add_real("finetune.teacher", 0,
                   {.max = 1,
                    .help = "share of the teacher's outputs in what the model then learns, beside the labels: "
                            "(1 - share) loss + share KL(teacher || student); 0 is the paper's fine-tuning"});
  options.add_integer("finetune.eval_every", 200, {.unit = "steps", .help = "between its evaluations"});
  add_machine_options(options);
}

// A model with its data and task, whichever program trained it. The options are those of that program.
struct Student {
  explicit Student(Options options) : options(std::move(options)) {}
  virtual ~Student() = default;
  virtual const Parameters& parameters() const = 0;
  virtual const Transformer& transformer() const = 0;
  virtual Task& task() = 0;
  // The task learns the teacher's outputs too, see learn_from() of the tasks.
  virtual void learn_from(const RunFolder& teacher, float weight) = 0;
  virtual std::string data_fingerprint() const = 0;
  virtual std::string vocabulary() const = 0;
  virtual void write_vocabulary(const RunFolder& folder) const = 0;

  Options options;
};

// Loads a model that only answers.
template <class Saved> std::unique_ptr<Saved> load_frozen(const RunFolder& folder, Device device) {
  auto saved = std::make_unique<Saved>(folder, device);
  for (const Parameter& p : saved->model->parameters()) Var(p.var).set_requires_grad(false);
  return saved;
}

struct LanguageStudent : Student {
  LanguageStudent(Options given, const RunFolder& teacher, Device device)
      : Student(std::move(given)),
        data(load_language_data(options, load_tokenizer(teacher))),
        random(std::uint64_t(options.integer("seed"))),
        model(language_model_options(options, data.tokenizer->vocab_size()), random, device),
        windows(model, data.text, window_options(options, data.embedded)) {
    check_block(data.text, options.integer("train.block"));
  }
  const Parameters& parameters() const override { return model.parameters(); }
  const Transformer& transformer() const override { return model.transformer(); }
  Task& task() override { return windows; }
  void learn_from(const RunFolder& folder, float weight) override {
    teacher = load_frozen<SavedLanguageModel>(folder, model.parameters().device());
    windows.learn_from(*teacher->model, weight);
  }
  std::string data_fingerprint() const override { return data.text.train_fingerprint; }
  std::string vocabulary() const override { return data.tokenizer->fingerprint(); }
  void write_vocabulary(const RunFolder& folder) const override {
    write_json_atomic(folder.file("tokenizer.json"), data.tokenizer->to_json());
  }

  LanguageData data;
  Random random;
  LanguageModel model;
  LanguageTask windows;
  std::unique_ptr<SavedLanguageModel> teacher;
};

struct ClassifierStudent : Student {
  ClassifierStudent(Options given, const RunFolder& teacher, Device device)
      : Student(std::move(given)),
        data(load_classifier_data(options, load_tokenizer(teacher), load_labels(teacher), true)),
        random(std::uint64_t(options.integer("seed"))),
        model(classifier_options(options, *data.tokenizer, data.labels->outputs()), random, device),
        texts(make_text_task(model, data.train_texts, data.valid_texts, *data.labels, options)) {}
  const Parameters& parameters() const override { return model.parameters(); }
  const Transformer& transformer() const override { return model.transformer(); }
  Task& task() override { return *texts; }
  void learn_from(const RunFolder& folder, float weight) override {
    teacher = load_frozen<SavedClassifier>(folder, model.parameters().device());
    texts->learn_from(*teacher->model, weight);
  }
  std::string data_fingerprint() const override { return data.fingerprint; }
  std::string vocabulary() const override { return data.vocabulary(); }
  void write_vocabulary(const RunFolder& folder) const override {
    write_json_atomic(folder.file("tokenizer.json"), data.tokenizer->to_json());
    write_json_atomic(folder.file("labels.json"), data.labels->to_json());
  }

  ClassifierData data;
  Random random;
  Classifier model;
  std::unique_ptr<TextTask> texts;
  std::unique_ptr<SavedClassifier> teacher;
};

// The teacher's options, with the student's attention and what was given here.
Options student_options(const Options& options, const RunFolder& teacher, const std::string& program) {
  Options out(program, "");
  program == "train_lm" ? add_language_options(out) : add_classifier_options(out);
  teacher.load_config(out);
  if (const std::string& kind = out.text("model.attention"); kind != "softmax")
    fail("run=", teacher.path().string(), ": the teacher must have softmax attention, but this model has ", kind);
  for (const Key& key : options.keys())
    if (out.has(key.name) && !(key.name.starts_with("data.") && options.text(key.name).empty()))
      out.set(key.name, key.value);
  out.set("init", "");
  out.set("train.kernel_lr", 1.0);
  settle_model_options(out, program == "train_lm");
  return out;
}

std::unique_ptr<Student> make_student(const Options& options, const RunFolder& teacher, Device device) {
  const std::string config = teacher.file("config.json").string();
  const auto program = json_get<std::string>(read_json(config), "program", config);
  Options own = student_options(options, teacher, program);
  if (program == "train_lm") return std::make_unique<LanguageStudent>(std::move(own), teacher, device);
  return std::make_unique<ClassifierStudent>(std::move(own), teacher, device);
}

// While it lives, only the kernels learn.
class OnlyKernels {
 public:
  explicit OnlyKernels(const Parameters& parameters)
      : hash_(hash_without_kernels(parameters)), parameters_(parameters) {
    for (const Parameter& p : parameters)
      if (Var var = p.var; !p.kernel && var.requires_grad()) {
        var.set_requires_grad(false);
        frozen_.push_back(var);
      }
  }
  ~OnlyKernels() {
    for (Var& var : frozen_) var.set_requires_grad(true);
  }
  void check_unchanged() const {
    if (hash_without_kernels(parameters_) != hash_)
      fail("a parameter outside the attention kernels has changed; this is a fault of the program");
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_;
  const Parameters& parameters_;
  std::vector<Var> frozen_;
};

struct Stage {
  std::string name;
  Evaluation result;
};

void print_stages(Console& console, const std::vector<Stage>& stages) {
  console.say("");
  for (const Stage& stage : stages)
    console.say(text("  ", stage.name, std::string(40 - std::min<std::size_t>(40, stage.name.size()), ' '), "loss ",
                     fixed(stage.result.loss, 4), "  ", stage.result.words));
}

// The kernels learn softmax's weights, in their own run folder. Returns the status to leave with.
int train_kernels(Student& student, RunFolder folder, Console& console, std::vector<Stage>& stages) {
  OnlyKernels freeze(student.parameters());
  DistillationTask task(student.task(), student.transformer());
  console.say(text("\ndistillation: ", grouped(student.parameters().count()), " parameters of kernels learn, into ",
                   folder.path().string()));
  Trainer trainer(student.options, folder, student.parameters(), task, console);
  const int status = trainer.run(student.data_fingerprint(), student.vocabulary());
  if (status != 0) return status;
  if (!trainer.summary().is_null()) {
    console.say(text("\n", task.validation().table()));
    folder.write_summary(trainer.summary());
    write_report(folder, console);
  }
  freeze.check_unchanged();
  console.say(text("all other parameters are the teacher's still (hash ", freeze.hash(), ")"));
  folder.load_best(student.parameters(), student.vocabulary());
  stages.push_back({"kernels distilled", student.task().evaluate({})});
  return 0;
}

// distill.json in the run folder keeps the command: a resumed one takes what is not given from there.
constexpr const char* kCommand = "distill.json";

void resume_command(Options& options, const RunFolder& folder) {
  const std::filesystem::path path = folder.file(kCommand);
  if (!options.flag("resume") || !std::filesystem::exists(path)) return;
  Options stored = options;
  stored.load_effective(read_json(path), path.string());
  for (const Key& key : options.keys())
    if (!key.given) options.set(key.name, stored.value(key.name));
  check_enough_steps(options, folder.steps_done(), "finetune.steps");
  check_enough_steps(options, RunFolder(folder.path() / "kernels").steps_done());
}

int distill(Options& options) {
  Console console;
  Device device = use_machine_options(options);
  if (options.text("run").empty() && !options.flag("resume"))
    throw UsageError("which model shall be distilled? Give run=DIR, a trained teacher");
  RunFolder folder = RunFolder::for_training(options.text("out"), "distilled", options.flag("resume"), kCommand);
  resume_command(options, folder);
  device = use_machine_options(options);  // as stored
  if (const std::string why = why_on_cpu(options); !why.empty()) console.say(why);
  const RunFolder teacher = RunFolder::for_use(options.text("run"), "");
  check_data_given(options, teacher);
  const std::unique_ptr<Student> student = make_student(options, teacher, device);
  const Parameters& parameters = student->parameters();
  teacher.load_best_without_kernels(parameters, student->vocabulary());
  const std::string& given = options.text("kernels");
  if (!given.empty())
    RunFolder::for_use(given, "").load_best_kernels(parameters);
  else if (options.text("start") == "fitted")
    fit_kernels(student->task());
  write_json_atomic(folder.file(kCommand), options.effective());
  folder.keep();
  const std::filesystem::path inner = folder.path() / "kernels";
  const RunFolder kernels =
      RunFolder::for_training(inner.string(), "", options.flag("resume") && std::filesystem::exists(inner));
  for (const RunFolder& each : {folder, kernels}) student->write_vocabulary(each);

  std::vector<Stage> stages;
  const Pass::Observer nobody = [](const MultiHeadAttention&, const Var&, const AttentionMask&) {};
  stages.push_back({"teacher, softmax", student->task().evaluate({.observer = &nobody})});
  stages.push_back({given.empty() ? "attention replaced, kernels untrained" : "attention replaced, kernels from a run",
                    student->task().evaluate({})});
  print_stages(console, stages);
  if (const int status = train_kernels(*student, kernels, console, stages)) {
    console.say(text("the distillation goes on with: distill --out=", shell_word(folder.path().string()), " --resume"));
    return status;
  }
  print_stages(console, stages);

  Options& own = student->options;
  for (const char* key : {"steps", "lr", "warmup", "eval_every"})
    own.set(std::string("train.") + key, options.value(std::string("finetune.") + key));
  console.say(text("\nfine-tuning of all ", grouped(parameters.count()), " parameters, into ", folder.path().string()));
  if (const double share = options.real("finetune.teacher"); share > 0) {
    student->learn_from(teacher, float(share));
    console.say(text(100 * share, " % of the loss is the distance from the outputs of ", teacher.path().string()));
  }
  Trainer trainer(own, folder, parameters, student->task(), console);
  const int status = trainer.run(student->data_fingerprint(), student->vocabulary());
  if (status != 0 || trainer.summary().is_null()) return status;
  Json summary = trainer.summary();
  folder.load_best(parameters, student->vocabulary());
  stages.push_back({"fine-tuned, best weights", student->task().evaluate({})});
  for (const Stage& stage : stages) summary["stages"][stage.name] = json_number(stage.result.loss);
  folder.write_summary(summary);
  write_report(folder, console);
  print_stages(console, stages);
  console.say(text("run folder: ", folder.path().string()));
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("distill", "Turns a trained softmax model into one with linear attention.");
  flexformer::add_distill_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::distill);
}
