#include "train/reports/report_parts.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>

#include "train/reports/html.h"
#include "train/util/log.h"

namespace flexformer {
namespace {

constexpr std::size_t kManyPoints = 60;  // from here on a curve is smoothed

const std::vector<Quantity>& known_quantities() {
  static const std::vector<Quantity> known = {
      {.key = "loss", .title = "Loss", .name = "training", .unit = "nats", .may_be_log = true, .noisy = true},
      {.key = "valid_loss", .title = "Loss", .name = "validation", .unit = "nats", .may_be_log = true},
      {.key = "valid_accuracy", .title = "Accuracy", .name = "validation", .unit = "%", .percent = true},
      {.key = "valid_ppl", .title = "Perplexity", .name = "validation", .unit = "", .may_be_log = true},
      {.key = "valid_bits_per_byte", .title = "Bits per byte", .name = "validation", .unit = "", .may_be_log = true},
      {.key = "lr", .title = "Learning rate", .name = "learning rate", .unit = "", .from_zero = true},
      {.key = "grad_norm",
       .title = "Gradient norm",
       .name = "norm",
       .unit = "before clipping",
       .may_be_log = true,
       .noisy = true},
      {.key = "tokens_per_second",
       .title = "Speed",
       .name = "speed",
       .unit = "tokens/s",
       .from_zero = true,
       .noisy = true}};
  return known;
}

template <class... Format> std::string short_number(Format... value_and_format) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value_and_format...).ptr};
}

}  // namespace

Chart Quantity::chart() const {
  return {
      .title = title, .unit = unit, .series = {}, .from_zero = from_zero, .may_be_log = may_be_log, .percent = percent};
}

std::vector<Quantity> quantities(std::span<const RunRecord> runs) {
  std::vector<Quantity> out;
  for (const Quantity& known : known_quantities())
    if (std::ranges::any_of(runs, [&](const RunRecord& run) { return run.series.contains(known.key); }))
      out.push_back(known);
  for (const RunRecord& run : runs)
    for (const auto& [key, points] : run.series) {
      const bool listed = std::ranges::find(out, key, &Quantity::key) != out.end();
      if (!listed && key != "tokens") out.push_back({.key = key, .title = key, .name = key, .unit = ""});
    }
  return out;
}

std::string loss_unit(const RunRecord& run) {
  if (run.program != "train_classifier") return "nats per token";
  const bool regression = run.config.contains("data.task") && run.config["data.task"] == "regression";
  return regression ? "squared error / variance of the labels" : "nats per row";
}

bool add_curves(Chart& chart, const Quantity& quantity, const RunRecord& run, const std::string& name, int colour) {
  const auto found = run.series.find(quantity.key);
  if (found == run.series.end()) return false;
  const std::vector<Point>& points = found->second;
  const bool smoothed = quantity.noisy && points.size() >= kManyPoints;
  if (smoothed) chart.series.push_back({"", points, colour});
  chart.series.push_back({name, smoothed ? smooth(points) : points, colour});
  return smoothed;
}

std::string charts_html(const std::vector<Chart>& charts, bool any_smoothed) {
  if (charts.empty()) return "";
  std::string out = "<div class=\"charts\">\n";
  for (const Chart& chart : charts) out += chart_html(chart);
  out += "</div>\n";
  if (any_smoothed)
    out +=
        "<p class=\"note\">Thin: values as they were logged. Bold: the mean of neighbours, extremes left out. Where "
        "points are closer "
        "than the picture can show, the smallest and the largest are drawn.</p>\n";
  return out;
}

std::string figure_text(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number()) return dump_json(value);
  const double number = value.get<double>();
  if (key.ends_with("_bytes")) return megabytes(Index(std::clamp(number, 0.0, 1e18)));
  if (key == "seconds") return duration(number);
  if (key.ends_with("accuracy")) return fixed(100 * number, 2) + " %";
  if (value.is_number_integer() && std::abs(number) < 1e18) return grouped(value.get<Index>());
  if (std::abs(number) >= 1000 && std::abs(number) < 1e15) return grouped(Index(std::llround(number)));
  return short_number(number, std::chars_format::general, 5);
}

std::string setting_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? short_number(float(value.get<double>())) : dump_json(value);
}

std::string footer_html() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char words[32];
  return std::string("<footer>Made by Flexformer at ") +
         std::string(words, std::strftime(words, sizeof words, "%Y-%m-%d %H:%M:%S", &parts)) + " UTC.</footer>\n";
}

}  // namespace flexformer
