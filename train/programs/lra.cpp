// lra: the Long Range Arena from end to end. For every task, kind of attention and seed it starts train_classifier with
// the task's configuration, then puts the test accuracies into one table beside the paper's. Each run has a folder, so
// an interrupted sweep goes on where it was: finished runs are skipped, the one that was cut is resumed.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "nn/attention_kinds.h"
#include "train/models/option_lists.h"
#include "train/reports/lra_table.h"
#include "train/util/files.h"
#include "train/util/log.h"
#include "train/util/program.h"

extern char** environ;

namespace flexformer {
namespace {

namespace fs = std::filesystem;

struct Sweep {
  std::vector<std::string> tasks, kinds;
  std::vector<std::int64_t> seeds;
  std::string trainer, configs, out, scale;
  std::vector<std::string> more;  // arguments for every run

  std::string config(const std::string& task) const { return configs + "/lra-" + task + ".json"; }
  fs::path folder(const std::string& task, const std::string& kind, std::int64_t seed) const {
    return fs::path(out) / text(task, "-", kind, "-", seed);
  }
};

// The files that a task's configuration names and that are not there.
std::vector<std::string> missing_files(const Sweep& sweep, const std::string& task) {
  std::vector<std::string> missing;
  const Json data = read_json(sweep.config(task)).at("data");
  for (const char* key : {"train", "valid", "test"})
    if (std::error_code error; data.contains(key) && !fs::exists(data.at(key).get<std::string>(), error))
      missing.push_back(data.at(key));
  return missing;
}

// Tasks whose data are not there are left out with a word, or, where they were asked for by name, are an error.
void drop_tasks_without_data(Sweep& sweep, bool by_name, Console& console) {
  for (const LraTask& task : lra_tasks()) {
    const auto place = std::ranges::find(sweep.tasks, task.name);
    if (place == sweep.tasks.end()) continue;
    const std::vector<std::string> missing = missing_files(sweep, task.name);
    if (missing.empty()) continue;
    const std::string what = text(task.name, ": ", missing.front(), " is not there (", task.how, ")");
    if (by_name) fail(what);
    console.say("left out, " + what);
    sweep.tasks.erase(place);
  }
  if (sweep.tasks.empty()) fail("no task has its data; `make data-listops` makes those of one");
}

// A folder keeps to the settings it was begun with: runs of different ones must not meet in a table.
void check_settings(const Sweep& sweep) {
  const fs::path file = fs::path(sweep.out) / "settings.json";
  const Json settings = {{"scale", sweep.scale}, {"configs", sweep.configs}, {"args", sweep.more}};
  std::error_code error;
  if (!fs::exists(file, error)) {
    fs::create_directories(sweep.out);
    write_json_atomic(file, settings);
  } else if (const Json stored = read_json(file); stored != settings) {
    fail(sweep.out, " was begun with the settings ", dump_json(stored), ", these are ", dump_json(settings),
         "; give another out=DIR");
  }
}

std::vector<std::string> command(const Sweep& sweep, const std::string& task, const std::string& kind,
                                 std::int64_t seed) {
  std::vector<std::string> words = {sweep.trainer, "--config=" + sweep.config(task)};
  if (sweep.scale == "small") words.push_back("--config=" + sweep.configs + "/lra-small.json");
  const fs::path folder = sweep.folder(task, kind, seed);
  std::error_code error;
  for (const std::string& word : {"--model.attention=" + kind, text("--seed=", seed), "--out=" + folder.string(),
                                  std::string("--resume=") + (fs::exists(folder, error) ? "true" : "false")})
    words.push_back(word);
  words.insert(words.end(), sweep.more.begin(), sweep.more.end());
  return words;
}

// Runs a program to its end and returns its status. In a process group of its own it does not hear the terminal's
// Ctrl-C, only the signal that is passed on here, once: two of them would keep a trainer from saving.
int run(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) fail("cannot start ", words[0], ": ", std::strerror(error), "; build it with 'make'");
  int status = 0;
  for (bool passed_on = false; waitpid(child, &status, WNOHANG) == 0; usleep(20000))
    if (stop_signal() && !std::exchange(passed_on, true)) kill(child, stop_signal());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The accuracy in a finished run's summary, in percent.
std::optional<double> accuracy_of(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / "summary.json", error)) return {};
  const Json summary = read_json(folder / "summary.json");
  if (!summary.contains("test_accuracy")) return {};
  return 100 * number_from_json(summary.at("test_accuracy"), (folder / "summary.json").string());
}

