#include "train/training/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/parallel.h"
#include "train/reports/report.h"
#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

bool all_finite(const Tensor& tensor) { return std::isfinite(squared_norm(tensor)); }

}  // namespace

void add_training_options(Options& options, const TrainingDefaults& d) {
  options.add_path("out", "", "run folder to write; empty: the next free one under runs/");
  options.add_flag("resume", false, "go on with the run in out; keys that are not given keep their stored value");
  options.add_path("init", "", "run folder whose best weights to start from");
  options.add_integer("seed", 1, {.max = 9.0e15, .help = "of weights, data order and dropout"});
  options.add_integer("log_every", 10, {.min = 1, .unit = "steps", .help = "between lines of metrics.jsonl"});
  options.add_integer("train.steps", d.steps, {.unit = "steps", .help = d.steps_help});
  options.add_integer("train.batch", d.batch, {.min = 1, .max = 1e7, .unit = "rows", .help = "rows of a micro-batch"});
  options.add_integer("train.accumulate", 1,
                      {.min = 1, .max = 1e6, .unit = "micro-batches", .help = "micro-batches of a step"});
  options.add_real("train.lr", d.lr, {.max = 1e6, .help = "learning rate after the warm-up"});
  options.add_real("train.min_lr", d.min_lr, {.max = 1e6, .help = "learning rate at the end of the cosine"});
  options.add_integer("train.warmup", d.warmup, {.unit = "steps", .help = "steps in which the rate rises from 0"});
  options.add_choice("train.schedule", "cosine", {"cosine", "inverse_sqrt", "constant"}, "how the rate falls");
  options.add_choice("train.optimizer", "adamw", {"adamw", "adam", "sgd"}, "AdamW, Adam with L2 decay, or SGD");
  options.add_real("train.beta1", 0.9, {.max = 1, .below = true, .help = "Adam: mean of gradients"});
  options.add_real("train.beta2", d.beta2, {.max = 1, .below = true, .help = "Adam: mean of squared gradients"});
  options.add_real("train.momentum", 0.9, {.max = 1, .below = true, .help = "SGD"});
  options.add_flag("train.nesterov", false, "SGD: Nesterov's form of momentum");
  options.add_real("train.weight_decay", d.weight_decay, {.max = 1e3, .help = "of matrices and tables"});
  options.add_real("train.kernel_lr", 5,
                   {.max = 1e3,
                    .help = "factor on the rate of frequencies and tau; unless given, "
                            "5 for language models and 1 for classifiers"});
  options.add_real("train.clip", 1, {.max = 1e9, .help = "largest norm of the gradient; 0: no clipping"});
  options.add_real("train.label_smoothing", d.label_smoothing,
                   {.max = 1, .below = true, .help = "share of the uniform distribution in targets"});
  options.add_integer("train.eval_every", d.eval_every,
                      {.unit = "steps", .help = "between evaluations; 0: only at the end"});
  options.add_integer("train.save_every", 0, {.unit = "steps", .help = "between saves; 0: with every evaluation"});
  options.add_integer("train.patience", 0,
                      {.unit = "evaluations", .help = "stop after this many without a new best; 0: never"});
}

TrainingOptions::TrainingOptions(const Options& options) {
  steps = options.integer("train.steps");
  eval_every = options.integer("train.eval_every");
  save_every = options.integer("train.save_every") ? options.integer("train.save_every") : eval_every;
  log_every = options.integer("log_every");
  patience = options.integer("train.patience");
  clip = options.real("train.clip");
  seed = std::uint64_t(options.integer("seed"));
  schedule = {schedule_from(options.text("train.schedule")), options.real("train.lr"), options.real("train.min_lr"),
              options.integer("train.warmup"), steps};
  if (schedule.min_lr > schedule.lr) {
    if (options.given("train.min_lr"))
      throw UsageError(text("train.min_lr=", schedule.min_lr, " is above train.lr=", schedule.lr));
    schedule.min_lr = schedule.lr;  // a default must not stand in the way of a small rate
  }
  optimizer.kind = optimizer_from(options.text("train.optimizer"));
  optimizer.beta1 = float(options.real("train.beta1"));
  optimizer.beta2 = float(options.real("train.beta2"));
  optimizer.momentum = float(options.real("train.momentum"));
  optimizer.nesterov = options.flag("train.nesterov");
  optimizer.weight_decay = float(options.real("train.weight_decay"));
  optimizer.kernel_lr = float(options.real("train.kernel_lr"));
}

void check_enough_steps(const Options& options, Index done, const char* key) {
  const bool by_epochs =
      options.has("train.epochs") && options.given("train.epochs") && options.real("train.epochs") > 0;
  if (options.integer(key) >= done || !(options.given(key) || by_epochs)) return;
  const std::string asked = by_epochs ? text("train.epochs=", options.real("train.epochs"), ", that is ") : "";
  fail(asked, key, "=", options.integer(key), " is less than the ", done,
       " steps that this run has done; give as many or more (nothing was changed)");
}

