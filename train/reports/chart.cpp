#include "train/reports/chart.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "train/reports/html.h"
#include "train/util/log.h"

namespace flexformer {
namespace {

// The picture in its own units: a font of 12 (css in html.cpp), and the frame around the curves.
constexpr double kTop = 10, kBottom = 206, kRightMargin = 20, kCharacter = 6.8;
constexpr double kLargest = 1e100;      // beyond it, the arithmetic of axes would overflow
constexpr std::size_t kFewPoints = 40;  // so few are marked by dots

bool drawable(double value) { return std::abs(value) <= kLargest; }  // false for NaN

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return low > high; }
  void add(double value) { low = std::min(low, value), high = std::max(high, value); }
  // Some width where all values are (nearly) one.
  void widen() {
    const double size = std::max(std::abs(low), std::abs(high));
    if (high - low > std::max(1e-9 * size, kSmallest)) return;
    const double by = size > kSmallest ? 0.05 * size : 1;
    low -= by, high += by;
  }
  static constexpr double kSmallest = 1e-100;
};

// The nearest 1, 2 or 5 times a power of ten, not below `value`.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value) + 1e-9));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

double round_down(double value) {
  const double power = std::pow(10, std::floor(std::log10(value) + 1e-9));
  for (double factor : {5.0, 2.0})
    if (factor * power <= value * (1 + 1e-9)) return factor * power;
  return power;
}

// Of [low, high], low > 0: powers of ten, with 2 and 5 times them where there are few.
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const int first = int(std::floor(std::log10(low) + 1e-9)), last = int(std::ceil(std::log10(high) - 1e-9));
  const int stride = std::max(1, (last - first + 5) / 6);
  for (int power = first; power <= last; power += stride)
    for (double factor : {1.0, 2.0, 5.0})
      if (factor == 1 || high < 500 * low) ticks.push_back(factor * std::pow(10, power));
  std::erase_if(ticks, [&](double t) { return t < low * (1 - 1e-9) || t > high * (1 + 1e-9); });
  return ticks;
}

// As short as tells ticks apart that are `step` from each other, on an axis that reaches to `largest`: "20,000",
// "0.05", "2e-5".
std::string tick_label(double value, double step, double largest) {
  if (value == 0) return "0";
  if (largest >= 1e-3 && largest < 1e9)
    return step >= 1 ? grouped(Index(std::llround(value))) : fixed(value, int(std::ceil(-std::log10(step) - 1e-9)));
  const double power = std::floor(std::log10(std::abs(value)) + 1e-9);
  const int digits = std::clamp(int(power - std::floor(std::log10(step) + 1e-9)), 0, 12);
  return text(fixed(value / std::pow(10, power), digits), "e", int(power));
}

struct Axis {
  double low, high, from, to;  // values, and where they are in the picture
  bool log = false;
  std::vector<double> ticks = {};

  double at(double value) const {
    const double share = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + (to - from) * share;
  }
  std::string label(std::size_t tick) const {
    if (log || ticks.size() < 2) return tick_label(ticks[tick], ticks[tick], ticks[tick]);
    return tick_label(ticks[tick], ticks[1] - ticks[0], std::max(std::abs(low), std::abs(high)));
  }
};

Axis value_axis(Range range, const Chart& chart) {
  Axis axis{0, 0, kBottom, kTop};
  axis.log = chart.may_be_log && range.low > Range::kSmallest && range.high > 20 * range.low;
  if (axis.log) {
    axis.low = round_down(range.low), axis.high = round_up(range.high);
    axis.ticks = log_ticks(axis.low, axis.high);
    return axis;
  }
  // Room beside the values must not show shares below 0 or above 100 %, nor negative speeds.
  const bool shares = chart.percent && range.low >= 0 && range.high <= 100;
  const double least = shares || (chart.from_zero && range.low >= 0) ? 0 : -kLargest;
  if (chart.from_zero) range.add(0);
  range.widen();
  range.low = std::max(range.low, least);
  if (shares) range.high = std::min(range.high, 100.0);
  axis.ticks = round_ticks(range.low, range.high, 5);
  const double step = axis.ticks.size() > 1 ? axis.ticks[1] - axis.ticks[0] : range.high - range.low;
  axis.low = std::floor(range.low / step + 1e-9) * step, axis.high = std::ceil(range.high / step - 1e-9) * step;
  axis.ticks = round_ticks(axis.low, axis.high, int(std::lround((axis.high - axis.low) / step)));
  return axis;
}

// A coordinate: hundredths are far below what can be seen, and let the page's script read values back to 4 digits.
std::string number(double value) {
  char digits[32];  // coordinates are below 1000
  std::string out(digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, 2).ptr);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

