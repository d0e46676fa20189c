// compare: several run folders side by side in one HTML page; of a single run, its report.
#include <iostream>

#include "train/reports/report.h"
#include "train/util/files.h"
#include "train/util/program.h"

namespace flexformer {
namespace {

int compare(Options& options) {
  const std::vector<std::string>& folders = options.positional();
  if (folders.empty()) throw UsageError("no run is given; name the run folders: compare runs/lm-1 runs/lm-2");
  std::vector<RunRecord> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  // Beside the runs, where a folder of them is out of the way of everything else.
  std::filesystem::path out = options.text("out");
  if (out.empty()) out = (std::filesystem::path(folders.front()) / "").parent_path().parent_path() / "compare.html";
  write_file_atomic(out, runs.size() == 1 ? report_html(runs.front()) : comparison_html(runs));
  std::cout << text(out.string(), ": ",
                    runs.size() == 1 ? "the report of " + folders.front() : text(runs.size(), " runs side by side"))
            << "\n";
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("compare", "Puts the curves, figures and settings of several runs into one HTML page.");
  options.allow_positional("RUN");
  options.add_path("out", "", "file to write; empty: compare.html beside the first run");
  return flexformer::run_program(options, argc, argv, flexformer::compare);
}
