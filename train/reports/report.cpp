#include "train/reports/report.h"

#include <algorithm>
#include <cmath>

#include "train/reports/html.h"
#include "train/reports/report_parts.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr Index kNarrowMatrix = 8;   // classes of a confusion matrix that has room beside a table
constexpr std::size_t kSamples = 8;  // as many as are shown, the first and the last among them

std::string tile(const std::string& value, const std::string& name, const std::string& more = "") {
  return "<div><b>" + escape(value) + "</b><small>" + escape(name) + (more.empty() ? "" : "<br/>" + escape(more)) +
         "</small></div>\n";
}

// The last value of a series, as people read it; "" if there is none.
std::string last_value(const RunRecord& run, const char* key) {
  const auto found = run.series.find(key);
  return found == run.series.end() ? "" : figure_text(key, json_number(found->second.back().value));
}

std::string tiles(const RunRecord& run) {
  std::string out;
  const auto add = [&](const char* key, const char* name, const std::string& more = "") {
    std::string value = run.summary.contains(key) ? figure_text(key, run.summary[key]) : last_value(run, key);
    if (!value.empty()) out += tile(value, name, more);
  };
  std::string best;
  if (const auto found = run.series.find("valid_loss"); found != run.series.end()) {
    const auto less = [](const Point& a, const Point& b) { return a.value < b.value || std::isnan(b.value); };
    const Point& point = *std::ranges::min_element(found->second, less);
    if (std::isfinite(point.value) && point.step < found->second.back().step)
      best = text("best ", figure_text("valid_loss", point.value), " at step ", grouped(Index(point.step)));
  }
  add("valid_loss", "validation loss", best);
  add("valid_accuracy", "validation accuracy",
      run.summary.contains("majority_accuracy")
          ? "most frequent class alone: " + figure_text("majority_accuracy", run.summary["majority_accuracy"])
          : "");
  add("test_accuracy", "test accuracy", "of the best weights");
  add("valid_ppl", "validation perplexity");
  add("valid_bits_per_byte", "bits per byte");
  if (run.trained && run.config.contains("train.steps")) {
    const std::string planned = setting_text(run.config["train.steps"]);
    out += tile(grouped(run.last_step), "steps",
                run.config["train.steps"] == run.last_step ? "all that were planned" : "of " + planned + " planned");
  }
  add("tokens", "tokens seen");
  add("tokens_per_second", "tokens per second");
  add("seconds", "training time");
  add("params", "parameters");
  return "<div class=\"figures\">\n" + out + "</div>\n";
}

// "train_lm · flexformer_n, 2 layers, 4 heads, 64 channels · cpu, 2 threads"
std::string description(const RunRecord& run) {
  std::string out = run.program;
  const auto add = [&](const char* between, const Json& from, const char* key, const char* unit = "") {
    if (!from.contains(key)) return;
    out += between + setting_text(from[key]) + unit + (*unit && from[key] != 1 ? "s" : "");
  };
  add(" · ", run.config, "model.attention");
  add(", ", run.config, "model.layers", " layer");
  add(", ", run.config, "model.heads", " head");
  add(", ", run.config, "model.dim", " channel");
  add(" · ", run.summary, "device");
  add(", ", run.summary, "threads", " thread");
  return out;
}

std::string charts(const RunRecord& run) {
  std::vector<Chart> all;
  bool any_smoothed = false;
  for (const Quantity& quantity : quantities({&run, 1})) {
    if (all.empty() || all.back().title != quantity.title) {
      all.push_back(quantity.chart());
      if (all.back().title == "Loss") all.back().unit = loss_unit(run);
    }
    any_smoothed |= add_curves(all.back(), quantity, run, quantity.name, int(all.back().curves()));
  }
  return charts_html(all, any_smoothed);
}

std::string samples(const RunRecord& run) {
  if (run.samples.empty()) return "";
  std::string out = "<h2>Samples</h2>\n", earlier;
  const Sample& last = run.samples.back();
  out += text("<p class=\"soft\">Drawn by the model at step ", grouped(last.step), ", without a prompt.</p>\n<pre>",
              "\n", escape(last.text), "</pre>\n");
  const std::size_t count = run.samples.size() - 1, shown = std::min(count, kSamples - 1);
  for (std::size_t i = 0; i < shown; ++i) {
    const Sample& sample = run.samples[i * count / shown];
    earlier += text("<p class=\"soft\">Step ", grouped(sample.step), "</p>\n<pre>\n", escape(sample.text), "</pre>\n");
  }
  if (!earlier.empty())
    out += "<details><summary>How it came to this: earlier samples</summary>\n" + earlier + "</details>\n";
  return out;
}