void write_results(const Sweep& sweep, const std::vector<LraRun>& runs, Console& console) {
  if (runs.empty()) return;
  const Json results = lra_results(runs);
  const std::string table = lra_table(results);
  write_json_atomic(fs::path(sweep.out) / "results.json", {{"scale", sweep.scale}, {"results", results}});
  write_file_atomic(fs::path(sweep.out) / "results.txt", table);
  console.say("\n" + table + "in " + sweep.out + "/results.txt and results.json");
}

int lra(Options& options, const fs::path& programs) {
  std::vector<std::string> tasks;
  for (const LraTask& task : lra_tasks()) tasks.push_back(task.name);
  Sweep sweep{.tasks = chosen_words(options, "tasks", tasks),
              .kinds = chosen_words(options, "kinds", attention_kind_names()),
              .seeds = whole_numbers(options, "seeds"),
              .trainer = (programs / "train_classifier").string(),
              .configs = options.text("configs"),
              .out = options.text("out"),
              .scale = options.text("scale"),
              .more = split_blanks(options.text("args"))};
  if (sweep.out.empty()) sweep.out = sweep.scale == "small" ? "runs/lra-small" : "runs/lra";
  Console console;
  drop_tasks_without_data(sweep, options.text("tasks") != "all", console);
  check_settings(sweep);
  watch_stop_signals();

  std::vector<LraRun> finished;
  std::vector<std::string> broken;
  const std::size_t all = sweep.tasks.size() * sweep.kinds.size() * sweep.seeds.size();
  std::size_t number = 0;
  // Seeds change slowest: after the first round there is a whole table.
  for (const std::int64_t seed : sweep.seeds)
    for (const std::string& task : sweep.tasks)
      for (const std::string& kind : sweep.kinds) {
        const fs::path folder = sweep.folder(task, kind, seed);
        std::optional<double> accuracy = accuracy_of(folder);
        console.say(text("run ", ++number, " of ", all, ": ", folder.string(), accuracy ? " is there already" : ""));
        const int status = accuracy ? 0 : run(command(sweep, task, kind, seed));
        if (!accuracy) accuracy = accuracy_of(folder);
        if (accuracy) finished.push_back({task, kind, seed, *accuracy});
        if (stop_signal()) {
          write_results(sweep, finished, console);
          console.say("stopped; the same command goes on");
          return 128 + stop_signal();
        }
        if (accuracy) continue;
        broken.push_back(folder.string());
        console.say(text(folder.string(), " ended with status ", status, " and without a test accuracy"));
      }
  write_results(sweep, finished, console);
  if (broken.empty()) return 0;
  fail(broken.size(), " of ", all, " runs did not finish, the first ", broken.front(),
       "; the same command tries again");
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("lra", "Trains on the Long Range Arena's tasks and compares with the paper.");
  options.add_text("tasks", "all", "some of listops,text,retrieval,image,pathfinder; all: those whose data are there");
  options.add_text("kinds", "all", "kinds of attention, separated by commas");
  options.add_text("seeds", "1,2,3", "one run each");
  options.add_choice("scale", "full", {"full", "small"}, "small: what configs/lra-small.json changes, for a laptop");
  options.add_path("out", "", "folder of the run folders and results.*; empty: runs/lra, or runs/lra-small");
  options.add_path("configs", "train/configs", "folder of lra-TASK.json");
  options.add_text("args", "", "more options for every run, separated by spaces");
  const std::filesystem::path programs = std::filesystem::path(argv[0]).parent_path();
  return flexformer::run_program(options, argc, argv,
                                 [&](flexformer::Options& o) { return flexformer::lra(o, programs); });
}
