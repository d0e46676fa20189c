// figure_efficiency: time and memory of an encoder against the length N of its text, for every kind of attention: the
// paper's figure 2 on this machine, as JSON, tables and a picture. Softmax comes twice, in tiles as it is everywhere in
// this project, and as plain ops with all N x N weights in memory, which most implementations still are.
//
// One text at a time, whatever its length: on logarithmic axes the slope then says how cost grows with N, 1 for linear
// and 2 for quadratic, and a batch would only multiply all figures alike.
#include <algorithm>
#include <cmath>
#include <memory>
#include <ranges>

#include "nn/transformer.h"
#include "tensor/parallel.h"
#include "tests/bench/bench_measure.h"
#include "train/models/model_options.h"
#include "train/models/option_lists.h"
#include "train/reports/chart.h"
#include "train/reports/html.h"
#include "train/util/files.h"
#include "train/util/log.h"
#include "train/util/program.h"

namespace flexformer::bench {
namespace {

// The paper's Retrieval (train/configs/lra-retrieval.json) with two of its four layers.
constexpr Index kDim = 128, kLayers = 2, kHeads = 4, kFfn = 512, kFeatures = 64;
constexpr Index kPaperLength = 4000;
constexpr const char* kPlain = "softmax_plain";

struct Subject {
  std::string name;
  const AttentionKind* kind;
  bool plain;
  int colour;  // of Series
};

// Plain softmax is drawn like softmax, but dashed; so is the kind that colours do not suffice for.
std::vector<Subject> all_subjects() {
  std::vector<Subject> subjects = {{kPlain, &attention_kind("softmax"), true, 8}};
  for (const AttentionKind& kind : attention_kinds()) {
    const int index = int(subjects.size()) - 1;
    subjects.push_back({kind.name, &kind, false, index < 8 ? index : 15});
  }
  return subjects;
}

TransformerOptions options_of(const AttentionKind& kind, Index N) {
  return {
      .dim = kDim,
      .layers = kLayers,
      .ffn = kFfn,
      .attention = {
          .kind = kind.name, .heads = kHeads, .features = kFeatures, .floor = kind.classifier_floor, .max_length = N}};
}

// softmax_self_attention() from other ops.
Var plain_attention(const MultiHeadAttention& layer, const Var& qkv) {
  const Var q = scale(layer.heads_of(qkv, 0), 1 / std::sqrt(float(layer.head_size)));
  const Var weights = softmax(matmul(q, layer.heads_of(qkv, 1), false, true), -1);
  return reshape(permute(matmul(weights, layer.heads_of(qkv, 2)), {0, 2, 1, 3}), {1, qkv.size(1), kDim});
}

struct Encoder {
  Encoder(const Subject& subject, Index N)
      : plain(subject.plain),
        transformer(Scope(parameters, random), options_of(*subject.kind, N), Initialisation::xavier()),
        x(random_tensor({1, N, kDim}, 1), true),
        dy(random_tensor({1, N, kDim}, 2)) {}

  Var forward() const {
    if (!plain) return transformer.forward(x, {}, {});
    Var h = x;
    for (const Block& block : transformer.blocks) {
      const MultiHeadAttention& attention = block.attention;
      h = attention.out.forward(plain_attention(attention, attention.project(block.norm1.forward(h))), h);
      h = block.mlp.forward(block.norm2.forward(h), h);
    }
    return transformer.norm->forward(h);
  }
  void train() const {
    parameters.clear_grads();
    x.clear_grad();
    Tape tape;
    tape.backward(forward(), dy);
  }

