// The Long Range Arena: its tasks, the accuracies of the Flexformer paper, and the table that puts one's own beside
// them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "train/util/json_file.h"

namespace flexformer {

struct LraTask {
  std::string name;  // as in lra-NAME.json
  std::string how;   // to get its data
};
const std::vector<LraTask>& lra_tasks();

// Test accuracy in percent, table 1 of the paper ("Transformer" is softmax); NaN where it has none.
double paper_accuracy(const std::string& kind, const std::string& task);

struct MeanDeviation {
  double mean = 0, deviation = 0;  // the sample's, with n - 1; NaN for a single value
};
MeanDeviation mean_deviation(const std::vector<double>& values);

// One finished run; accuracy in percent.
struct LraRun {
  std::string task, kind;
  std::int64_t seed;
  double accuracy;
};

// {"task": .., "kind": .., "seeds": {"1": 37.1, ..}, "mean": .., "deviation": .., "paper": ..} for each task and kind
// that has a run, in the order of lra_tasks() and of the runs; what there is not is null.
Json lra_results(const std::vector<LraRun>& runs);
// The same as text: a line for each kind, a column for each task, and the mean over the tasks where a kind has them
// all.
std::string lra_table(const Json& results);

}  // namespace flexformer