std::string exact(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

std::string grid(const Axis& x, const Axis& y, const std::string& across) {
  std::string out;
  for (std::size_t i = 0; i < y.ticks.size(); ++i) {
    const std::string at = number(y.at(y.ticks[i]));
    out += "<path class=\"grid\" d=\"M" + number(x.from) + "," + at + "H" + number(x.to) +
           "\"/><text class=\"y\" x=\"" + number(x.from - 8) + "\" y=\"" + at + "\">" + y.label(i) + "</text>\n";
  }
  for (std::size_t i = 0; i < x.ticks.size(); ++i) {
    const std::string at = number(x.at(x.ticks[i]));
    out += "<path class=\"tick\" d=\"M" + at + "," + number(kBottom) + "v5\"/><text class=\"x\" x=\"" + at + "\" y=\"" +
           number(kBottom + 20) + "\">" + x.label(i) + "</text>\n";
  }
  out += "<text class=\"x\" x=\"" + number((x.from + x.to) / 2) + "\" y=\"" + number(kBottom + 40) + "\">" +
         escape(across) + "</text>\n";
  return out + "<path class=\"axis\" d=\"M" + number(x.from) + "," + number(kBottom) + "H" + number(x.to) + "\"/>\n";
}

std::string colour_class(const Series& series) {
  return text("c", series.colour % 8, series.colour % 16 >= 8 ? " dashed" : "");
}

// One curve. A point between two gaps is a line of no length, which round ends make a dot.
std::string curve(const Series& series, int legend_entry, const Axis& x, const Axis& y) {
  std::string line, dots;
  bool connected = false, alone = false;
  for (const Point& point : thin(series.points, int(x.to))) {
    const bool drawn = drawable(point.value);
    if (!drawn && alone) line += "h0";
    alone = drawn && !connected;
    if (drawn) {
      const std::string at = number(x.at(point.step)) + "," + number(y.at(point.value));
      line += (connected ? "L" : "M") + at;
      dots += "M" + at + "h0";
    }
    connected = drawn;
  }
  if (alone) line += "h0";
  const std::string colour = colour_class(series);
  if (series.scattered) return "<path class=\"dots small " + colour + "\" d=\"" + dots + "\"/>\n";
  const std::string key = legend_entry < 0 ? "" : "\" data-entry=\"" + std::to_string(legend_entry);
  std::string out =
      "<path class=\"line " + colour + (legend_entry < 0 ? " faint" : "") + key + "\" d=\"" + line + "\"/>\n";
  if (legend_entry >= 0 && series.points.size() <= kFewPoints)
    out += "<path class=\"dots " + colour + "\" d=\"" + dots + "\"/>\n";
  return out;
}

// "3 values of train are not finite: the first is nan at step 120."
std::string gaps_note(const Chart& chart) {
  std::string out;
  for (const Series& series : chart.series) {
    if (series.name.empty()) continue;
    const auto gap = [](const Point& point) { return !drawable(point.value); };
    const auto count = std::ranges::count_if(series.points, gap);
    if (count == 0) continue;
    const Point& first = *std::ranges::find_if(series.points, gap);
    const bool finite = std::isfinite(first.value);
    out += text(out.empty() ? "" : " ", grouped(count), count == 1 ? " value" : " values", " of ", escape(series.name),
                count == 1 ? " is" : " are", " not drawn: ", count == 1 ? "" : "the first is ",
                finite ? "beyond 1e100" : fixed(first.value, 0), " at ", chart.across, " ",
                chart.whole ? grouped(Index(first.step)) : fixed(first.step, 3), ".");
  }
  return out.empty() ? "" : "<p class=\"note\">" + out + "</p>\n";
}

std::string legend(const Chart& chart) {
  std::string out = "<p class=\"legend\">";
  for (const Series& series : chart.series)
    if (!series.name.empty())
      out += text("<span><i class=\"", colour_class(series), "\"></i>", escape(series.name), " <b></b></span> ");
  return out + "<span class=\"at\"></span></p>\n";
}

Axis step_axis(Range steps, const Chart& chart, double from) {
  Axis axis{steps.low, steps.high, from, chart.width - kRightMargin, chart.log_across};
  if (chart.log_across) {
    if (steps.high < 1.001 * steps.low) axis.low /= 2, axis.high *= 2;
    axis.ticks = log_ticks(axis.low, axis.high);
    return axis;
  }
  steps.add(0);
  steps.widen();
  axis.low = 0, axis.high = steps.high;
  axis.ticks = round_ticks(axis.low, axis.high, chart.width < 400 ? 3 : 5, chart.whole ? 1 : 0);
  return axis;
}

std::string picture(const Chart& chart, const Range& steps, const Axis& y, const std::string& attributes) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < y.ticks.size(); ++i) longest = std::max(longest, y.label(i).size());
  const Axis x = step_axis(steps, chart, 14 + kCharacter * double(longest));
  std::string out = "<svg" + attributes + " viewBox=\"0 0 " + number(chart.width) + " " + number(kChartHeight) +
                    "\" role=\"img\" aria-label=\"" + escape(chart.title + " by " + chart.across) + "\" data-frame=\"" +
                    number(x.from) + " " + number(x.to) + " " + number(kBottom) + " " + number(kTop) +
                    "\" data-across=\"" + escape(chart.across) + (chart.whole ? "\" data-whole=\"" : "") +
                    "\" data-axes=\"";
  for (double end : {x.low, x.high, y.low, y.high}) out += exact(end) + " ";
  out += std::string(x.log ? "log " : "linear ") + (y.log ? "log" : "linear") + "\">\n" + grid(x, y, chart.across);
  int entry = 0;
  for (const Series& series : chart.series) out += curve(series, series.name.empty() ? -1 : entry++, x, y);
  return out + "<path class=\"cursor\" d=\"\"/>\n</svg>\n";
}

