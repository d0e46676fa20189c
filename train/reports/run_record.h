// What the files of a run folder say about a run: all that a report is made from, so that it can be made at any time,
// during the training or years later.
#pragma once
#include <filesystem>
#include <map>
#include <optional>

#include "train/reports/chart.h"
#include "train/training/class_metrics.h"
#include "train/util/json_file.h"

namespace flexformer {

struct Sample {
  Index step;
  std::string text;
};

struct RunRecord {
  std::string path, name;                            // as it was given; the folder's own name
  std::string program;                               // "" where config.json does not say
  Json config = Json::object();                      // "model.dim" -> value, in the order of --help
  Json defaults = Json::object();                    // the same keys of the program; empty if it is not known here
  Json summary = Json::object();                     // empty while the run has not finished
  std::map<std::string, std::vector<Point>> series;  // every numeric key of metrics.jsonl
  Index last_step = 0;                               // of metrics.jsonl
  std::vector<Sample> samples;                       // drawn by a language model at its validations
  std::optional<ConfusionMatrix> confusion;          // of a classifier's last validation
  std::vector<std::string> labels;                   // its classes, any bytes
  std::string tokenizer;                             // fingerprint of tokenizer.json; "" without one

  bool trained = true;  // here; a published model that was imported has no metrics.jsonl

  bool finished() const { return !summary.empty(); }
};

// Reads config.json and metrics.jsonl (which only an imported model may lack), and summary.json and labels.json where
// they are. Throws Error with file and line for what is missing or damaged; half a line at the end of metrics.jsonl,
// which a run may be writing, is left out.
RunRecord read_run(const std::filesystem::path& folder);

}  // namespace flexformer
