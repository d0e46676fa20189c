#include "train/training/run_folder.h"

#include <algorithm>
#include <cmath>

#include "tensor/profile.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

constexpr const char *kLast = "checkpoint/last", *kBest = "checkpoint/best";
constexpr Index kMost = Index(1) << 60;  // of steps and tokens: more could not be added to

// Keys that may change on resume: they touch neither the model nor the data's order nor the random numbers.
bool may_change(const std::string& key) {
  static const char* const free[] = {"out",
                                     "resume",
                                     "init",
                                     "threads",
                                     "device",
                                     "cuda_graph",
                                     "log_every",
                                     "train.steps",
                                     "train.lr",
                                     "train.min_lr",
                                     "train.warmup",
                                     "data.train",
                                     "data.valid",
                                     "data.test",
                                     "data.cache",
                                     "train.eval_every",
                                     "train.save_every",
                                     "train.patience",
                                     "train.clip",
                                     "train.schedule",
                                     "train.kernel_lr",
                                     "train.epochs",
                                     "profile"};
  return std::any_of(std::begin(free), std::end(free), [&](const char* name) { return key == name; });
}

// The program a config.json names; "" for a damaged one, which must not keep all other runs from being used.
std::string program_of(const fs::path& config) {
  try {
    return json_get<std::string>(read_json(config), "program", config.string());
  } catch (const Error&) {
    return "";
  }
}

// Whether a line of metrics.jsonl is whole, and of a step up to this one.
bool is_up_to(const std::string& line, Index last_step) {
  try {
    return json_get<std::int64_t>(parse_json(line, "metrics.jsonl"), "step", "metrics.jsonl") <= last_step;
  } catch (const Error&) {
    return false;
  }
}

fs::path with_ending(const fs::path& folder, const char* name, const char* ending) {
  return folder / (std::string(name) + ending);
}

void save(const fs::path& folder, const char* name, NamedTensors tensors, const TrainingState& state) {
  Json header = state.to_json(), readable = header;
  readable["seconds"] = state.seconds;
  write_file_atomic(with_ending(folder, name, ".safetensors"),
                    write_safetensors({std::move(tensors), {{"state", dump_json(header)}}}));
  write_json_atomic(with_ending(folder, name, ".json"), readable);
}

struct Loaded {
  SafetensorsFile file;
  TrainingState state;
};

// Without a vocabulary, any will do.
Loaded load(const fs::path& folder, const char* name, const std::string* vocabulary) {
  const fs::path path = with_ending(folder, name, ".safetensors"), readable = with_ending(folder, name, ".json");
  const std::string source = path.string();
  Loaded loaded;
  loaded.file = read_safetensors(read_file(path), source);
  const auto state = loaded.file.metadata.find("state");
  if (state == loaded.file.metadata.end()) fail(source, ": this is no checkpoint: its header lacks \"state\"");
  loaded.state = TrainingState::from_json(parse_json(state->second, source), source);
  if (vocabulary && loaded.state.vocabulary != *vocabulary)
    fail(source, " was trained with tokenizer and labels of fingerprint ", loaded.state.vocabulary,
         ", but those in the run folder have ", *vocabulary, "; put the run's own tokenizer.json and labels.json back");
  if (fs::exists(readable)) {
    const Json copy = read_json(readable);
    const auto step = json_get<std::int64_t>(copy, "step", readable.string());
    if (step > loaded.state.step)
      fail(source, " is at step ", loaded.state.step, ", but ", readable.string(), " at step ", step,
           ": one of them belongs to another run");
    // A run killed between the two files leaves the copy one save behind.
    if (step == loaded.state.step && copy.contains("seconds"))
      loaded.state.seconds = number_from_json(copy["seconds"], readable.string());
  }
  return loaded;
}

}  // namespace

double TrainingState::mean_loss() const { return train_loss / (1 - std::pow(0.98, double(step))); }

