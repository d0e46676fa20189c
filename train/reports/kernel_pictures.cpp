#include "train/reports/kernel_pictures.h"

#include <algorithm>
#include <cmath>

#include "train/reports/chart.h"
#include "train/reports/html.h"
#include "train/util/log.h"
#include "train/util/png.h"

namespace flexformer {
namespace {

constexpr double kPanelWidth = 250;  // of charts, see Chart::width
constexpr int kDirections = 3;       // along which a stationary kernel is drawn
constexpr Index kMapSize = 65, kCurvePoints = 81;

// What is said of a kind before its pictures.
std::string introduction(const AttentionKind& kind) {
  const std::string name = kind.name;
  if (!kind.is_linear) return "Softmax attention has no feature map: its weights are all there is to see.";
  if (kind.features == FeatureKind::polaformer)
    return "polaformer learns an exponent for each channel. Half of its values goes to keys of the query's sign, "
           "half to keys of the other sign, so it has two maps of weights.";
  if (!kind.learns_map)
    return name + "'s feature map has nothing that learns" +
           (weight_sets(kind.features) ? ": its projections stay as they were drawn" : "") +
           ". What can be seen are its weights.";
  if (kind.features == FeatureKind::trig_s)
    return "The frequencies w of each head learn. Their kernel depends on x - y alone: it is drawn against the "
           "distance, along the directions in which the head's own queries and keys spread most, beside the "
           "Gaussian exp(-r\u00b2/(2\u221ad)) that softmax contains. The axis ends at one and a half typical "
           "distances between a query and a key.";
  return std::string(kind.features == FeatureKind::trig_n ? "The pairs of frequencies w1, w2 of each head learn. "
                                                          : "The matrices w1, of queries, and w2, of keys, learn. ") +
         "Their kernel k(x, y) depends on where x and y are: it is drawn for x = su (down) and y = tu (across), "
         "u being the direction in which the head's own queries and keys spread most, as far as they reach (the "
         "number behind \u00b1).";
}

const char* const kDots =
    "Norms and directions: a dot for each row of w, its norm and the cosine of its angle to the start, by its "
    "norm at the start. ";
const char* const kMaps =
    "Maps of weights: a row for each query, from the first token at the top, a column for each key. White is 0, blue "
    "positive, orange negative (on dark pages black is 0); shades grow with the square root of the value, up to "
    "the same largest value in all maps of a head.";
const char* const kSoftmax =
    " Softmax: what softmax would make of the same queries and keys, to which a distilled kernel was to come close.";

// Whether w1 and w2 are rows of weights that learn.
bool draws_frequencies(const AttentionKind& kind) {
  return kind.learns_map && kind.features != FeatureKind::polaformer;
}

// 255 colours from orange (-1) over white (0) to blue (1), then grey for what is no number. Dark pages invert them.
std::string map_palette() {
  struct Colour {
    double red, green, blue;
  };
  const auto mix = [](Colour a, Colour b, double share) {
    std::string out;
    for (double Colour::*part : {&Colour::red, &Colour::green, &Colour::blue})
      out += char(std::lround(a.*part + (b.*part - a.*part) * share));
    return out;
  };
  std::string palette;
  for (int i = -127; i <= 127; ++i) {
    const Colour strong = i < 0 ? Colour{200, 86, 11} : Colour{31, 111, 181};
    const Colour darkest = i < 0 ? Colour{90, 34, 0} : Colour{8, 38, 76};
    const double size = std::abs(i) / 127.0;
    palette += size < 0.6 ? mix({255, 255, 255}, strong, size / 0.6) : mix(strong, darkest, (size - 0.6) / 0.4);
  }
  return palette + std::string(3, char(154));
}

std::string panel(const std::string& title, const std::string& unit, const std::string& body) {
  return "<figure class=\"chart\">\n<figcaption><strong>" + escape(title) + "</strong> " + escape(unit) +
         "</figcaption>\n" + body + "</figure>\n";
}

// Row-major values; `values` are the pixels of one map.
struct Map {
  std::string title;
  Index height, width;
  std::vector<float> values;

