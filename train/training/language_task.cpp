#include "train/training/language_task.h"

#include <cmath>

#include "train/util/program.h"

namespace flexformer {
namespace {

constexpr std::uint64_t kDataStreams = 0x64617461;  // keeps the windows' random numbers apart from the model's

// Inputs and targets of windows: targets are the inputs moved by one.
void fill_windows(const TokenRow& text, const std::vector<Index>& starts, Index length, Tensor& ids, Tensor& targets) {
  ids = Tensor::empty({Index(starts.size()), length}, DType::i32);
  targets = Tensor::empty({Index(starts.size()), length}, DType::i32);
  for (std::size_t row = 0; row < starts.size(); ++row) {
    text.copy(starts[row], length, ids.ints() + Index(row) * length);
    text.copy(starts[row] + 1, length, targets.ints() + Index(row) * length);
  }
}

}  // namespace

Index LanguageTask::begin_step(Index step) {
  step_ = step;
  return step_tokens();
}

Batch LanguageTask::batch(Index micro_batch) const {
  const auto windows = std::uint64_t(window_count(Index(data_.train.size()), options_.block));
  const RandomKey key{options_.seed ^ kDataStreams, std::uint64_t(step_)};
  std::vector<Index> starts;
  for (Index row = 0; row < options_.batch; ++row) {
    const Philox x = Philox::at(key, std::uint64_t(micro_batch * options_.batch + row));
    starts.push_back(Index(((std::uint64_t(x.v[0]) << 32) | x.v[1]) % windows));
  }
  Tensor ids, targets;
  fill_windows(data_.train, starts, options_.block, ids, targets);
  return {ids, targets};
}

Var LanguageTask::loss_sum(const Batch& batch, const Pass& pass) {
  const CrossEntropyOptions summed{.label_smoothing = options_.label_smoothing, .mean = false};
  if (!teacher_) return model_.loss(batch[0], batch[1], pass, summed);
  const Var logits = model_.forward(batch[0], pass);
  return scale(cross_entropy(logits, batch[1], summed), 1 - teacher_weight_) +
         scale(softmax_divergence(teacher_->forward(batch[0]).value(), logits), teacher_weight_);
}

double LanguageTask::window_loss(const std::vector<Index>& starts, Index length, Index counted,
                                 const Pass& pass) const {
  Tensor ids, targets;
  fill_windows(data_.valid, starts, length, ids, targets);
  for (Index row = 0; row < Index(starts.size()); ++row)
    std::fill_n(targets.ints() + row * length, length - counted, -100);
  return double(model_.loss(ids, targets, pass, {.mean = false}).value().item());
}

Evaluation LanguageTask::evaluate(const Pass& pass) {
  const Index targets = Index(data_.valid.size()) - 1, block = options_.block;
  const Index stride = options_.valid_stride ? std::min(options_.valid_stride, block) : block;
  const Index rows = std::max<Index>(1, 4096 / block);  // windows at a time: bounds memory, not the result
  double sum = 0;
  Index done = std::min(block, targets);
  sum += window_loss({0}, done, done, pass);
  std::vector<Index> starts;
  while (done < targets) {
    if (stop_signal()) throw Stopped{};
    const Index counted = std::min(stride, targets - done);
    const Index length = stride == block ? counted : block;
    starts.push_back(done + counted - length);
    done += counted;
    const bool last_of_its_size = done == targets || std::min(stride, targets - done) != counted;
    if (Index(starts.size()) == rows || last_of_its_size) {
      sum += window_loss(starts, length, counted, pass);
      starts.clear();
    }
  }
  Evaluation result;
  result.targets = targets;
  result.loss = sum / double(targets);
  const double perplexity = std::exp(result.loss);
  const double bits = result.loss * double(targets) / (std::log(2.0) * double(data_.valid_target_bytes));
  result.log["valid_ppl"] = json_number(perplexity);
  result.log["valid_bits_per_byte"] = json_number(bits);
  if (draw_sample_ && std::isfinite(result.loss)) result.log["sample"] = draw_sample_();
  result.summary["valid_ppl"] = json_number(perplexity);
  result.summary["valid_tokens"] = targets;
  result.summary["valid_bits_per_byte"] = json_number(bits);
  result.words = text("perplexity ", fixed(perplexity, 3));
  return result;
}

}  // namespace flexformer
