#include "train/reports/lra_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/error.h"
#include "train/util/log.h"

namespace flexformer {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

// Adds a word if it is not there yet.
void remember(std::vector<std::string>& words, const std::string& word) {
  if (std::ranges::find(words, word) == words.end()) words.push_back(word);
}

// "37.1 ± 0.4", with the paper's figure behind it.
std::string cell(double mean, double deviation, double paper) {
  std::string out = fixed(mean, 2);
  if (std::isfinite(deviation)) out += " ± " + fixed(deviation, 2);
  if (std::isfinite(paper)) out += " (" + fixed(paper, 2) + ")";
  return out;
}

// Columns as wide as their widest cell; "±" is two bytes but one place wide.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  const auto width = [](const std::string& s) {
    return std::size_t(std::ranges::count_if(s, [](char c) { return (c & 0xC0) != 0x80; }));
  };
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      std::size_t widest = 0;
      for (const auto& other : rows) widest = std::max(widest, width(other[c]));
      line += row[c] + std::string(widest - width(row[c]) + 2, ' ');
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

double number_or_none(const Json& value) { return value.is_number() ? value.get<double>() : none; }

}  // namespace

const std::vector<LraTask>& lra_tasks() {
  static const std::vector<LraTask> tasks = {
      {"listops", "make data-listops"},
      {"text", "make data-imdb"},
      {"retrieval",
       "cannot be fetched freely: put the official new_aan_pairs.train.tsv, .eval.tsv and .test.tsv there"},
      {"image", "make data-cifar10"},
      {"pathfinder", "make data-pathfinder"}};
  return tasks;
}

double paper_accuracy(const std::string& kind, const std::string& task) {
  // In the order of lra_tasks().
  static const std::map<std::string, std::vector<double>> table = {
      {"softmax", {37.23, 65.66, 64.49, 41.89, 73.46}},     {"linear", {17.42, 62.64, 58.92, 43.40, 75.11}},
      {"performer", {16.97, 63.67, 55.17, 41.23, 75.38}},   {"rfa", {17.20, 64.89, 58.76, 41.00, 74.51}},
      {"cosformer", {37.44, 65.16, 64.04, 43.56, 72.32}},   {"hedgehog", {37.02, 64.10, 68.67, 41.64, 75.89}},
      {"polaformer", {36.93, 69.65, 65.39, 40.95, 73.26}},  {"flexformer_s", {37.09, 67.38, 71.55, 43.39, 76.15}},
      {"flexformer_n", {37.18, 65.72, 73.94, 45.42, 77.66}}};
  const auto row = table.find(kind);
  const auto column = std::ranges::find(lra_tasks(), task, &LraTask::name);
  if (row == table.end() || column == lra_tasks().end()) return none;
  return row->second[std::size_t(column - lra_tasks().begin())];
}

MeanDeviation mean_deviation(const std::vector<double>& values) {
  const double n = double(values.size());
  MeanDeviation out{std::accumulate(values.begin(), values.end(), 0.0) / n, none};
  if (n < 2) return out;
  double squares = 0;
  for (const double x : values) squares += (x - out.mean) * (x - out.mean);
  out.deviation = std::sqrt(squares / (n - 1));
  return out;
}

Json lra_results(const std::vector<LraRun>& runs) {
  std::vector<std::string> kinds;
  for (const LraRun& run : runs) remember(kinds, run.kind);
  Json results = Json::array();
  for (const LraTask& task : lra_tasks())
    for (const std::string& kind : kinds) {
      std::vector<double> values;
      Json seeds = Json::object();
      for (const LraRun& run : runs)
        if (run.task == task.name && run.kind == kind) {
          values.push_back(run.accuracy);
          seeds[std::to_string(run.seed)] = run.accuracy;
        }
      if (values.empty()) continue;
      const MeanDeviation figures = mean_deviation(values);
      const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(); };
      results.push_back({{"task", task.name},
                         {"kind", kind},
                         {"seeds", seeds},
                         {"mean", figures.mean},
                         {"deviation", number(figures.deviation)},
                         {"paper", number(paper_accuracy(kind, task.name))}});
    }
  return results;
}

std::string lra_table(const Json& results) {
  std::vector<std::string> tasks, kinds;
  for (const Json& result : results) {
    remember(tasks, result.at("task"));
    remember(kinds, result.at("kind"));
  }
  std::vector<std::vector<std::string>> rows = {{"test accuracy, %"}};
  rows[0].insert(rows[0].end(), tasks.begin(), tasks.end());
  rows[0].push_back("mean");
  for (const std::string& kind : kinds) {
    std::vector<std::string> row = {kind};
    double sum = 0, paper = 0;
    for (const std::string& task : tasks) {
      const auto found = std::ranges::find_if(
          results, [&](const Json& result) { return result.at("task") == task && result.at("kind") == kind; });
      if (found == results.end()) {
        row.push_back("-");
        sum = none;
        continue;
      }
      const double mean = found->at("mean"), theirs = number_or_none(found->at("paper"));
      row.push_back(cell(mean, number_or_none(found->at("deviation")), theirs));
      sum += mean;
      paper += theirs;
    }
    const double n = double(tasks.size());
    row.push_back(std::isfinite(sum) ? cell(sum / n, none, paper / n) : "-");
    rows.push_back(row);
  }
  return aligned(rows) + "± standard deviation over seeds; in brackets the Flexformer paper's figure\n";
}

}  // namespace flexformer