  double most() const {
    double most = 0;
    for (float value : values)
      if (std::isfinite(value)) most = std::max(most, std::abs(double(value)));
    return most;
  }
};

// Shades grow with the square root of a value's size, up to `most`.
std::string map_panel(const Map& map, double most) {
  static const std::string palette = map_palette();
  std::string pixels;
  double low = 0, high = 0;
  for (float value : map.values) {
    const bool finite = std::isfinite(value);
    const double size = finite && most > 0 ? 127 * std::sqrt(std::abs(double(value)) / most) : 0;
    pixels += char(finite ? 127 + std::lround(value < 0 ? -size : size) : 255);
    if (finite) low = std::min(low, double(value)), high = std::max(high, double(value));
  }
  const std::string range = low < 0 ? text(fixed(low, 2), " to ", fixed(high, 2)) : text("up to ", fixed(high, 2));
  return panel(map.title, range,
               html_image(encode_png({map.width, map.height, 1, pixels}, palette), map.title + ", " + range, "map"));
}

Chart small_chart(const std::string& title, const std::string& unit, const std::string& across) {
  return {.title = title, .unit = unit, .series = {}, .across = across, .whole = false, .width = kPanelWidth};
}

// Norms and directions of a head's w1 and w2, now against the start.
std::string frequency_panels(const MultiHeadAttention& layer, const MultiHeadAttention& start, Index head) {
  Chart norms = small_chart("Norms", "|w| now, by start", "at the start");
  Chart directions = small_chart("Directions", "cosine to start", "at the start");
  norms.from_zero = true;
  double largest = 0;
  const bool two = layer.w2.defined();
  for (const bool second : {false, true}) {
    if (second && !two) break;
    std::vector<Turn> all = turns((second ? start.w2 : start.w1).value(), (second ? layer.w2 : layer.w1).value(), head);
    std::ranges::sort(all, {}, &Turn::norm_before);
    Series norm{second ? "w2" : two ? "w1" : "w", {}, second, true}, direction = norm;
    for (const Turn& turn : all) {
      norm.points.push_back({turn.norm_before, turn.norm});
      direction.points.push_back({turn.norm_before, turn.cosine});
      largest = std::max(largest, turn.norm_before);
    }
    norms.series.push_back(std::move(norm));
    directions.series.push_back(std::move(direction));
  }
  norms.series.push_back({"unchanged", {{0, 0}, {largest, largest}}, 7});
  directions.series.push_back({"unchanged", {{0, 1}, {largest, 1}}, 7});
  return chart_html(norms) + chart_html(directions);
}

// [1,H,N,d] with row i of this head = scale_i * direction, zeros elsewhere.
Tensor along(const MultiHeadAttention& layer, Index head, const std::vector<float>& direction,
             const std::vector<double>& scales) {
  const Index N = Index(scales.size()), d = layer.head_size;
  Tensor x = Tensor::zeros({1, layer.heads, N, d});
  for (Index i = 0; i < N; ++i)
    for (Index c = 0; c < d; ++c)
      x.data()[(head * N + i) * d + c] = float(scales[std::size_t(i)]) * direction[std::size_t(c)];
  return x;
}

std::vector<double> evenly(double from, double to, Index count) {
  std::vector<double> out;
  for (Index i = 0; i < count; ++i) out.push_back(from + (to - from) * double(i) / double(count - 1));
  return out;
}

std::string distance_panel(const LayerSight& sight, Index head) {
  const MultiHeadAttention& layer = *sight.layer;
  const std::vector<double> distances = evenly(0, std::max(1.5 * typical_distance(sight, head), 1e-3), kCurvePoints);
  Chart chart = small_chart("Kernel", "k(x, y), by |x - y|", "distance");
  const char* const names[kDirections] = {"widest spread", "second", "third"};
  int colour = 0;
  for (const Spread& spread : spreads(sight, head, kDirections)) {
    const Tensor k = kernel_values(layer, along(layer, head, spread.direction, distances),
                                   along(layer, head, spread.direction, {0}));
    Series series{names[colour], {}, colour};
    for (Index i = 0; i < kCurvePoints; ++i)
      series.points.push_back({distances[std::size_t(i)], double(k.data()[head * kCurvePoints + i])});
    chart.series.push_back(std::move(series));
    ++colour;
  }
  Series gaussian{"Gaussian", {}, 15};
  for (double r : distances)
    gaussian.points.push_back({r, std::exp(-r * r / (2 * std::sqrt(double(layer.head_size))))});
  chart.series.push_back(std::move(gaussian));
  return chart_html(chart);
}

std::string plane_panel(const LayerSight& sight, Index head) {
  const MultiHeadAttention& layer = *sight.layer;
  const Spread spread = spreads(sight, head, 1)[0];
  const Tensor x = along(layer, head, spread.direction, evenly(-spread.reach, spread.reach, kMapSize));
  const Tensor k = kernel_values(layer, x, x);
  const float* first = k.data() + head * kMapSize * kMapSize;
  const Map map{
      text("Kernel \u00b1", fixed(spread.reach, 2)), kMapSize, kMapSize, {first, first + kMapSize * kMapSize}};
  return map_panel(map, map.most());
}

// Of the batch's first text, without its padding: the columns from `first` on.
Map weights_map(const std::string& title, const LayerSight& sight, const Tensor& weights, Index head, Index first) {
  const Index T = sight.q.size(2), columns = weights.size(3);
  Index length = T;
  if (const Tensor& mask = sight.mask.key_mask; mask.defined()) length = std::count(mask.ints(), mask.ints() + T, 1);
  Map map{title, length, length, {}};
  for (Index i = 0; i < length; ++i) {
    const float* row = weights.data() + (head * T + i) * columns + first;
    map.values.insert(map.values.end(), row, row + length);
  }
  return map;
}

std::string weight_panels(const LayerSight& sight, const Tensor& own, const Tensor& softmax, Index head) {
  const Index T = sight.q.size(2);
  std::vector<Map> maps;
  if (own.size(3) == 2 * T) {
    maps.push_back(weights_map("Weights, same sign", sight, own, head, 0));
    maps.push_back(weights_map("Weights, other sign", sight, own, head, T));
  } else {
    maps.push_back(weights_map("Weights", sight, own, head, 0));
  }
  if (softmax.defined()) maps.push_back(weights_map("Softmax", sight, softmax, head, 0));
  double most = 0;
  for (const Map& map : maps) most = std::max(most, map.most());
  std::string out;
  for (const Map& map : maps) out += map_panel(map, most);
  return out;
}

// "e^-tau 0.177 at the start, 0.214 now · 12 % of rows on the floor of 0.05"
std::string figures(const LayerSight& sight, const MultiHeadAttention& start, const Tensor& own, Index head) {
  const MultiHeadAttention& layer = *sight.layer;
  std::string out;
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : " \u00b7 ") + words; };
  if (layer.tau.defined()) {
    const auto factor = [&](const Var& tau) { return fixed(std::exp(-double(tau.value().data()[head])), 4); };
    add(text("keys weigh exp(|k|\u00b2 e^-\u03c4), e^-\u03c4 = ", factor(start.tau), " at the start, ",
             factor(layer.tau), " now"));
  }
  if (layer.kind->features == FeatureKind::polaformer) {
    const float* w = layer.w1.value().data() + head * layer.head_size;
    const auto [least, most] = std::minmax_element(w, w + layer.head_size);
    const auto exponent = [](float x) { return fixed(1 + 4 / (1 + std::exp(-double(x))), 2); };
    add(text("exponents from ", exponent(*least), " to ", exponent(*most), " (3 at the start)"));
  }
  if (layer.kind->is_linear && layer.floor > 1e-3f)
    add(text(fixed(100 * floored_share(sight, own, head), 0), " % of rows on the floor of ", fixed(layer.floor, 3)));
  add(text("typical |q - k| ", fixed(typical_distance(sight, head), 2)));
  return out;
}

