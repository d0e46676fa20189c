// Line charts as inline SVG. A chart is drawn once, at one size in its own units, and scaled by the page; a curve is
// cut down to what can be seen at that size in a way that never loses a peak.
#pragma once
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace flexformer {

struct Point {
  double step, value;
};

struct Series {
  std::string name;           // in the legend; empty: drawn faintly behind the others, without an entry
  std::vector<Point> points;  // by rising step; a value that is not finite (or beyond 1e100) leaves a gap
  int colour = 0;             // 8 colours, then the same ones dashed
  bool scattered = false;     // points alone, without a line between them
};

struct Chart {
  std::string title, unit;  // "Loss", "nats per token"
  std::vector<Series> series;
  bool from_zero = false;   // the axis begins at 0
  bool may_be_log = false;  // logarithmic where the values are positive and the largest is over 20 times the smallest
  bool percent = false;     // values are shares, shown times 100

  std::string across = "step";  // what the horizontal axis counts, from 0 ..
  bool whole = true;            // .. in whole numbers
  bool log_across = false;      // logarithmic from the first step on, which must be positive
  double width = 480;           // of the picture in its own units, in which letters are 12 high

  Index curves() const;  // that have a name
};

// <figure> with title, legend, picture, and a sentence about the values that left gaps.
std::string chart_html(const Chart& chart);
// The picture alone, an <svg> element with these attributes; "" if there is no value. chart_style() of html.h draws it.
std::string chart_svg(const Chart& chart, const std::string& attributes = "");
inline constexpr double kChartHeight = 252;  // in the same units as Chart::width

// Multiples of 1, 2 or 5 times a power of ten within [low, high], about `count` of them, at least `least` apart.
// Needs low < high.
std::vector<double> round_ticks(double low, double high, int count, double least = 0);

// The points in at most `buckets` equal spans of steps; of each span the first, smallest, largest and last value, and
// the first that leaves a gap. So the curve through the rest covers the same pixels, peaks and gaps included.
std::vector<Point> thin(const std::vector<Point>& points, int buckets);

// About `count` of the points, the last among them, each with the mean of the middle half of its neighbours, which no
// spike moves; a fortieth of the curve counts as neighbours. Near the start they are as few as keeps them centred, so
// that a curve which falls fast is not shown late; at the end, where curves are flat, they are on one side. A gap
// stays.
std::vector<Point> smooth(const std::vector<Point>& points, int count = 480);

}  // namespace flexformer
