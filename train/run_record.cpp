#include "train/run_record.h"

#include "train/classifier_run.h"
#include "train/files.h"
#include "train/language_run.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

// {"model": {"dim": 64}} -> {"model.dim": 64}
void flatten(const Json& json, const std::string& prefix, Json& flat) {
  for (const auto& [key, value] : json.items())
    if (value.is_object())
      flatten(value, prefix + key + ".", flat);
    else
      flat[prefix + key] = value;
}

Json default_config(const std::string& program) {
  Options options(program, "");
  if (program == "train_lm") add_language_options(options);
  if (program == "train_classifier") add_classifier_options(options);
  Json flat = Json::object();
  flatten(options.effective(), "", flat);
  return flat;
}

ConfusionMatrix confusion_from_json(const Json& rows, const std::string& where) {
  const auto bad = [&] { fail(where, ": \"confusion\" is no square table of counts"); };
  if (!rows.is_array() || rows.empty()) bad();
  const auto classes = std::int64_t(rows.size());
  ConfusionMatrix matrix(classes);
  for (std::int64_t truth = 0; truth < classes; ++truth) {
    const Json& row = rows[std::size_t(truth)];
    if (!row.is_array() || row.size() != rows.size()) bad();
    for (std::int64_t predicted = 0; predicted < classes; ++predicted) {
      const Json& count = row[std::size_t(predicted)];
      if (!count.is_number_unsigned()) bad();
      matrix.add(truth, predicted, count.get<std::int64_t>());
    }
  }
  return matrix;
}

void add_line(const Json& line, const std::string& where, RunRecord& run) {
  const auto step = json_get<std::int64_t>(line, "step", where);
  if (step < run.last_step) fail(where, ": step ", step, " comes after step ", run.last_step);
  run.last_step = step;
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
  for (const char* needed : {"config.json", "metrics.jsonl"})
    if (!fs::exists(files.file(needed)))
      fail("run ", folder.string(), ": there is no ", needed, " in it; is this the out=DIR of a trainer?");
  RunRecord run;
  run.path = folder.string();
  const fs::path whole = fs::absolute(folder / "").lexically_normal();  // ends in a separator
  run.name = whole.parent_path().filename().string();
  const fs::path config = files.file("config.json");
  const Json settings = read_json(config);
  run.program = json_get<std::string>(settings, "program", config.string());
  flatten(settings, "", run.config);
  for (const char* key : {"program", "format_version"}) run.config.erase(key);
  run.defaults = default_config(run.program);
  read_metrics(files.file("metrics.jsonl"), run);
  if (const fs::path path = files.file("summary.json"); fs::exists(path)) {
    run.summary = read_json(path);
    json_member(run.summary, "program", path.string());
  }
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
