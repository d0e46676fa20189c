#include "train/reports/run_record.h"

#include <algorithm>

#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/util/files.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

// No run has more; what is computed from them then cannot overflow.
constexpr Index kMostSteps = Index(1) << 53;
constexpr std::size_t kMostFigures = 1000;  // of one file: settings, figures, curves
constexpr std::uint64_t kMostRows = std::uint64_t(1) << 32;

// What a page shows, and looks up one by one.
void check_count(std::size_t figures, const std::string& where) {
  if (figures > kMostFigures) fail(where, ": more than ", kMostFigures, " different keys; no trainer writes so many");
}

// {"model": {"dim": 64}} -> {"model.dim": 64}
void flatten(const Json& json, const std::string& prefix, Json& flat, const std::string& where) {
  check_count(flat.size() + json.size(), where);
  for (const auto& [key, value] : json.items())
    if (value.is_object())
      flatten(value, prefix + key + ".", flat, where);
    else
      flat[prefix + key] = value;
}

Json default_config(const std::string& program) {
  Options options(program, "");
  if (program == "train_lm") add_language_options(options);
  if (program == "train_classifier") add_classifier_options(options);
  Json flat = Json::object();
  flatten(options.effective(), "", flat, program);
  return flat;
}

ConfusionMatrix confusion_from_json(const Json& rows, const std::string& where) {
  const auto is_count = [](const Json& count) {
    return count.is_number_unsigned() && count.get<std::uint64_t>() <= kMostRows;
  };
  const auto is_row = [&](const Json& row) {
    return row.is_array() && row.size() == rows.size() && std::ranges::all_of(row, is_count);
  };
  if (!rows.is_array() || rows.empty() || !std::ranges::all_of(rows, is_row))
    fail(where, ": \"confusion\" is no square table of counts");
  const auto classes = std::int64_t(rows.size());
  ConfusionMatrix matrix(classes);
  for (std::int64_t truth = 0; truth < classes; ++truth)
    for (std::int64_t predicted = 0; predicted < classes; ++predicted)
      matrix.add(truth, predicted, rows[std::size_t(truth)][std::size_t(predicted)].get<std::int64_t>());
  return matrix;
}

void add_line(const Json& line, const std::string& where, RunRecord& run) {
  const auto step = json_get<std::int64_t>(line, "step", where);
  if (step > kMostSteps) fail(where, ": step ", step, " is more than any run has");
  if (step < run.last_step) fail(where, ": step ", step, " comes after step ", run.last_step);
  run.last_step = step;
  check_count(line.size() + run.series.size(), where);
  for (const auto& [key, value] : line.items()) {
    if (key == "step") continue;
    if (key == "sample")
      run.samples.push_back({step, json_get<std::string>(line, "sample", where)});
    else if (key == "confusion")
      run.confusion = confusion_from_json(value, where);
    else
      run.series[key].push_back(
          {double(step), value.is_number() ? value.get<double>() : number_from_json(value, where + ": " + key)});
  }
}

void read_metrics(const fs::path& path, RunRecord& run) {
  const std::string bytes = read_file(path);
  Index number = 0;
  for (std::size_t at = 0, end; (end = bytes.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string where = text(path.string(), ":", ++number);
    Json line;
    try {
      line = parse_json(std::string_view(bytes).substr(at, end - at), "");
    } catch (const Error& error) {
      const std::string_view what = error.what();  // ":1:COLUMN: reason", or ": reason"
      fail(where, what.substr(what.starts_with(":1:") ? 2 : 0));
    }
    add_line(line, where, run);
  }
}

}  // namespace

RunRecord read_run(const fs::path& folder) {
  if (!fs::is_directory(folder)) fail("run ", folder.string(), ": there is no such folder");
  const RunFolder files(folder);
  const bool imported = files.has_best() && !files.has_checkpoint();
  for (const char* needed : {"config.json", "metrics.jsonl"})
    if (!fs::exists(files.file(needed)) && !(imported && needed == std::string_view("metrics.jsonl")))
      fail("run ", folder.string(), ": there is no ", needed, " in it; is this the out=DIR of a trainer?");
  RunRecord run;
  run.path = folder.string();
  const fs::path whole = fs::absolute(folder / "").lexically_normal();  // ends in a separator
  run.name = whole.parent_path().filename().string();
  const fs::path config = files.file("config.json");
  const Json settings = read_json(config);
  run.program = json_get<std::string>(settings, "program", config.string());
  flatten(settings, "", run.config, config.string());
  for (const char* key : {"program", "format_version"}) run.config.erase(key);
  run.defaults = default_config(run.program);
  run.trained = fs::exists(files.file("metrics.jsonl"));
  if (run.trained) read_metrics(files.file("metrics.jsonl"), run);
  if (const fs::path path = files.file("summary.json"); fs::exists(path)) {
    run.summary = read_json(path);
    json_member(run.summary, "program", path.string());
    check_count(run.summary.size(), path.string());
  }
  if (const fs::path path = files.file("tokenizer.json"); fs::exists(path))
    run.tokenizer = fingerprint(read_file(path));
  if (fs::exists(files.file("labels.json"))) {
    const LabelMap labels = load_labels(files);
    for (Index c = 0; c < labels.size(); ++c) run.labels.push_back(labels.name(c));
    if (run.confusion && run.confusion->classes() != labels.size())
      fail("run ", folder.string(), ": labels.json has ", labels.size(), " classes, the last \"confusion\" of ",
           "metrics.jsonl ", run.confusion->classes(), "; one of them belongs to another run");
  }
  return run;
}

}  // namespace flexformer