  bool plain;
  Random random{1};
  Parameters parameters{target};
  Transformer transformer;
  Var x;
  Tensor dy;
};

struct Row {
  Subject subject;
  Index N;
  double forward_ms, training_ms, forward_bytes, training_bytes;
};

Row measure_row(const Subject& subject, Index N, int repeats) {
  Row row{subject, N, 0, 0, 0, 0};
  for (const bool training : {false, true}) {
    const auto prepare = [&subject, N, training]() -> Call {
      const auto encoder = std::make_shared<Encoder>(subject, N);
      if (training) return [encoder] { encoder->train(); };
      return [encoder] { encoder->forward(); };
    };
    const Measurement m = measure({subject.name, double(N), repeats, 0.05, prepare});
    (training ? row.training_ms : row.forward_ms) = 1e3 * median(m.seconds);
    (training ? row.training_bytes : row.forward_bytes) = double(m.peak_tensor_bytes);
  }
  return row;
}

// What plain softmax needs at least: the weights of each layer, kept, and three more such tensors on the way back.
Index plain_bytes(Index N) { return Index(sizeof(float)) * (kLayers + 3) * kHeads * N * N; }

struct Quantity {
  const char *title, *unit;
  double Row::*value;
  double factor;  // from the row's unit to that of the table
  int decimals;
};
constexpr Quantity quantities[] = {{"Forward", "ms", &Row::forward_ms, 1, 1},
                                   {"Training: forward and backward", "ms", &Row::training_ms, 1, 1},
                                   {"Peak memory in training", "MB", &Row::training_bytes, 1e-6, 1}};

const Row* find(const std::vector<Row>& rows, const std::string& name, Index N) {
  const auto found = std::ranges::find_if(rows, [&](const Row& r) { return r.subject.name == name && r.N == N; });
  return found == rows.end() ? nullptr : &*found;
}

std::string table(const std::vector<Row>& rows, const std::vector<Subject>& subjects, const std::vector<Index>& lengths,
                  const Quantity& quantity) {
  std::string out = text("\n", quantity.title, ", ", quantity.unit, "\n", cell("N", 16));
  for (const Index N : lengths) out += cell(N, 11);
  for (const Subject& subject : subjects) {
    out += text("\n", cell(subject.name, 16));
    for (const Index N : lengths) {
      const Row* row = find(rows, subject.name, N);
      out += row ? cell(row->*quantity.value * quantity.factor, quantity.decimals, 11) : cell("-", 11);
    }
  }
  return out + "\n";
}

// "5.10 times as fast in training as softmax, in 3 % less memory"
std::string against(const Row& row, const Row& other, const std::string& name) {
  const double memory = 100 * (row.training_bytes / other.training_bytes - 1);
  return text(fixed(other.training_ms / row.training_ms, 2), " times as fast in training as ", name, ", in ",
              fixed(std::abs(memory), 0), " % ", memory < 0 ? "less" : "more", " memory");
}

// The paper's claim, tried at the measured length that is nearest to the paper's.
std::string ratios(const std::vector<Row>& rows, const std::vector<Index>& lengths) {
  const Index N = *std::ranges::min_element(lengths, {}, [](Index n) { return std::abs(n - kPaperLength); });
  std::string out;
  for (const char* name : {"flexformer_s", "flexformer_n"}) {
    const Row *row = find(rows, name, N), *tiled = find(rows, "softmax", N), *plain = find(rows, kPlain, N);
    if (!row || !(tiled || plain)) continue;
    out += text("At N = ", grouped(N), " ", name, " is ");
    if (tiled) out += against(*row, *tiled, "softmax in tiles");
    if (tiled && plain) out += "; ";
    if (plain) out += against(*row, *plain, "softmax from plain ops");
    out += ".\n";
  }
  return out.empty() ? out : out + "The paper, on a GPU at N = 4,000: 2.6 times as fast as softmax, in 84 % less.\n";
}

Json to_json(const std::vector<Row>& rows) {
  Json out = Json::array();
  for (const Row& row : rows)
    out.push_back({{"attention", row.subject.name},
                   {"N", row.N},
                   {"forward_ms", row.forward_ms},
                   {"training_ms", row.training_ms},
                   {"forward_peak_bytes", Index(row.forward_bytes)},
                   {"training_peak_bytes", Index(row.training_bytes)}});
  return out;
}

// Three charts beside each other under one legend, a file of its own.
std::string picture(const std::vector<Row>& rows, const std::vector<Subject>& subjects, const std::string& heading) {
  constexpr double width = 420, gap = 20, left = 16, total = 3 * width + 2 * gap + 2 * left, row_height = 22;
  std::string legend, charts;
  double x = left, y = 58;
  for (const Subject& subject : subjects) {
    const double size = 40 + 7.2 * double(subject.name.size());
    if (x + size > total - left) x = left, y += row_height;
    legend +=
        text("<path class=\"line c", subject.colour % 8, subject.colour >= 8 ? " dashed" : "", "\" d=\"M", x, ",", y,
             "h22\"/><text class=\"name\" x=\"", x + 28, "\" y=\"", y, "\">", escape(subject.name), "</text>\n");
    x += size;
  }
  y += 34;
  for (std::size_t i = 0; i < std::size(quantities); ++i) {
    const Quantity& quantity = quantities[i];
    Chart chart{.title = quantity.title,
                .unit = quantity.unit,
                .series = {},
                .may_be_log = true,
                .across = "N",
                .log_across = true,
                .width = width};
    // In reverse, for softmax and Flexformer to lie on top where lines coincide.
    for (const Subject& subject : std::views::reverse(subjects)) {
      chart.series.push_back({subject.name, {}, subject.colour});
      for (const Row& row : rows)
        if (row.subject.name == subject.name)
          chart.series.back().points.push_back({double(row.N), row.*quantity.value * quantity.factor});
    }
    const double from = left + double(i) * (width + gap);
    charts += text("<text class=\"title\" x=\"", from, "\" y=\"", y, "\">", quantity.title, ", ", quantity.unit,
                   " by N</text>\n") +
              chart_svg(chart, text(" x=\"", from, "\" y=\"", y + 8, "\" width=\"", width, "\" height=\"", kChartHeight,
                                    "\""));
  }
  const double height = y + 8 + kChartHeight + 10;
  return text("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", total, " ", height, "\" width=\"", total,
              "\" height=\"", height, "\">\n<style>", chart_style(),
              "text { font-family: system-ui, \"Segoe UI\", Roboto, Helvetica, Arial, sans-serif }\n"
              ".paper { fill: var(--paper) } .name { dominant-baseline: central }\n"
              ".title { font-size: 14px; font-weight: 600; fill: var(--ink) }\n</style>\n"
              "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"",
              left, "\" y=\"28\">", escape(heading), "</text>\n", legend, charts, "</svg>\n");
}

std::vector<Row> measure_all(const std::vector<Subject>& subjects, const std::vector<Index>& lengths, int repeats,
                             Console& console) {
  std::vector<Row> rows;
  for (const Index N : lengths)
    for (const Subject& subject : subjects) {
      if (subject.plain && plain_bytes(N) > available_bytes() / 2) {
        console.say(text(kPlain, " at N = ", grouped(N), ": left out, it needs ", megabytes(plain_bytes(N)), " of ",
                         megabytes(available_bytes()), " that are available, half of which may be used"));
        continue;
      }
      rows.push_back(measure_row(subject, N, repeats));
      const Row& row = rows.back();
      console.say(text("N", cell(N, 7), cell(subject.name, 15), "  forward", cell(row.forward_ms, 1, 10),
                       " ms  training", cell(row.training_ms, 1, 10), " ms ",
                       memory_cell(Index(row.training_bytes), 9)));
    }
  return rows;
}

int run(Options& options) {
  target = use_machine_options(options);
  std::vector<std::string> names;
  for (const Subject& subject : all_subjects()) names.push_back(subject.name);
  std::vector<Subject> subjects;
  const std::vector<std::string> wanted = chosen_words(options, "kinds", names);
  for (const Subject& subject : all_subjects())
    if (std::ranges::find(wanted, subject.name) != wanted.end()) subjects.push_back(subject);
  std::vector<Index> lengths = whole_numbers(options, "lengths", 1);
  std::ranges::sort(lengths);
  if (lengths.back() > Index(1) << 20) throw UsageError(text("lengths: ", lengths.back(), " is more than 1,048,576"));

  Console console;
  const std::string heading = text("Encoder of ", kLayers, " layers, ", kDim, " channels, ", kHeads,
                                   " heads, n = ", kFeatures, ", one text of N tokens; ",
                                   target == Device::cuda ? "a GPU"
                                   : threads() == 1       ? "1 thread (CPU time)"
                                                          : text(threads(), " threads (wall-clock time)"));
  console.say(heading);
  const std::vector<Row> rows = measure_all(subjects, lengths, int(options.integer("repeats")), console);
  std::string tables;
  for (const Quantity& quantity : quantities) tables += table(rows, subjects, lengths, quantity);
  tables += text("\n", ratios(rows, lengths));
  console.say(tables);
  const std::string& out = options.text("out");
  write_json_atomic(out + ".json", {{"setting", heading}, {"threads", threads()}, {"rows", to_json(rows)}});
  write_file_atomic(out + ".txt", heading + "\n" + tables);
  write_file_atomic(out + ".svg", picture(rows, subjects, heading));
  console.say(text("written to ", out, ".json, .txt and .svg"));
  return 0;
}

}  // namespace
}  // namespace flexformer::bench

int main(int argc, char** argv) {
  using namespace flexformer;
  Options options("figure_efficiency",
                  "Draws time and memory of every kind of attention against the length of the text.");
  options.add_path("out", "figure-efficiency", "files to write: this name with .json, .txt and .svg");
  options.add_text("kinds", "all", "kinds of attention, separated by commas; softmax_plain: from plain ops");
  options.add_text("lengths", "256,512,1024,2048,4000,8192,16384",
                   "tokens of the text, separated by commas; softmax_plain is left out where memory does not suffice");
  options.add_integer("repeats", 3, {.min = 1, .max = 1000, .help = "figures that a median is taken of"});
  add_machine_options(options);
  options.set("threads", std::int64_t(1));
  options.set("device", std::string("cpu"));
  return run_program(options, argc, argv, bench::run);
}