Trainer::Trainer(const Options& options, RunFolder& folder, const Parameters& parameters, Task& task, Console& console)
    : options_(options),
      training_(options),
      folder_(folder),
      parameters_(parameters),
      task_(task),
      console_(console),
      optimizer_(parameters, training_.optimizer),
      step_(Tensor::zeros({1}, DType::i32, parameters.device())),
      captured_(parameters.device(), options.flag("cuda_graph") && task.repeats() && !profile::on) {}

// The summary is written last and taken away when a run goes on: with it, nothing is left to do.
bool Trainer::had_finished() const {
  return (state_.step >= training_.steps || out_of_patience()) && std::filesystem::exists(folder_.file("summary.json"));
}

void Trainer::start(const std::string& data_fingerprint, const std::string& vocabulary) {
  const bool resumed = folder_.has_checkpoint();
  if (resumed) {
    console_.say(text("resuming at step ", state_.step, " of ", training_.steps));
    if (state_.data != data_fingerprint)
      console_.say("warning: the training data is not what this run was trained on so far; going on with the new data");
  } else if (options_.flag("resume")) {
    const std::string& data = options_.text("data.train");
    console_.say("no complete checkpoint to resume: starting at step 0 on " +
                 (data.empty() ? "the embedded data, since data.train is not given" : data));
  }
  state_.seed = training_.seed;
  state_.data = data_fingerprint;
  state_.vocabulary = vocabulary;
  folder_.rewind(resumed ? state_.step : -1);
  folder_.begin(options_);
}

int Trainer::run(const std::string& data_fingerprint, const std::string& vocabulary) {
  if (folder_.has_checkpoint()) {
    state_ = folder_.load_last(parameters_, optimizer_, vocabulary);
    check_enough_steps(options_, state_.step);
    if (had_finished()) {
      console_.say(text("this run has finished: ", state_.step, " of ", training_.steps, " steps are done; for more, ",
                        state_.step >= training_.steps ? "give a larger train.steps" : "change train.patience"));
      return 0;
    }
  }
  start(data_fingerprint, vocabulary);
  watch_stop_signals();
  try {
    const bool pending = state_.evaluated_step < state_.step && is_due(state_.step, training_.eval_every);
    if (pending) evaluate(), report();
    since_log_.reset();
    while (state_.step < training_.steps && !out_of_patience()) {
      train_step();
      const bool last = state_.step == training_.steps;
      log_step(last || is_due(state_.step, training_.log_every));
      if (!last && is_due(state_.step, training_.eval_every)) evaluate();
      if (!last && is_due(state_.step, training_.save_every)) save();
      if (!last && is_due(state_.step, training_.eval_every)) report();
      if (stop_signal()) return stopped(stop_signal());
    }
    if (state_.step < training_.steps)
      console_.say(text("stopping early: no better validation loss in ", state_.worse, " evaluations"));
    finish();
    return 0;
  } catch (const Stopped&) {
    return stopped(stop_signal());
  }
}

bool Trainer::is_due(Index step, Index every) { return every > 0 && step % every == 0; }

std::vector<Tensor> Trainer::launch_step(const std::vector<Batch>& batches, Index targets) {
  Random random(training_.seed);
  const Pass pass{.training = true, .random = &random, .step = step_};
  parameters_.clear_grads();
  std::vector<Tensor> losses;
  for (const Batch& batch : batches) {
    Tape tape;
    const Var loss = task_.loss_sum(batch, pass);
    losses.push_back(loss.value());
    // Each micro-batch counts by its targets: the gradient is that of the mean over all of them.
    tape.backward(scale(loss, float(1.0 / double(targets))));
  }
  optimizer_.launch_step(training_.clip);
  return losses;
}

void Trainer::train_step() {
  const Stopwatch watch;
  rate_ = training_.schedule.at(state_.step + 1);
  const Index targets = task_.begin_step(state_.step);
  std::vector<Batch> batches;
  for (Index micro = 0; micro < task_.micro_batches() && targets > 0; ++micro) batches.push_back(task_.batch(micro));
  // What differs from step to step goes to the device first. The step's number is part of the random numbers: dropout
  // in a resumed run draws the masks of the unbroken one.
  step_.copy_from(Tensor::from_ints({1}, std::array{std::int32_t(state_.step + 1)}));
  optimizer_.prepare(rate_);
  std::vector<Tensor> losses;
  if (targets > 0) losses = captured_.run(batches, [&](const auto& given) { return launch_step(given, targets); });
  // Up to here a GPU is only given work, that of the optimiser included, which changes nothing where a gradient is not
  // finite. Now the host waits for the loss and the norm, to learn how the step went, and for nothing else.
  double sum = 0;
  for (const Tensor& loss : losses) sum += double(loss.item());
  loss_ = targets > 0 ? sum / double(targets) : 0;
  if (!std::isfinite(loss_)) broke_down(state_.step + 1, first_bad_tensor());
  try {
    norm_ = targets > 0 ? optimizer_.finish() : 0;
  } catch (const NonFiniteGradient& bad) {
    broke_down(state_.step + 1, "gradient of " + bad.parameter);
  }
  ++state_.step;
  state_.tokens += task_.step_tokens();
  state_.train_loss = 0.98 * state_.train_loss + 0.02 * loss_;
  state_.seconds += watch.seconds();
  tokens_since_log_ += task_.step_tokens();
}

