// Charts: what is drawn, what is left out of a curve of many points and what never is, and the numbers beside it.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "tests/train/util/html_check.h"
#include "train/reports/chart.h"
#include "train/reports/html.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

std::vector<Point> line(Index points, const std::function<double(Index)>& value) {
  std::vector<Point> out;
  for (Index i = 0; i < points; ++i) out.push_back({double(i), value(i)});
  return out;
}

Chart chart_of(const std::vector<Point>& points) {
  return {.title = "Loss", .unit = "nats", .series = {{"train", points}}};
}

}  // namespace

TEST_CASE("any bytes become text that HTML allows and that says the same") {
  CHECK(escape("<a href=\"x\">'&amp;'</a>") == "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;");
  CHECK(escape("é ω 🙂\t\n") == "é ω 🙂\t\n");
  CHECK(escape("a\r\n") == "a&#13;\n");
  CHECK(escape(std::string_view("a\0b\x01\x7f", 5)) == "a\uFFFDb\uFFFD\uFFFD");
  CHECK(escape("\xff\xc3") == "\uFFFD\uFFFD");
  CHECK(escape("\xc2\x85") == "\uFFFD");  // a control character of Latin-1
}

TEST_CASE("ticks are 1, 2 or 5 times a power of ten apart, inside their range and about as many as asked for") {
  struct Row {
    double low, high;
  };
  for (const Row& row : {Row{0, 1}, Row{0, 1500}, Row{0.4588, 4.58}, Row{-3, 7}, Row{1e-6, 3e-6}, Row{99.2, 99.9},
                         Row{0, 1e90}, Row{0, 7}}) {
    const double low = row.low, high = row.high;
    CAPTURE(high);
    const std::vector<double> ticks = round_ticks(low, high, 5);
    REQUIRE(ticks.size() >= 2);
    CHECK(ticks.size() <= 7);
    const double step = ticks[1] - ticks[0], power = std::pow(10, std::floor(std::log10(step) + 1e-6));
    const double factor = step / power;
    CHECK((std::abs(factor - 1) < 1e-6 || std::abs(factor - 2) < 1e-6 || std::abs(factor - 5) < 1e-6));
    for (double tick : ticks) {
      CHECK(tick >= low - 1e-9 * step);
      CHECK(tick <= high + 1e-9 * step);
      CHECK(std::abs(tick / step - std::round(tick / step)) < 1e-6);
    }
  }
  CHECK(round_ticks(0, 2, 5, 1) == std::vector<double>{0, 1, 2});  // no half steps
}

TEST_CASE("thinning keeps both ends, every extreme and every gap, in order, and bounds the number of points") {
  std::vector<Point> points = line(100000, [](Index i) { return std::sin(double(i) / 5000); });
  points[31415].value = 50;
  points[27182].value = -50;
  points[60000].value = kNan;
  const std::vector<Point> thinned = thin(points, 400);
  CHECK(thinned.size() <= 5 * 401);
  CHECK(thinned.size() >= 800);
  CHECK(thinned.front().step == 0);
  CHECK(thinned.back().step == 99999);
  std::map<double, double> kept;
  for (std::size_t i = 0; i < thinned.size(); ++i) {
    if (i > 0) REQUIRE(thinned[i].step > thinned[i - 1].step);
    kept[thinned[i].step] = thinned[i].value;
  }
  CHECK(kept[31415] == 50);
  CHECK(kept[27182] == -50);
  CHECK(std::isnan(kept[60000]));
  CHECK(thin(line(100, [](Index i) { return double(i); }), 400).size() == 100);
  CHECK(thin({}, 400).empty());
  CHECK(thin(line(5000, [](Index) { return kNan; }), 10).size() <= 11);
}

TEST_CASE("smoothing has no delay, no trace of a spike, gaps where they are, and few points of many") {
  const std::vector<Point> straight = line(300, [](Index i) { return 3.0 * double(i); });
  const std::vector<Point> same = smooth(straight, 1000);
  REQUIRE(same.size() == 300);
  for (Index i = 0; i < 290; ++i) CHECK(same[std::size_t(i)].value == doctest::Approx(3.0 * double(i)));
  CHECK(same.back().value < 3.0 * 299);  // half a neighbourhood
  std::vector<Point> broken = line(200, [](Index) { return 2.0; });
  broken[50].value = 1000;
  broken[120].value = kInfinity;
  const std::vector<Point> smoothed = smooth(broken, 1000);
  for (Index i = 0; i < 200; ++i) CHECK(smoothed[std::size_t(i)].value == (i == 120 ? kInfinity : 2.0));
  const std::vector<Point> few = smooth(line(100003, [](Index i) { return double(i); }), 480);
  CHECK(few.size() >= 480);
  CHECK(few.size() <= 490);
  CHECK(few.back().step == 100002);
}

TEST_CASE("values that are not finite leave gaps, a point between two gaps is a dot, and a sentence counts them") {
  const std::string html =
      chart_html(chart_of({{0, 4}, {1, 3}, {2, kNan}, {3, 2}, {4, -kInfinity}, {5, 1e300}, {6, 1}}));
  const std::string path = between(html, "data-entry=\"0\" d=\"", "\"");
  CHECK(count(path, "M") == 3);
  CHECK(count(path, "L") == 1);
  CHECK(count(path, "h0") == 2);  // the points of steps 3 and 6
  CHECK(contains(html, "3 values of train are not drawn: the first is nan at step 2."));
  CHECK_FALSE(contains(html, "nan,"));
  CHECK(contains(chart_html(chart_of({{0, 1}, {7, 1e300}})), "1 value of train is not drawn: beyond 1e100 at step 7."));
  CHECK_FALSE(contains(chart_html(chart_of({{0, 1}, {1, 2}})), "not drawn"));
}