// A chart as it is drawn: percents instead of shares, and where its points lie.
struct Drawing {
  Chart chart;
  Range steps = {}, values = {};

  explicit Drawing(const Chart& given) : chart(given) {
    for (Series& series : chart.series)
      for (Point& point : series.points) {
        if (chart.percent) point.value *= 100;
        steps.add(point.step);
        if (drawable(point.value)) values.add(point.value);
      }
  }
};

}  // namespace

std::vector<double> round_ticks(double low, double high, int count, double least) {
  const double step = round_up(std::max(high / count - low / count, least));
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<Point> thin(const std::vector<Point>& points, int buckets) {
  if (Index(points.size()) <= 5 * Index(buckets)) return points;
  const double first = points.front().step, width = (points.back().step - first) / buckets;
  std::vector<Point> out;
  for (std::size_t begin = 0, end; begin < points.size(); begin = end) {
    const double limit = first + width * (std::floor((points[begin].step - first) / width) + 1);
    for (end = begin + 1; end < points.size() && points[end].step < limit;) ++end;
    constexpr std::size_t none = SIZE_MAX;
    std::size_t smallest = none, largest = none, start = none, stop = none, gap = none;
    for (std::size_t i = begin; i < end; ++i) {
      const double value = points[i].value;
      if (!drawable(value)) {
        if (gap == none) gap = i;
        continue;
      }
      if (start == none) start = smallest = largest = i;
      if (value < points[smallest].value) smallest = i;
      if (value > points[largest].value) largest = i;
      stop = i;
    }
    std::array<std::size_t, 5> kept = {start, smallest, largest, stop, gap};
    std::ranges::sort(kept);
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (kept[i] != none && (i == 0 || kept[i] != kept[i - 1])) out.push_back(points[kept[i]]);
  }
  return out;
}

std::vector<Point> smooth(const std::vector<Point>& points, int count) {
  const Index last = Index(points.size()) - 1, half = last / 80 + 2, stride = std::max<Index>(1, last / count);
  std::vector<Point> out;
  std::vector<double> window;
  for (Index i = last % stride; i <= last; i += stride) {
    Point point = points[std::size_t(i)];
    if (drawable(point.value)) {
      window.clear();
      for (Index j = i - std::min(half, i); j <= std::min(last, i + std::min(half, i)); ++j)
        if (drawable(points[std::size_t(j)].value)) window.push_back(points[std::size_t(j)].value);
      std::ranges::sort(window);
      const std::size_t cut = window.size() / 4;
      double sum = 0;
      for (std::size_t j = cut; j < window.size() - cut; ++j) sum += window[j];
      point.value = sum / double(window.size() - 2 * cut);
    }
    out.push_back(point);
  }
  return out;
}

Index Chart::curves() const {
  return std::ranges::count_if(series, [](const Series& s) { return !s.name.empty(); });
}

std::string chart_svg(const Chart& given, const std::string& attributes) {
  const Drawing drawing(given);
  if (drawing.values.empty()) return "";
  return picture(drawing.chart, drawing.steps, value_axis(drawing.values, drawing.chart), attributes);
}

std::string chart_html(const Chart& given) {
  const Drawing drawing(given);
  const Chart& chart = drawing.chart;
  std::string unit = chart.unit, body = "<p class=\"empty\">no values yet</p>\n";
  if (!drawing.values.empty()) {
    const Axis y = value_axis(drawing.values, chart);
    body = picture(chart, drawing.steps, y, "");
    if (y.log) unit += unit.empty() ? "log scale" : ", log scale";
  }
  return "<figure class=\"chart\">\n<figcaption><strong>" + escape(chart.title) + "</strong> " + escape(unit) +
         "</figcaption>\n" + legend(chart) + body + gaps_note(chart) + "</figure>\n";
}

}  // namespace flexformer