std::string Trainer::first_bad_tensor() const {
  for (const Parameter& parameter : parameters_)
    if (!all_finite(parameter.var.value())) return parameter.name;
  for (const Parameter& parameter : parameters_)
    if (parameter.var.has_grad() && !all_finite(parameter.var.grad())) return "gradient of " + parameter.name;
  return "the loss itself";
}

void Trainer::broke_down(Index step, const std::string& tensor) const {
  fail("training broke down at step ", step, ": loss ", fixed(loss_, 4), ", learning rate ", rate_,
       ", first bad tensor: ", tensor,
       "; the checkpoint of the last save is untouched. Lower train.lr or train.clip, or raise train.warmup");
}

void Trainer::check_parameters() const {
  for (const Parameter& parameter : parameters_)
    if (!all_finite(parameter.var.value())) broke_down(state_.step, parameter.name);
}

void Trainer::log_step(bool always) {
  const double seconds = since_log_.seconds();
  if (always || seconds > 1) rate_of_tokens_ = double(tokens_since_log_) / std::max(seconds, 1e-9);
  const Index left = training_.steps - state_.step;
  const double per_step = state_.seconds / double(std::max<Index>(1, state_.step));
  console_.progress(text("step ", state_.step, "/", training_.steps, "  loss ", fixed(loss_, 4), "  ",
                         grouped(Index(rate_of_tokens_)), " tokens/s  ", duration(per_step * double(left)), " left"),
                    always);
  if (!always) return;
  folder_.log({{"step", state_.step},
               {"tokens", state_.tokens},
               {"loss", json_number(loss_)},
               {"lr", json_number(rate_)},
               {"grad_norm", json_number(norm_)},
               {"tokens_per_second", json_number(rate_of_tokens_)}});
  since_log_.reset();
  tokens_since_log_ = 0;
}

void Trainer::evaluate() {
  if (!task_.has_validation()) return;
  last_ = task_.evaluate({});
  state_.evaluated_step = state_.step;
  Json line = {{"step", state_.step}, {"valid_loss", json_number(last_.loss)}};
  line.update(last_.log);
  folder_.log(line);
  const bool best = std::isfinite(last_.loss) && (state_.best_step < 0 || last_.loss < state_.best_loss);
  console_.say(text("step ", state_.step, "  validation loss ", fixed(last_.loss, 4), "  ", last_.words,
                    best && state_.step > 0 ? "  (best so far)" : ""));
  state_.worse = best ? 0 : state_.worse + 1;
  if (best) {
    check_parameters();
    state_.best_loss = last_.loss;
    state_.best_step = state_.step;
    folder_.save_best(parameters_, state_);
  }
  since_log_.reset();  // evaluation is no training time
  tokens_since_log_ = 0;
}

// Making a report takes the longer the longer a run is: at most a twentieth of the time goes into it.
void Trainer::report() {
  if (since_report_.seconds() < 20 * report_seconds_) return;
  const Stopwatch watch;
  write_report(folder_, console_, "running");
  report_seconds_ = watch.seconds();
  since_report_.reset();
}

void Trainer::save() {
  check_parameters();
  folder_.save_last(parameters_, optimizer_, state_);
}

int Trainer::stopped(int signal) {
  save();
  write_report(folder_, console_, "stopped");
  console_.say(text("stopped at step ", state_.step, ", saved; go on with --out=", shell_word(folder_.path().string()),
                    " --resume"));
  return 128 + signal;
}

void Trainer::finish() {
  if (state_.evaluated_step != state_.step)
    evaluate();
  else if (!last_.targets && task_.has_validation())
    last_ = task_.evaluate({});  // resumed at the very end: counted and logged already
  save();
  summary_ = {{"program", options_.program()},
              {"attention", options_.text("model.attention")},
              {"device", name_of(parameters_.device())},
              {"threads", threads()},
              {"params", parameters_.count()},
              {"steps", state_.step},
              {"tokens", state_.tokens},
              {"seconds", state_.seconds},
              {"tokens_per_second", json_number(double(state_.tokens) / std::max(state_.seconds, 1e-9))},
              {"peak_rss_bytes", peak_rss_bytes()},
              {"train_loss", json_number(state_.mean_loss())}};  // "nan" where no step was made
  if (task_.has_validation()) {
    summary_["valid_loss"] = json_number(last_.loss);
    summary_["best_step"] = state_.best_step;
    summary_["best_valid_loss"] = json_number(state_.best_step < 0 ? std::nan("") : state_.best_loss);
    summary_.update(last_.summary);
  }
}

}  // namespace flexformer
