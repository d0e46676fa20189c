// The report of a run: curves, samples or confusion matrix, figures, settings, commands; and the same for several runs
// side by side. One HTML file each, which needs nothing else.
#pragma once
#include "train/reports/run_record.h"
#include "train/training/run_folder.h"
#include "train/util/log.h"

namespace flexformer {

// `state` is what is said of a run that has no summary.json; `more`: sections to add, HTML.
std::string report_html(const RunRecord& run, const std::string& state = "not finished", const std::string& more = "");

// At least one run; they may be of different programs and have different keys.
std::string comparison_html(const std::vector<RunRecord>& runs);

// Writes report.html into the folder; nothing where nothing is logged yet. A report is only another view of files that
// are safe already and can be made again (compare RUN), so a failure is a warning: a run must not end for it. A full
// disk stops the run all the same, at its next checkpoint.
void write_report(const RunFolder& folder, Console& console, const std::string& state = "not finished");

}  // namespace flexformer
