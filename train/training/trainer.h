// The training loop, the same for every task: steps, gradient accumulation, evaluation, checkpoints, exact resume,
// stopping, summary. A task supplies batches, a loss and an evaluation.
#pragma once
#include <string>

#include "autograd/ops.h"
#include "nn/optim.h"
#include "nn/schedule.h"
#include "tensor/captured_step.h"
#include "train/training/run_folder.h"
#include "train/util/log.h"

namespace flexformer {

// The losses of an evaluation, averaged over exactly all targets, and what else the task measures.
struct Evaluation {
  double loss = 0;                // nats per target
  Index targets = 0;              // how many there were
  Json log = Json::object();      // further keys of the metrics line, such as valid_accuracy
  Json summary = Json::object();  // further keys of summary.json
  std::string words;              // the same for people, behind the loss
};

class Task {
 public:
  virtual ~Task() = default;

  // Chooses the rows of a step (from 0) by the seed and the step's number alone: that is what makes a resumed run see
  // the same data. Returns how many targets all its micro-batches hold together.
  virtual Index begin_step(Index step) = 0;
  // Tokens of the step that was begun, padding not counted.
  virtual Index step_tokens() const = 0;
  // Micro-batches of the step that was begun: fewer than usual where an epoch ends.
  virtual Index micro_batches() const = 0;
  // What one of them reads, on the host.
  virtual Batch batch(Index micro_batch) const = 0;
  // The summed loss over the targets of a batch.
  virtual Var loss_sum(const Batch& batch, const Pass& pass) = 0;
  // Whether the work of loss_sum() depends on the batch's shapes alone, so that it can be captured (CapturedStep).
  virtual bool repeats() const { return false; }

  virtual bool has_validation() const = 0;
  // Throws Stopped if stop_signal() is set on the way.
  virtual Evaluation evaluate(const Pass& pass) = 0;
};

// Thrown by Task::evaluate() when it was asked to stop: nothing is lost, since evaluating again gives the same.
struct Stopped {};

// Declares out, resume, init, seed, log_every and the train.* keys that both trainers have.
struct TrainingDefaults {
  Index steps, batch, warmup, eval_every;
  double lr, min_lr, weight_decay, beta2, label_smoothing;
  std::string steps_help;
};
void add_training_options(Options& options, const TrainingDefaults& defaults);

// Throws Error if `key`, or train.epochs, was given with fewer steps than the run that goes on has done.
void check_enough_steps(const Options& options, Index done, const char* key = "train.steps");

// What add_training_options() declared, read once.
struct TrainingOptions {
  explicit TrainingOptions(const Options& options);  // throws UsageError where they contradict each other

  Index steps, eval_every, save_every, log_every, patience;
  double clip;
  std::uint64_t seed;
  Schedule schedule;
  OptimizerOptions optimizer;
};

class Trainer {
 public:
  Trainer(const Options& options, RunFolder& folder, const Parameters& parameters, Task& task, Console& console);

  // Trains from the folder's checkpoint, if it has one, to the last step, evaluates, saves and fills summary(). Returns
  // the status to leave with: 0, or 128 + the signal that asked to stop. A run that had finished before is left
  // as it is, and summary() stays null. `vocabulary` is the fingerprint of tokenizer and labels.
  int run(const std::string& data_fingerprint, const std::string& vocabulary);

  const TrainingState& state() const { return state_; }
  const Json& summary() const { return summary_; }

 private:
  bool out_of_patience() const { return training_.patience && state_.worse >= training_.patience; }
  bool had_finished() const;
  void start(const std::string& data_fingerprint, const std::string& vocabulary);
  void train_step();  // throws Error if loss or gradient is not finite
  // Gives the device all work of a step over so many targets, and returns the losses of its batches.
  std::vector<Tensor> launch_step(const std::vector<Batch>& batches, Index targets);
  std::string first_bad_tensor() const;  // parameters first, then gradients
  [[noreturn]] void broke_down(Index step, const std::string& tensor) const;
  void check_parameters() const;  // weights that are not finite must never replace a good checkpoint
  static bool is_due(Index step, Index every);
  void log_step(bool always);
  void evaluate();
  void report();
  void save();
  int stopped(int signal);
  void finish();

  const Options& options_;
  TrainingOptions training_;
  RunFolder& folder_;
  const Parameters& parameters_;
  Task& task_;
  Console& console_;
  Optimizer optimizer_;
  Tensor step_;  // i32 [1] on the device: the step that is made
  CapturedStep captured_;
  TrainingState state_;
  Evaluation last_;
  Json summary_;

  double loss_ = 0, norm_ = 0, rate_ = 0;  // of the last step
  Stopwatch since_log_;
  Index tokens_since_log_ = 0;
  double rate_of_tokens_ = 0;  // tokens/s at the last log line
  Stopwatch since_report_;
  double report_seconds_ = 0;  // what the last report took
};

}  // namespace flexformer