// Rows of `confusion`, shaded by the share of the true class that a cell holds: right answers blue, wrong ones orange.
std::string matrix(const ConfusionMatrix& m, const std::vector<std::string>& labels) {
  std::string out = "<div class=\"table\"><table class=\"matrix\">\n<tr><th></th>";
  for (const std::string& label : labels) out += "<th>" + escape(label) + "</th>";
  out += "</tr>\n";
  for (Index t = 0; t < m.classes(); ++t) {
    out += "<tr><th>" + escape(labels[std::size_t(t)]) + "</th>";
    for (Index p = 0; p < m.classes(); ++p) {
      const double share = 0.9 * double(m.at(t, p)) / double(std::max<Index>(1, m.support(t)));
      out += text("<td class=\"", t == p ? "right" : "wrong", share > 0.8 ? " strong" : "",
                  "\" style=\"--share:", fixed(share, 2), "\">", m.at(t, p) ? grouped(m.at(t, p)) : "", "</td>");
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string classes(const RunRecord& run) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& label, double precision, double recall, Index support) {
    const double f1 = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
    rows.push_back({escape(label), fixed(precision, 3), fixed(recall, 3), fixed(f1, 3), grouped(support)});
  };
  std::string picture;
  if (run.confusion) {
    const ConfusionMatrix& m = *run.confusion;
    std::vector<std::string> labels = run.labels;
    for (Index c = Index(labels.size()); c < m.classes(); ++c) labels.push_back(text("class ", c));
    for (Index c = 0; c < m.classes(); ++c) add(labels[std::size_t(c)], m.precision(c), m.recall(c), m.support(c));
    picture = matrix(m, labels);
  } else if (run.summary.contains("per_class")) {  // of more classes than a matrix could show
    const std::string source = run.path + "/summary.json: per_class";
    for (const auto& [label, figures] : run.summary["per_class"].items())
      add(label, number_from_json(json_member(figures, "precision", source), source),
          number_from_json(json_member(figures, "recall", source), source),
          json_get<std::int64_t>(figures, "support", source));
  }
  if (rows.empty()) return "";
  const bool beside = run.confusion && run.confusion->classes() <= kNarrowMatrix;
  return std::string("<h2>Classes</h2>\n<p class=\"soft\">The last validation.") +
         (run.confusion ? " Rows are true classes, columns what the model said." : "") + "</p>\n<div" +
         (beside ? " class=\"pair\"" : "") + ">\n" + picture +
         html_table({"class", "precision", "recall", "F1", "rows"}, rows, true) + "</div>\n";
}

std::string figures(const RunRecord& run) {
  if (!run.finished()) return "";
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : run.summary.items())
    if (!value.is_structured()) rows.push_back({escape(key), escape(figure_text(key, value))});
  return "<div>\n<h2>Figures</h2>\n" + html_table({}, rows, true) + "</div>\n";
}

std::string settings(const RunRecord& run) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : run.config.items()) {
    const bool other = run.defaults.contains(key) && run.defaults[key] != value;
    const std::string shown = escape_path(setting_text(value));
    rows.push_back(other ? std::vector{"<strong>" + escape(key) + "</strong>", "<strong>" + shown + "</strong>"}
                         : std::vector{escape(key), shown});
  }
  return "<div>\n<h2>Settings</h2>\n<p class=\"soft\">Bold: not the key's default.</p>\n" + html_table({}, rows, true) +
         "</div>\n";
}

std::string commands(const RunRecord& run) {
  const std::string folder = shell_word(run.path), trainer = "build/release/" + run.program;
  std::string lines;
  const auto add = [&](const std::string& command, const char* meaning) {
    lines += command + "   # " + meaning + "\n";
  };
  if (run.finished())
    add(trainer + " --out=" + folder + " --resume --train.steps=" + std::to_string(2 * run.last_step),
        "train it further");
  else if (!run.trained)
    add(trainer + " --init=" + folder + " --data.train=FILE", "train it further");
  else
    add(trainer + " --out=" + folder + " --resume", "go on, exactly where it was saved last");
  if (run.trained) add(trainer + " --out=" + folder + " --eval", "measure the best weights again");
  if (run.program == "train_lm") add("build/release/generate --run=" + folder + " --tokens=300", "write text");
  if (run.program == "train_classifier")
    add("build/release/predict --run=" + folder + " --file=texts.txt", "label texts, one a line");
  add("build/release/compare " + folder + " OTHER_RUN", "side by side with other runs");
  return "<h2>Use it</h2>\n<pre>\n" + escape(lines) + "</pre>\n";
}

}  // namespace

std::string report_html(const RunRecord& run, const std::string& state, const std::string& more) {
  const std::string shown = run.finished() ? "finished" : state;
  return html_page(run.name + ", " + shown, "<header>\n<h1>" + escape(run.name) + "<span class=\"state" +
                                                (run.finished() ? " finished" : "") + "\">" + escape(shown) +
                                                "</span></h1>\n<p class=\"soft\">" + escape(description(run)) +
                                                "</p>\n</header>\n" + tiles(run) + charts(run) + samples(run) +
                                                classes(run) + more + commands(run) + "<div class=\"pair\">\n" +
                                                figures(run) + settings(run) + "</div>\n" + footer_html());
}

void write_report(const RunFolder& folder, Console& console, const std::string& state) {
  try {
    if (!std::filesystem::exists(folder.file("metrics.jsonl"))) return;
    write_file_atomic(folder.file("report.html"), report_html(read_run(folder.path()), state));
  } catch (const std::exception& error) {
    console.say(text("warning: report.html was not written: ", error.what()));
  }
}

}  // namespace flexformer
