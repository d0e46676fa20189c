#include "train/training/regression_task.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

Var squared_error(const Tensor& wanted, const Var& outputs) {
  const Var total = sum(square(outputs - Var(wanted)));
  return wanted.size(1) == 1 ? total : scale(total, 1 / float(wanted.size(1)));
}

// What a row wants of an output, in units of the deviation.
float wanted_of(const EncodedText& row, Index output) {
  return row.values.empty() ? row.number : row.values[std::size_t(output)];
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t first = 0, end; first < order.size(); first = end) {
    for (end = first + 1; end < order.size() && values[order[end]] == values[order[first]];) ++end;
    for (std::size_t i = first; i < end; ++i) out[order[i]] = double(first + end - 1) / 2;
  }
  return out;
}

}  // namespace

double pearson(std::span<const double> x, std::span<const double> y) {
  check("pearson", x.size() == y.size(), x.size(), " values and ", y.size(), " others");
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xx > 0 && yy > 0 ? xy / (std::sqrt(xx) * std::sqrt(yy)) : 0;
}

double spearman(std::span<const double> x, std::span<const double> y) { return pearson(ranks(x), ranks(y)); }

Tensor RegressionTask::labels(std::span<const Index> rows) const {
  const Index outputs = labels_.outputs();
  Tensor wanted = Tensor::empty({Index(rows.size()), outputs});
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (Index k = 0; k < outputs; ++k)
      wanted.data()[Index(i) * outputs + k] = wanted_of(train_.rows[std::size_t(rows[i])], k);
  return wanted;
}

Var RegressionTask::loss_sum(const Batch& batch, const Pass& pass) {
  const Var given = outputs(batch, pass);
  return with_teacher(squared_error(batch.back().to(given.device()), given), given, batch, squared_error);
}

Figures RegressionTask::figures(const EncodedTexts& texts, const Pass& pass) const {
  const Index outputs = labels_.outputs();
  std::vector<std::vector<double>> given, wanted;  // of each output, in units of the deviation
  given.resize(std::size_t(outputs));
  wanted.resize(std::size_t(outputs));
  for (const std::vector<Index>& rows : length_groups(texts, kEvaluationTokens)) {
    if (stop_signal()) throw Stopped{};
    const Tensor values = classify(model_, texts, rows, pass).value().to(Device::cpu);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (Index k = 0; k < outputs; ++k) {
        given[std::size_t(k)].push_back(double(values.data()[Index(i) * outputs + k]));
        wanted[std::size_t(k)].push_back(double(wanted_of(texts.rows[std::size_t(rows[i])], k)));
      }
  }
  double loss = 0, mse = 0, linear = 0, ranked = 0;
  std::string table;
  for (Index k = 0; k < outputs; ++k) {
    const std::vector<double>&g = given[std::size_t(k)], &w = wanted[std::size_t(k)];
    double error = 0;
    for (std::size_t i = 0; i < g.size(); ++i) error += (g[i] - w[i]) * (g[i] - w[i]) / double(g.size());
    const double deviation = labels_.value(k).deviation, share = 1 / double(outputs);
    loss += error * share;
    mse += error * deviation * deviation * share;
    linear += pearson(g, w) * share;
    ranked += spearman(g, w) * share;
    if (outputs > 1)
      table += text(printable(labels_.name(k)), ": mean squared error ", fixed(error * deviation * deviation, 4),
                    ", Pearson ", fixed(pearson(g, w), 4), "\n");
  }
  return {loss,
          {{"mse", mse}, {"pearson", linear}, {"spearman", ranked}},
          text("Pearson ", fixed(linear, 4), ", Spearman ", fixed(ranked, 4), " over ", grouped(Index(given[0].size())),
               " rows, mean squared error ", fixed(mse, 4), ", loss ", fixed(loss, 4), " (always the mean: about 1)"),
          table};
}

Evaluation RegressionTask::evaluate(const Pass& pass) {
  const Figures found = figures(valid_, pass);
  Evaluation out;
  out.loss = found.loss;
  out.targets = Index(valid_.rows.size());
  for (const auto& [name, value] : found.scores.items()) {
    out.log["valid_" + name] = json_number(value.get<double>());
    out.summary["valid_" + name] = out.log["valid_" + name];
  }
  out.words = text("Pearson ", fixed(found.scores["pearson"].get<double>(), 4));
  return out;
}

}  // namespace flexformer