Json TrainingState::to_json() const {
  return {{"step", step},
          {"tokens", tokens},
          {"train_loss", json_number(train_loss)},
          {"best_loss", json_number(best_loss)},
          {"best_step", best_step},
          {"worse", worse},
          {"evaluated_step", evaluated_step},
          {"random", {{"seed", seed}, {"stream", step}}},
          {"data", {{"fingerprint", data}, {"next_step", step}}},
          {"vocabulary", vocabulary}};
}

TrainingState TrainingState::from_json(const Json& json, const std::string& source) {
  const auto whole = [&](const char* key) { return json_get<std::int64_t>(json, key, source); };
  TrainingState state;
  state.step = whole("step");
  state.tokens = whole("tokens");
  state.train_loss = number_from_json(json_member(json, "train_loss", source), source);
  state.best_loss = number_from_json(json_member(json, "best_loss", source), source);
  state.best_step = whole("best_step");
  state.worse = whole("worse");
  state.evaluated_step = whole("evaluated_step");
  state.seed = std::uint64_t(json_get<std::int64_t>(json_member(json, "random", source), "seed", source));
  state.data = json_get<std::string>(json_member(json, "data", source), "fingerprint", source);
  state.vocabulary = json_get<std::string>(json, "vocabulary", source);
  if (state.step < 0 || state.tokens < 0) fail(source, ": a negative step or token count");
  if (std::max({state.step, state.tokens, state.worse}) > kMost || state.worse < 0 ||
      std::max(state.best_step, state.evaluated_step) > state.step ||
      std::min(state.best_step, state.evaluated_step) < -1)
    fail(source, ": step ", state.step, ", tokens ", state.tokens, ", best_step ", state.best_step, ", evaluated_step ",
         state.evaluated_step, " and worse ", state.worse, " cannot be those of one run");
  return state;
}

namespace {

// Without the separators and points at the end, which would be a name of their own.
fs::path tidy(fs::path path) {
  while (path.has_parent_path() && path != path.root_path() && (!path.has_filename() || path.filename() == "."))
    path = path.parent_path();
  return path;
}

std::shared_ptr<RunClaim> claim_next(const std::string& prefix, fs::path& path) {
  for (int n = 1;; ++n) {
    path = fs::path("runs") / text(prefix, "-", n);
    if (std::shared_ptr<RunClaim> claim = RunClaim::make(path)) return claim;
  }
}

[[noreturn]] void fail_to_resume(const fs::path& path, const std::string& why) {
  std::vector<std::string> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path.parent_path().empty() ? "." : path.parent_path(), error))
    if (fs::exists(entry.path() / "config.json", error)) runs.push_back(entry.path().filename().string());
  const std::string near = nearest(path.filename().string(), runs);
  fail("resume=true: ", why, near.empty() || near == path.filename() ? "" : "; the run nearest by name is " + near,
       "; to begin a run there, leave out resume");
}

}  // namespace

RunFolder RunFolder::for_training(const std::string& out, const std::string& prefix, bool resume, const char* record) {
  if (out.empty() && resume) fail("resume=true needs out=DIR: which run shall go on?");
  fs::path path = tidy(out);
  if (resume && !fs::exists(path)) fail_to_resume(path, "there is no folder " + path.string());
  std::shared_ptr<RunClaim> claim = out.empty() ? claim_next(prefix, path) : RunClaim::take(path);
  RunFolder folder(path);
  folder.claim_ = claim;
  if (folder.has_checkpoint() && !resume)
    fail(path.string(), " already holds a checkpoint; go on with it by resume=true, or choose another out=DIR");
  if (folder.is_imported())
    fail(path.string(),
         " already holds a model that was imported; to train it further, give it as init=DIR and choose ",
         "another out=DIR");
  if (resume && !fs::exists(folder.file(record)) && !claim->was_empty())
    fail_to_resume(path, text("no run has begun in ", path.string(), ", it has no ", record));
  std::error_code error;
  fs::create_directories(path / "checkpoint", error);
  if (error) fail("cannot make the run folder ", path.string(), ": ", error.message());
  remove_stale_temporaries(path);
  remove_stale_temporaries(path / "checkpoint");
  return folder;
}

void RunFolder::claim() { claim_ = RunClaim::take(tidy(path_)); }

