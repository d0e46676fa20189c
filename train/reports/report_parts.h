// What the report of one run and the comparison of several have in common: which charts there are, and how values read.
#pragma once
#include <span>

#include "train/reports/run_record.h"

namespace flexformer {

// A key of metrics.jsonl that is drawn.
struct Quantity {
  std::string key, title, name;  // "valid_loss", "Loss", "validation"
  std::string unit;
  bool from_zero = false, may_be_log = false, percent = false;
  bool noisy = false;  // drawn smoothed where there are many points

  Chart chart() const;  // without curves
};

// All that at least one of the runs has logged, in the order in which they are shown; keys that nothing is known of
// come last, under their own name. Quantities with the same title follow each other.
std::vector<Quantity> quantities(std::span<const RunRecord> runs);

std::string loss_unit(const RunRecord& run);

// Adds what the run has logged of a quantity, if anything; a noisy one of many points smoothed, with the points
// themselves faintly behind. Returns whether it was one of these.
bool add_curves(Chart& chart, const Quantity& quantity, const RunRecord& run, const std::string& name, int colour);

std::string charts_html(const std::vector<Chart>& charts, bool any_smoothed);

// A figure of summary.json or metrics.jsonl as people read it: "1 min 19 s", "95.80 %", "116,584", "0.51882".
std::string figure_text(const std::string& key, const Json& value);
// A value of config.json as the command line spells it.
std::string setting_text(const Json& value);

std::string footer_html();  // when the page was made

}  // namespace flexformer
