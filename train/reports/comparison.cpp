// Several runs side by side: the second half of report.h.
#include <algorithm>
#include <set>

#include "train/reports/html.h"
#include "train/reports/report.h"
#include "train/reports/report_parts.h"

namespace flexformer {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Which of the values of a figure is the best one: the smallest, the largest, or none.
enum class Better { lower, higher, neither };
Better better(const std::string& key) {
  for (const char* lower : {"valid_loss", "best_valid_loss", "valid_ppl", "valid_bits_per_byte", "test_loss"})
    if (key == lower) return Better::lower;
  return key == "mcc" || key == "valid_accuracy" || key == "test_accuracy" ? Better::higher : Better::neither;
}

template <class Of> bool all_alike(const std::vector<RunRecord>& runs, const Of& of) {
  return std::ranges::all_of(runs, [&](const RunRecord& run) { return of(run) == of(runs.front()); });
}

bool one_program(const std::vector<RunRecord>& runs) {
  return all_alike(runs, [](const RunRecord& run) { return run.program; });
}

// Losses of a language model are per token: those of two tokenizers are of different things.
bool is_per_token(const std::string& key) { return key.ends_with("valid_loss") || key == "valid_ppl"; }
bool one_tokenizer(const std::vector<RunRecord>& runs) {
  return runs.front().program != "train_lm" || all_alike(runs, [](const RunRecord& run) { return run.tokenizer; });
}

// Whether what the keys name was measured on the same data; where there is no file, a part of data.train is taken.
bool one_set(const std::vector<RunRecord>& runs, const char* key) {
  return all_alike(runs, [&](const RunRecord& run) {
    const auto file = [&](const char* name) {
      const Json value = run.config.value(name, Json());
      return value.is_string() ? std::filesystem::path(value.get<std::string>()).lexically_normal().string() : "";
    };
    return file(key).empty() ? "part of " + file("data.train") : file(key);
  });
}

bool is_comparable(const std::vector<RunRecord>& runs, const std::string& key) {
  return runs.size() > 1 && one_program(runs) && one_set(runs, key.starts_with("test_") ? "data.test" : "data.valid") &&
         (one_tokenizer(runs) || !is_per_token(key));
}

// The keys of all objects in the order of their first appearance.
std::vector<std::string> all_keys(const std::vector<RunRecord>& runs, Json RunRecord::*object) {
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const RunRecord& run : runs)
    for (const auto& [key, value] : (run.*object).items())
      if (!value.is_structured() && seen.insert(key).second) keys.push_back(key);
  return keys;
}

std::string strong(const std::string& html) { return "<strong>" + html + "</strong>"; }

const std::string kNothing = "<span class=\"soft\">–</span>";

std::vector<std::string> figure_row(const std::vector<RunRecord>& runs, const std::string& key) {
  const Better wanted = is_comparable(runs, key) ? better(key) : Better::neither;
  const auto value = [&](const RunRecord& run) { return run.summary.value(key, Json()); };
  Json best;
  for (const RunRecord& run : runs) {
    const Json v = value(run);
    if (v.is_number() && (best.is_null() || (wanted == Better::lower ? v < best : v > best))) best = v;
  }
  std::vector<std::string> row = {escape(key)};
  for (const RunRecord& run : runs) {
    const Json v = value(run);
    const std::string shown = v.is_null() ? kNothing : escape(figure_text(key, v));
    row.push_back(wanted != Better::neither && v.is_number() && v == best ? strong(shown) : shown);
  }
  return row;
}

std::vector<std::string> head(const std::vector<RunRecord>& runs) {
  std::vector<std::string> cells = {""};
  for (std::size_t i = 0; i < runs.size(); ++i) cells.push_back(escape_path(runs[i].path));
  return cells;
}

std::string figures(const std::vector<RunRecord>& runs) {
  Rows rows;
  for (const std::string& key : all_keys(runs, &RunRecord::summary)) rows.push_back(figure_row(runs, key));
  std::string out = "<h2>Figures</h2>\n", missing;
  for (const RunRecord& run : runs)
    if (!run.finished())
      missing += text("<p class=\"note\">", escape(run.path), " has not finished: it stands at step ",
                      grouped(run.last_step), " and has no summary.json.</p>\n");
  if (one_program(runs) && !rows.empty())
    out +=
        std::string("<p class=\"soft\">Bold: the best") +
        (one_set(runs, "data.valid") && one_set(runs, "data.test") ? "" : ", of what was measured on the same data") +
        (one_tokenizer(runs) ? "" : "; not of losses per token, since the tokenizers differ, but of bits per byte") +
        ".</p>\n";
  return out + (rows.empty() ? "" : html_table(head(runs), rows, true)) + missing;
}

std::string differences(const std::vector<RunRecord>& runs) {
  Rows rows;
  for (const std::string& key : all_keys(runs, &RunRecord::config)) {
    std::vector<std::string> row = {escape(key)};
    bool differ = false;
    for (const RunRecord& run : runs) {
      const Json value = run.config.value(key, Json());
      differ |= value != runs.front().config.value(key, Json());
      const bool other = run.defaults.contains(key) && run.defaults[key] != value;
      const std::string shown = value.is_null() ? kNothing : escape_path(setting_text(value));
      row.push_back(other && !value.is_null() ? strong(shown) : shown);
    }
    if (differ && key != "out") rows.push_back(std::move(row));
  }
  return "<h2>Settings that differ</h2>\n" +
         (rows.empty() ? "<p class=\"soft\">None: all runs have the same settings.</p>\n"
                       : "<p class=\"soft\">Bold: not the key's default.</p>\n" + html_table(head(runs), rows, true));
}

std::string charts(const std::vector<RunRecord>& runs) {
  std::vector<Chart> all;
  bool any_smoothed = false;
  for (const Quantity& quantity : quantities(runs)) {
    Chart chart = quantity.chart();
    if (quantity.title == "Loss") {
      chart.title = quantity.name == "training" ? "Training loss" : "Validation loss";
      if (one_program(runs)) chart.unit = loss_unit(runs.front());
    }
    for (std::size_t i = 0; i < runs.size(); ++i)
      any_smoothed |= add_curves(chart, quantity, runs[i], runs[i].path, int(i));
    all.push_back(std::move(chart));
  }
  return charts_html(all, any_smoothed);
}

}  // namespace

std::string comparison_html(const std::vector<RunRecord>& runs) {
  const std::string title = text("Comparison of ", runs.size(), " runs");
  return html_page(title, "<header>\n<h1>" + title + "</h1>\n</header>\n" + charts(runs) + figures(runs) +
                              differences(runs) + footer_html());
}

}  // namespace flexformer
