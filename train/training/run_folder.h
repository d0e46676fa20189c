// A run folder: everything that a model needs to be used, and everything that its training needs to go on.
//
//   config.json  tokenizer.json  labels.json  metrics.jsonl  summary.json
//   checkpoint/last.safetensors, last.json   parameters and optimiser state; where training stands
//   checkpoint/best.safetensors, best.json   parameters with the lowest validation loss so far
//
// A safetensors file carries its JSON state in its own header, so that the two can never disagree: one rename replaces
// both. The .json beside it is a copy to read.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "nn/optim.h"
#include "nn/safetensors.h"
#include "train/tokenizers/tokenizer.h"
#include "train/training/run_claim.h"
#include "train/util/config.h"

namespace flexformer {

// Where training stands after `step` steps. Batches, dropout masks and learning rates are functions of the seed and the
// step, so there is little to remember.
struct TrainingState {
  Index step = 0, tokens = 0;
  double train_loss = 0;  // exponential mean over about 50 steps, divided by (1 - 0.98^step) when read (0 steps: NaN)
  double best_loss = 0;   // lowest validation loss; meaningless while best_step is -1
  Index best_step = -1;
  Index worse = 0;            // evaluations since the best one
  Index evaluated_step = -1;  // the last step that was evaluated
  std::uint64_t seed = 0;
  std::string data;        // fingerprint of the training data
  std::string vocabulary;  // fingerprint of tokenizer and labels
  double seconds = 0;      // time spent; kept in last.json only, since two equal runs take different times

  double mean_loss() const;
  Json to_json() const;
  static TrainingState from_json(const Json& json, const std::string& source);
};

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}

  // The folder a training program writes to, which it has for itself while a copy of this object lives (RunClaim). An
  // empty `out` makes the first free runs/PREFIX-N. Throws Error for a folder that holds a complete checkpoint, unless
  // `resume`, and for one with an imported model. With `resume` a run must have begun there, as its file `record`
  // shows, or the folder be empty. Interrupted leftovers of earlier saves are removed. Unless begin() or keep()
  // follows, all that was made is removed again.
  static RunFolder for_training(const std::string& out, const std::string& prefix, bool resume,
                                const char* record = "config.json");
  // Claims a folder that is there, to write a report into it.
  void claim();
  void keep() const;  // it stays from here on, whatever happens
  // The folder a finished or interrupted run of `program` left (empty: of any); an empty `run` takes the newest under
  // runs/ made by `program`.
  static RunFolder for_use(const std::string& run, const std::string& program);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const char* name) const { return path_ / name; }
  bool has_checkpoint() const;
  bool has_best() const;
  bool has_config() const { return std::filesystem::exists(file("config.json")); }
  // A model that import_model wrote and that has not been trained here: nothing says which data it knows.
  bool is_imported() const;
  Index steps_done() const;  // of the checkpoint, by the copy beside it; 0 without one

  void write_config(const Options& options) const;  // config.json: "program" and every key's value
  void begin(const Options& options) const { write_config(options), keep(); }  // before a run's first other file
  void load_config(Options& options) const;                                    // the inverse
  // Takes the place of the old one. With --profile, `profile` (by op) and `profile_kernels` are added.
  void write_summary(Json summary) const;

  // Settles the options of a resumed run: keys that were not given take their stored value; a given one that differs
  // throws Error with both values if it would change the model, the order of the data or the random numbers.
  void resume_options(Options& options) const;

  void save_last(const Parameters& parameters, const Optimizer& optimizer, const TrainingState& state) const;
  void save_best(const Parameters& parameters, const TrainingState& state) const;
  // Loads last.safetensors. Everything is verified before anything is changed; a damaged file, and one that was trained
  // with another tokenizer or other labels than `vocabulary`, throws Error.
  TrainingState load_last(const Parameters& parameters, const Optimizer& optimizer,
                          const std::string& vocabulary) const;
  // Throws Error if load_best() cannot have as many numbers as a model of these sizes has at least: asked before the
  // model is made, since the sizes in a damaged config.json may be any.
  void check_model_size(double parameters) const;
  // Loads best.safetensors, or the last parameters where no validation ever chose a best. Returns the step.
  Index load_best(const Parameters& parameters, const std::string& vocabulary) const;
  // The same for all but the attention kernels' parameters, which stay as they are: how a student gets its teacher's
  // weights. And the kernels alone, which fit any vocabulary.
  Index load_best_without_kernels(const Parameters& parameters, const std::string& vocabulary) const;
  Index load_best_kernels(const Parameters& parameters) const;

  void log(const Json& line) const;  // appends a line to metrics.jsonl
  // Makes the folder that of a run which stands at `last_step`: drops the lines of later steps and half a line at the
  // end of metrics.jsonl, summary.json and report.html. -1: a run that is to begin, which drops the best model too.
  void rewind(Index last_step) const;

 private:
  void check_claim() const;  // before each write of a run that goes on
  Index load_best_part(const NamedTensors& targets, const std::function<bool(const std::string& name)>& wanted,
                       const std::string* vocabulary) const;

  std::filesystem::path path_;
  std::shared_ptr<RunClaim> claim_;
};

std::unique_ptr<Tokenizer> load_tokenizer(const RunFolder& folder);

// Throws Error if data.train is not given and the model in `folder` was imported: the data that a program has embedded
// are not those which such a model knows. `key` is what the message asks for.
void check_data_given(const Options& options, const RunFolder& folder, const char* key = "data.train");

}  // namespace flexformer
