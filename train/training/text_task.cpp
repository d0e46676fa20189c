#include "train/training/text_task.h"

#include <algorithm>
#include <numeric>

namespace flexformer {
namespace {

constexpr std::uint64_t kRowStreams = 0x726f7773;  // keeps the order of rows apart from the model's random numbers

Tensor padded(const EncodedTexts& texts, std::span<const Index> rows, std::vector<std::int32_t> EncodedText::*ids,
              std::int32_t padding) {
  std::size_t longest = 1;
  for (Index row : rows) longest = std::max(longest, (texts.rows[std::size_t(row)].*ids).size());
  Tensor out = Tensor::empty({Index(rows.size()), Index(longest)}, DType::i32);
  std::fill_n(out.ints(), out.numel(), padding);
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

}  // namespace

static std::vector<Tensor> inputs_of(const Classifier& model, const EncodedTexts& texts, std::span<const Index> rows) {
  const std::int32_t padding = model.options().padding;
  const Tensor ids = padded(texts, rows, &EncodedText::ids, padding);
  return model.options().two_tower ? model.inputs(ids, padded(texts, rows, &EncodedText::ids2, padding))
                                   : model.inputs(ids);
}

Var classify(const Classifier& model, const EncodedTexts& texts, std::span<const Index> rows, const Pass& pass) {
  return model.forward(inputs_of(model, texts, rows), pass);
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

Index TextTask::steps_per_epoch(Index rows, const ClassificationOptions& options) {
  const Index per_step = options.batch * options.accumulate;
  return (rows + per_step - 1) / per_step;
}

// Shuffled, then sorted by length within pools of 50 batches, so that little is padded; then the batches are shuffled.
std::vector<std::vector<Index>> TextTask::epoch_batches(Index epoch) const {
  const Index rows = Index(train_.rows.size()), per_step = options_.batch * options_.accumulate;
  const std::uint64_t seed = options_.seed ^ kRowStreams;
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

Index TextTask::begin_step(Index step) {
  const Index per_epoch = steps_per_epoch(Index(train_.rows.size()), options_);
  if (step / per_epoch != epoch_) {
    epoch_ = step / per_epoch;
    batches_ = epoch_batches(epoch_);
  }
  rows_ = batches_[std::size_t(step % per_epoch)];
  return Index(rows_.size());
}

Index TextTask::step_tokens() const {
  Index sum = 0;
  for (Index row : rows_) {
    const EncodedText& text = train_.rows[std::size_t(row)];
    sum += Index(text.ids.size() + text.ids2.size());
  }
  return sum;
}

Index TextTask::micro_batches() const { return (Index(rows_.size()) + options_.batch - 1) / options_.batch; }

Batch TextTask::batch(Index micro_batch) const {
  const Index first = micro_batch * options_.batch;
  const std::span rows(rows_.data() + first, std::size_t(std::min(options_.batch, Index(rows_.size()) - first)));
  Batch batch = inputs_of(model_, train_, rows);
  batch.push_back(labels(rows));
  return batch;
}

Var TextTask::outputs_of(const Classifier& model, const Batch& batch, const Pass& pass) {
  return model.forward(std::span(batch).first(batch.size() - 1), pass);
}

Var TextTask::with_teacher(const Var& loss, const Var& outputs, const Batch& batch,
                           Var (*distance)(const Tensor& teacher, const Var& outputs)) const {
  if (!teacher_) return loss;
  const Tensor wanted = outputs_of(*teacher_, batch, {}).value();
  return scale(loss, 1 - teacher_weight_) + scale(distance(wanted, outputs), teacher_weight_);
}

}  // namespace flexformer
