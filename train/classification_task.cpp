#include "train/classification_task.h"

#include <algorithm>
#include <numeric>

#include "train/program.h"
#include "train/utf8.h"

namespace flexformer {
namespace {

constexpr Index kLargestConfusion = 50;  // classes; beyond, the table is too large for every line and every reader
constexpr std::uint64_t kDataStreams = 0x726f7773;  // keeps the order of rows apart from the model's random numbers

Tensor padded(const EncodedTexts& texts, std::span<const Index> rows, std::vector<std::int32_t> EncodedText::*ids) {
  std::size_t longest = 1;
  for (Index row : rows) longest = std::max(longest, (texts.rows[std::size_t(row)].*ids).size());
  Tensor out = Tensor::zeros({Index(rows.size()), Index(longest)}, DType::i32);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& from = texts.rows[std::size_t(rows[i])].*ids;
    std::copy(from.begin(), from.end(), out.ints() + Index(i) * Index(longest));
  }
  return out;
}

Index row_length(const EncodedTexts& texts, Index row) {
  const EncodedText& text = texts.rows[std::size_t(row)];
  return Index(std::max(text.ids.size(), text.ids2.size()));
}

Tensor row_labels(const EncodedTexts& texts, std::span<const Index> rows) {
  Tensor out = Tensor::empty({Index(rows.size())}, DType::i32);
  for (std::size_t i = 0; i < rows.size(); ++i) out.ints()[i] = texts.rows[std::size_t(rows[i])].label;
  return out;
}

}  // namespace

Var classify(const Classifier& model, const EncodedTexts& texts, std::span<const Index> rows, const Pass& pass) {
  const Tensor ids = padded(texts, rows, &EncodedText::ids);
  return model.options().two_tower ? model.forward(ids, padded(texts, rows, &EncodedText::ids2), pass)
                                   : model.forward(ids, pass);
}

std::vector<std::vector<Index>> length_groups(const EncodedTexts& texts, Index tokens) {
  std::vector<Index> order(texts.rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return row_length(texts, a) < row_length(texts, b); });
  std::vector<std::vector<Index>> groups;
  for (Index row : order) {
    const Index length = row_length(texts, row);
    if (groups.empty() || Index(groups.back().size() + 1) * length > tokens) groups.emplace_back();
    groups.back().push_back(row);
  }
  return groups;
}

Index ClassificationTask::steps_per_epoch(Index rows, const ClassificationOptions& options) {
  const Index per_step = options.batch * options.accumulate;
  return (rows + per_step - 1) / per_step;
}

// Shuffled, then sorted by length within pools of 50 batches, so that little is padded; then the batches are shuffled.
std::vector<std::vector<Index>> ClassificationTask::epoch_batches(Index epoch) const {
  const Index rows = Index(train_.rows.size()), per_step = options_.batch * options_.accumulate;
  const std::uint64_t seed = options_.seed ^ kDataStreams;
  std::vector<std::int64_t> order = shuffled(rows, seed, std::uint64_t(2 * epoch));
  std::vector<std::vector<Index>> batches;
  for (Index pool = 0; pool < rows; pool += 50 * per_step) {
    const auto begin = order.begin() + pool, end = order.begin() + std::min(rows, pool + 50 * per_step);
    std::stable_sort(begin, end, [&](Index a, Index b) { return row_length(train_, a) < row_length(train_, b); });
    for (auto at = begin; at < end; at += std::min<Index>(per_step, end - at))
      batches.emplace_back(at, at + std::min<Index>(per_step, end - at));
  }
  std::vector<std::vector<Index>> out;
  for (std::int64_t i : shuffled(Index(batches.size()), seed, std::uint64_t(2 * epoch + 1)))
    out.push_back(std::move(batches[std::size_t(i)]));
  return out;
}

Index ClassificationTask::begin_step(Index step) {
  const Index per_epoch = steps_per_epoch(Index(train_.rows.size()), options_);
  if (step / per_epoch != epoch_) {
    epoch_ = step / per_epoch;
    batches_ = epoch_batches(epoch_);
  }
  rows_ = batches_[std::size_t(step % per_epoch)];
  return Index(rows_.size());
}

Index ClassificationTask::step_tokens() const {
  Index sum = 0;
  for (Index row : rows_) {
    const EncodedText& text = train_.rows[std::size_t(row)];
    sum += Index(text.ids.size() + text.ids2.size());
  }
  return sum;
}

Index ClassificationTask::micro_batches() const { return (Index(rows_.size()) + options_.batch - 1) / options_.batch; }

Var ClassificationTask::loss_sum(Index micro_batch, const Pass& pass) {
  const Index first = micro_batch * options_.batch;
  const std::span<const Index> rows(rows_.data() + first,
                                    std::size_t(std::min(options_.batch, Index(rows_.size()) - first)));
  return cross_entropy(classify(model_, train_, rows, pass), row_labels(train_, rows),
                       {.label_smoothing = options_.label_smoothing, .mean = false});
}

ClassificationResult ClassificationTask::measure(const EncodedTexts& texts) const {
  const Index classes = model_.options().classes;
  ClassificationResult result(classes);
  double sum = 0;
  for (const std::vector<Index>& rows : length_groups(texts, 8192)) {
    if (stop_signal()) throw Stopped{};
    const Var logits = classify(model_, texts, rows, {});
    const Tensor labels = row_labels(texts, rows);
    sum += double(cross_entropy(logits, labels, {.mean = false}).value().item());
    for (Index i = 0; i < Index(rows.size()); ++i) {
      const float* row = logits.value().data() + i * classes;
      result.confusion.add(labels.ints()[i], std::max_element(row, row + classes) - row);
    }
  }
  result.loss = sum / double(texts.rows.size());
  return result;
}

Evaluation ClassificationTask::evaluate() {
  const ClassificationResult measured = measure(valid_);
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