void RunFolder::keep() const {
  if (claim_) claim_->keep();
}

void RunFolder::check_claim() const {
  if (claim_) claim_->check();
}

RunFolder RunFolder::for_use(const std::string& run, const std::string& program) {
  if (!run.empty()) {
    if (!fs::is_directory(run)) fail("run=", run, ": there is no such folder");
    RunFolder folder(run);
    if (!fs::exists(folder.file("config.json")) || !(folder.has_checkpoint() || folder.has_best()))
      fail("run=", run, ": no trained model here (config.json and checkpoint/ are missing or incomplete)");
    const fs::path config = folder.file("config.json");
    const auto maker = json_get<std::string>(read_json(config), "program", config.string());
    if (!program.empty() && maker != program)
      fail("run=", run, ": this is a run of ", quote(maker), ", not of ", program);
    return folder;
  }
  fs::path newest;
  fs::file_time_type when{};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("runs", error)) {
    const RunFolder folder(entry.path());
    if (!folder.has_checkpoint() || !fs::exists(folder.file("config.json"))) continue;
    if (program_of(folder.file("config.json")) != program) continue;
    const auto written = fs::last_write_time(with_ending(entry.path(), kLast, ".safetensors"), error);
    if (newest.empty() || written > when) newest = entry.path(), when = written;
  }
  if (newest.empty())
    fail("no run of ", program, " under runs/; train one first (make ",
         program == "train_lm" ? "train-lm" : "train-text", "), or give run=DIR");
  return RunFolder(newest);
}

bool RunFolder::has_checkpoint() const { return fs::exists(with_ending(path_, kLast, ".safetensors")); }
bool RunFolder::has_best() const { return fs::exists(with_ending(path_, kBest, ".safetensors")); }
bool RunFolder::is_imported() const { return has_best() && !has_checkpoint() && !fs::exists(file("metrics.jsonl")); }

Index RunFolder::steps_done() const {
  const fs::path copy = with_ending(path_, kLast, ".json");
  return fs::exists(copy) ? json_get<std::int64_t>(read_json(copy), "step", copy.string()) : 0;
}

void RunFolder::write_config(const Options& options) const {
  check_claim();
  Json config = {{"program", options.program()}};
  config.update(options.effective());
  // How it was started is no setting of a run, which the file may make once more.
  config["resume"] = false;
  config.erase("profile");
  write_json_atomic(file("config.json"), config);
}

void RunFolder::load_config(Options& options) const {
  const std::string source = file("config.json").string();
  options.load_effective(read_json(source), source);
}

void RunFolder::resume_options(Options& options) const {
  Options stored = options;
  load_config(stored);
  std::string conflicts;
  for (const Key& key : options.keys()) {
    const Value &before = stored.value(key.name), now = key.value;
    if (!key.given)
      options.set(key.name, before);
    else if (now != before && !may_change(key.name))
      conflicts +=
          text(conflicts.empty() ? "" : "; ", key.name, ": stored ", to_text(before), ", given ", to_text(now));
  }
  if (!conflicts.empty())
    fail("the run in ", path_.string(), " cannot go on with other settings (", conflicts,
         "); leave these keys out, or start a new run with another out=DIR");
}

void RunFolder::save_last(const Parameters& parameters, const Optimizer& optimizer, const TrainingState& state) const {
  check_claim();
  NamedTensors tensors = parameters.tensors();
  for (NamedTensor& tensor : optimizer.state()) tensors.push_back(std::move(tensor));
  save(path_, kLast, std::move(tensors), state);
}

void RunFolder::save_best(const Parameters& parameters, const TrainingState& state) const {
  check_claim();
  save(path_, kBest, parameters.tensors(), state);
}

TrainingState RunFolder::load_last(const Parameters& parameters, const Optimizer& optimizer,
                                   const std::string& vocabulary) const {
  const Loaded loaded = load(path_, kLast, &vocabulary);
  NamedTensors targets = parameters.tensors();
  for (NamedTensor& tensor : optimizer.state()) targets.push_back(std::move(tensor));
  load_tensors(targets, loaded.file.tensors, with_ending(path_, kLast, ".safetensors").string());
  return loaded.state;
}