std::string layer_html(const LayerSight& sight, const MultiHeadAttention& start, std::size_t number) {
  const MultiHeadAttention& layer = *sight.layer;
  const AttentionKind& kind = *layer.kind;
  const Tensor own = attention_weights(sight, false);
  const Tensor softmax = kind.is_linear ? attention_weights(sight, true) : Tensor();
  const bool frequencies = draws_frequencies(kind);
  std::string out = text("<details open=\"\"><summary>Layer ", number, "</summary>\n");
  for (Index head = 0; head < layer.heads; ++head) {
    out += text("<h3>Layer ", number, ", head ", head + 1, "</h3>\n<p class=\"note\">",
                escape(figures(sight, start, own, head)), "</p>\n<div class=\"panels\">\n");
    if (frequencies) out += frequency_panels(layer, start, head);
    out += weight_panels(sight, own, softmax, head);
    if (frequencies)
      out += kind.features == FeatureKind::trig_s ? distance_panel(sight, head) : plane_panel(sight, head);
    out += "</div>\n";
  }
  return out + "</details>\n";
}

}  // namespace

std::string kernels_html(const KernelReading& reading) {
  const AttentionKind& kind = *reading.model.blocks.front().attention.kind;
  std::string out = "<section>\n<h2>Kernels</h2>\n<p>" + introduction(kind) + "</p>\n";
  if (!reading.note.empty()) out += "<p>" + escape(reading.note) + "</p>\n";
  out += text("<p class=\"soft\">", draws_frequencies(kind) ? kDots : "", kMaps, kind.is_linear ? kSoftmax : "",
              " The text read:</p>\n<pre>\n", escape(reading.text), "</pre>\n");
  for (std::size_t i = 0; i < reading.sights.size(); ++i)
    out += layer_html(reading.sights[i], reading.start.blocks[i].attention, i + 1);
  return out + "</section>\n";
}

}  // namespace flexformer
