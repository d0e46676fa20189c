#include "train/training/classification_task.h"

#include <algorithm>

#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr Index kLargestConfusion = 50;  // classes; beyond, the table is too large for every line and every reader

Tensor row_labels(const EncodedTexts& texts, std::span<const Index> rows) {
  Tensor out = Tensor::empty({Index(rows.size())}, DType::i32);
  for (std::size_t i = 0; i < rows.size(); ++i) out.ints()[i] = texts.rows[std::size_t(rows[i])].label;
  return out;
}

std::vector<float> balanced_weights(const EncodedTexts& texts, Index classes) {
  std::vector<float> counts(std::size_t(classes), 0);
  for (const EncodedText& row : texts.rows) ++counts[std::size_t(row.label)];
  const auto with_rows = double(classes - std::count(counts.begin(), counts.end(), 0.0f));
  for (float& count : counts) count = count > 0 ? float(double(texts.rows.size()) / (with_rows * double(count))) : 0;
  return counts;
}

// Of each row i: w(y_i) ((1 - smoothing) one-hot + smoothing / K).
Tensor weighted_targets(const Tensor& labels, const std::vector<float>& weights, float smoothing) {
  const auto classes = Index(weights.size());
  Tensor targets = Tensor::empty({labels.numel(), classes});
  for (Index i = 0; i < labels.numel(); ++i) {
    const float weight = weights[std::size_t(labels.ints()[i])];
    float* row = targets.data() + i * classes;
    std::fill_n(row, classes, weight * smoothing / float(classes));
    row[labels.ints()[i]] += weight * (1 - smoothing);
  }
  return targets;
}

std::string table_of_classes(const ConfusionMatrix& m, const LabelMap& labels) {
  std::size_t width = 5;
  for (Index c = 0; c < labels.size(); ++c) width = std::max(width, printable(labels.name(c)).size());
  const auto cell = [](const std::string& value, std::size_t size) {
    return std::string(size > value.size() ? size - value.size() : 0, ' ') + value;
  };
  std::string out = cell("class", width) + "  precision  recall  rows\n";
  for (Index c = 0; c < labels.size(); ++c)
    out += cell(printable(labels.name(c)), width) + cell(fixed(m.precision(c), 3), 11) +
           cell(fixed(m.recall(c), 3), 8) + cell(grouped(m.support(c)), 6) + "\n";
  return out;
}

}  // namespace

ClassificationTask::ClassificationTask(const Classifier& model, const EncodedTexts& train, const EncodedTexts& valid,
                                       const LabelMap& labels, const ClassificationOptions& options)
    : TextTask(model, train, valid, labels, options) {
  if (options.balanced) class_weights_ = balanced_weights(train, model.options().classes);
}

Tensor ClassificationTask::labels(std::span<const Index> rows) const {
  const Tensor classes = row_labels(train_, rows);
  return class_weights_.empty() ? classes : weighted_targets(classes, class_weights_, options_.label_smoothing);
}

Var ClassificationTask::loss_sum(const Batch& batch, const Pass& pass) {
  const Var logits = outputs(batch, pass);
  const Tensor& targets = batch.back();
  const Var loss = class_weights_.empty()
                       ? cross_entropy(logits, targets, {.label_smoothing = options_.label_smoothing, .mean = false})
                       : neg(sum(log_softmax(logits, -1) * Var(targets.to(logits.device()))));
  return with_teacher(loss, logits, batch, softmax_divergence);
}

ClassificationResult ClassificationTask::measure(const EncodedTexts& texts, const Pass& pass) const {
  const Index classes = model_.options().classes;
  ClassificationResult result(classes);
  double sum = 0;
  for (const std::vector<Index>& rows : length_groups(texts, kEvaluationTokens)) {
    if (stop_signal()) throw Stopped{};
    const Var logits = classify(model_, texts, rows, pass);
    const Tensor labels = row_labels(texts, rows), on_host = logits.value().to(Device::cpu);
    sum += double(cross_entropy(logits, labels, {.mean = false}).value().item());
    for (Index i = 0; i < Index(rows.size()); ++i) {
      const float* row = on_host.data() + i * classes;
      result.confusion.add(labels.ints()[i], std::max_element(row, row + classes) - row);
    }
  }
  result.loss = sum / double(texts.rows.size());
  return result;
}

Figures ClassificationTask::figures(const EncodedTexts& texts, const Pass& pass) const {
  const ClassificationResult measured = measure(texts, pass);
  const ConfusionMatrix& m = measured.confusion;
  return {measured.loss,
          {{"accuracy", m.accuracy()}, {"mcc", m.matthews()}},
          text("accuracy ", fixed(100 * m.accuracy(), 2), " % of ", grouped(m.total()),
               " rows (always the most frequent class: ", fixed(100 * m.majority_accuracy(), 2), " %), loss ",
               fixed(measured.loss, 4), ", Matthews ", fixed(m.matthews(), 3)),
          table_of_classes(m, labels_)};
}

Evaluation ClassificationTask::evaluate(const Pass& pass) {
  const ClassificationResult measured = measure(valid_, pass);
  const ConfusionMatrix& m = measured.confusion;
  Evaluation out;
  out.loss = measured.loss;
  out.targets = Index(valid_.rows.size());
  out.log["valid_accuracy"] = m.accuracy();
  if (m.classes() <= kLargestConfusion) out.log["confusion"] = m.to_json();
  out.summary["valid_accuracy"] = m.accuracy();
  out.summary["majority_accuracy"] = m.majority_accuracy();
  Json per_class = Json::object();
  for (Index c = 0; c < labels_.size(); ++c)
    per_class[printable(labels_.name(c))] = {
        {"precision", m.precision(c)}, {"recall", m.recall(c)}, {"support", m.support(c)}};
  out.summary["per_class"] = per_class;
  out.summary["mcc"] = m.matthews();
  out.words = text("accuracy ", fixed(100 * m.accuracy(), 2), " %");
  return out;
}

}  // namespace flexformer