TEST_CASE("charts of nothing, of one point and of equal, tiny or huge values have numbers for coordinates") {
  CHECK(contains(chart_html(chart_of({})), "no values yet"));
  CHECK(contains(chart_html(chart_of({{3, kNan}})), "no values yet"));
  for (double value : {0.0, 1.0, -5.0, 5e-324, 1e-90, 1e99, -1e99, 1.0000001})
    for (Index points : {1, 2}) {
      CAPTURE(value);
      Chart chart = chart_of(line(points, [&](Index) { return value; }));
      for (int kind = 0; kind < (std::abs(value) > 1.1 ? 3 : 4); ++kind) {
        chart.from_zero = kind == 1, chart.may_be_log = kind == 2, chart.percent = kind == 3;
        const std::string html = chart_html(chart);
        CHECK_FALSE(contains(html, "nan"));
        CHECK_FALSE(contains(html, "inf"));
        CHECK(count(html, "class=\"y\"") >= 2);
        if (kind < 3) CHECK(count(html, "h0") >= 1);
      }
    }
  const std::string wide = chart_html(chart_of({{0, 1e99}, {1000000, -1e99}}));
  CHECK_FALSE(contains(wide, "inf"));
  CHECK(contains(wide, ">1.0e99</text>"));
  CHECK(contains(wide, ">1,000,000</text>"));
}

TEST_CASE("labels of axes are as short as tells them apart") {
  CHECK(contains(chart_html(chart_of({{0, 2.00001}, {1, 2.00003}})), ">2.000020</text>"));
  CHECK(contains(chart_html(chart_of({{0, 0}, {1, 2e-4}})), ">1.5e-4</text>"));
  CHECK(contains(chart_html(chart_of({{0, 0}, {1, 2e-4}})), ">5e-5</text>"));
  CHECK(contains(chart_html(chart_of({{0, 0}, {1, 0.001}})), ">0.0002</text>"));
  CHECK(contains(chart_html(chart_of({{0, 0}, {1, 180000}})), ">150,000</text>"));
}

TEST_CASE("an axis is logarithmic only where the chart allows it and positive values need it") {
  Chart chart = chart_of({{0, 97}, {1, 2}});
  CHECK_FALSE(contains(chart_html(chart), "log scale"));
  chart.may_be_log = true;
  CHECK(contains(chart_html(chart), "nats, log scale"));
  CHECK(contains(chart_html(chart), ">100</text>"));
  chart.series[0].points[1].value = 0;
  CHECK_FALSE(contains(chart_html(chart), "log scale"));
}

TEST_CASE("colours repeat dashed after eight, and only named curves are in the legend") {
  Chart chart = chart_of({{0, 1}, {1, 2}});
  chart.series.push_back({"", {{0, 1}}, 0});
  chart.series.push_back({"<b>", {{0, 1}}, 9});
  const std::string legend = between(chart_html(chart), "<p class=\"legend\">", "</p>");
  CHECK(legend ==
        "<span><i class=\"c0\"></i>train <b></b></span> <span><i class=\"c1 dashed\"></i>&lt;b&gt; <b></b></span> "
        "<span class=\"at\"></span>");
}

TEST_CASE(
    "a horizontal axis counts what it is told to, in fractions or in powers of ten, and scattered points have no "
    "line") {
  Chart chart = chart_of({{100, 1}, {1000, 2}, {10000, 4}});
  chart.across = "N";
  chart.log_across = true;
  chart.width = 320;
  const std::string svg = chart_svg(chart, " x=\"7\"");
  CHECK(svg.starts_with("<svg x=\"7\" viewBox=\"0 0 320 252\" role=\"img\" aria-label=\"Loss by N\""));
  CHECK(contains(chart_html(chart), svg.substr(11)));
  CHECK(contains(svg, "data-axes=\"100 10000 1 4 log linear\""));
  CHECK(contains(svg, ">N</text>"));  // the axis has its name
  const std::string path = between(svg, "data-entry=\"0\" d=\"", "\"");
  const double from = std::stod(path.substr(1)), middle = std::stod(path.substr(path.find('L') + 1)),
               to = std::stod(path.substr(path.rfind('L') + 1));
  CHECK(to == 300);
  CHECK(middle == doctest::Approx((from + to) / 2).epsilon(1e-4));
  CHECK(contains(chart_svg(chart_of({{5, 1}})), "data-across=\"step\" data-whole=\"\""));
  CHECK(chart_svg(chart_of({})) == "");

  chart = chart_of({{0.1, 1}, {0.4, 2}});
  chart.whole = false;
  chart.series[0].scattered = true;
  const std::string scattered = chart_svg(chart);
  CHECK(contains(scattered, ">0.2</text>"));
  CHECK(count(scattered, "class=\"line") == 0);
  CHECK(count(between(scattered, "class=\"dots small c0\" d=\"", "\""), "h0") == 2);
  chart.series[0].points[1].value = kNan;
  CHECK(contains(chart_html(chart), "1 value of train is not drawn: nan at step 0.400."));
  chart.log_across = true;
  chart.series[0].points = {{0.1, 1}};
  CHECK_FALSE(contains(chart_svg(chart), "nan"));
}