void RunFolder::check_model_size(double parameters) const {
  const fs::path path = with_ending(path_, has_best() ? kBest : kLast, ".safetensors");
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error || 4 * parameters <= double(bytes)) return;
  read_safetensors(read_file(path), path.string());  // a damaged file says so itself
  fail(file("config.json").string(), " describes a model of at least ", parameters, " numbers, but ", path.string(),
       " has only ", bytes, " bytes; one of them belongs to another run");
}

Index RunFolder::load_best_part(const NamedTensors& targets, const std::function<bool(const std::string& name)>& wanted,
                                const std::string* vocabulary) const {
  const char* which = has_best() ? kBest : kLast;
  Loaded loaded = load(path_, which, vocabulary);
  std::erase_if(loaded.file.tensors,
                [&](const NamedTensor& t) { return t.name.starts_with("optimizer.") || !wanted(t.name); });
  load_tensors(targets, loaded.file.tensors, with_ending(path_, which, ".safetensors").string());
  return loaded.state.step;
}

Index RunFolder::load_best(const Parameters& parameters, const std::string& vocabulary) const {
  return load_best_part(
      parameters.tensors(), [](const std::string&) { return true; }, &vocabulary);
}

namespace {
NamedTensors kernel_tensors(const Parameters& parameters, bool kernel) {
  NamedTensors out;
  for (const Parameter& p : parameters)
    if (p.kernel == kernel) out.push_back({p.name, p.var.value()});
  return out;
}
bool is_kernel(const Parameters& parameters, const std::string& name) {
  return parameters.has(name) && parameters[name].kernel;
}
}  // namespace

Index RunFolder::load_best_without_kernels(const Parameters& parameters, const std::string& vocabulary) const {
  return load_best_part(
      kernel_tensors(parameters, false), [&](const std::string& name) { return !is_kernel(parameters, name); },
      &vocabulary);
}

Index RunFolder::load_best_kernels(const Parameters& parameters) const {
  return load_best_part(
      kernel_tensors(parameters, true), [&](const std::string& name) { return is_kernel(parameters, name); }, nullptr);
}

void RunFolder::log(const Json& line) const {
  check_claim();
  append_to_file(file("metrics.jsonl"), dump_json(line) + "\n");
}

void RunFolder::write_summary(Json summary) const {
  check_claim();
  const auto add = [&](const char* key, const char* what, const std::vector<profile::Row>& rows) {
    Json& list = summary[key] = Json::array();
    for (const profile::Row& row : rows)
      list.push_back({{what, row.name},
                      {"calls", row.calls},
                      {"seconds", row.seconds},
                      {"bytes", row.cost.bytes},
                      {"flops", row.cost.operations}});
  };
  if (profile::on) {
    add("profile", "op", profile::ops());
    add("profile_kernels", "kernel", profile::kernels());
  }
  write_json_atomic(file("summary.json"), summary);
}

void RunFolder::rewind(Index last_step) const {
  for (const char* name : {"summary.json", "report.html"}) fs::remove(file(name));
  if (last_step < 0)
    for (const char* ending : {".safetensors", ".json"}) fs::remove(with_ending(path_, kBest, ending));
  if (!fs::exists(file("metrics.jsonl"))) return;
  const std::string before = read_file(file("metrics.jsonl"));
  std::string after;
  for (std::size_t at = 0, end; (end = before.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = before.substr(at, end - at + 1);
    if (is_up_to(line, last_step)) after += line;
  }
  if (after != before) write_file_atomic(file("metrics.jsonl"), after);
}

std::unique_ptr<Tokenizer> load_tokenizer(const RunFolder& folder) {
  const fs::path path = folder.file("tokenizer.json");
  return Tokenizer::from_json(read_json(path), path.string());
}

void check_data_given(const Options& options, const RunFolder& folder, const char* key) {
  if (options.text("data.train").empty() && folder.is_imported())
    fail(folder.path().string(), " holds an imported model, which brings no data with it; give ", key, "=FILE");
}

}  // namespace flexformer
