#include "train/training/distillation_task.h"

#include <algorithm>
#include <cmath>

#include "train/util/files.h"

namespace flexformer {
namespace {

// Scales the frequencies of each head, and tau; see fit_kernels(). Padding counts as well: a start need not be exact.
void fit_layer(const MultiHeadAttention& layer, const Var& projected) {
  const FeatureKind features = layer.kind->features;
  if (features != FeatureKind::trig_s && features != FeatureKind::trig_n) return;
  const Var q = layer.heads_of(projected, 0), k = layer.heads_of(projected, 1);
  // E |q - k|^2 of a query and a key that know nothing of each other
  const Var apart = sum(variance(q, {0, 2}) + variance(k, {0, 2}) + square(mean(q, {0, 2}) - mean(k, {0, 2})), {1});
  const Var spread = variance(sum(square(k), {3}), {0, 2});
  const std::vector<float> squares = apart.value().to_vector(), variances = spread.value().to_vector();
  std::vector<float> narrower(squares.size()), tau = layer.tau.value().to_vector();
  for (std::size_t h = 0; h < tau.size(); ++h) {
    narrower[h] = 1 / std::sqrt(std::max(1.0f, squares[h] / std::sqrt(float(layer.head_size))));
    tau[h] = std::max(tau[h], 0.5f * std::log(std::max(variances[h], 1e-20f)));
  }
  const Index H = layer.heads;
  const Var factor(Tensor::from({H, 1, 1}, narrower, projected.device()));
  for (const Var& w : {layer.w1, layer.w2})
    if (w.defined()) Tensor(w.value()).copy_from((w * factor).value());
  Tensor(layer.tau.value()).copy_from(Tensor::from({H}, tau, projected.device()));
}

double count_tokens(const Var& projected, const AttentionMask& mask) {
  if (!mask.key_mask.defined()) return double(projected.size(0) * projected.size(1));
  const Tensor on_host = mask.key_mask.to(Device::cpu);
  const std::int32_t* present = on_host.ints();
  return double(on_host.numel() - std::count(present, present + on_host.numel(), 0));
}

}  // namespace

void HeadLosses::add(Index layer, const Tensor& losses, double tokens) {
  tokens_ += tokens;
  const std::vector<float> values = losses.to_vector();
  for (Index h = 0; h < heads_; ++h) sums_[std::size_t(layer * heads_ + h)] += double(values[std::size_t(h)]) * tokens;
}

double HeadLosses::mean() const {
  double sum = 0;
  for (double s : sums_) sum += s;
  return sum / (tokens_ * double(heads_));
}

std::string HeadLosses::table() const {
  std::string out = "layer  loss of each head\n";
  for (Index layer = 0; layer < layers_; ++layer) {
    out += std::string(layer < 9 ? 4 : 3, ' ') + std::to_string(layer + 1);
    for (Index head = 0; head < heads_; ++head) out += "  " + fixed(at(layer, head), 3);
    out += "\n";
  }
  return out;
}

Json HeadLosses::to_json() const {
  Json rows = Json::array();
  for (Index layer = 0; layer < layers_; ++layer) {
    Json row = Json::array();
    for (Index head = 0; head < heads_; ++head) row.push_back(json_number(at(layer, head)));
    rows.push_back(row);
  }
  return rows;
}

Var layer_distillation(const MultiHeadAttention& layer, const Var& projected, const AttentionMask& mask,
                       double& tokens) {
  tokens = count_tokens(projected, mask);
  const Var q = layer.heads_of(projected, 0), k = layer.heads_of(projected, 1);
  return attention_distillation(q.value(), k.value(), q, k, layer.feature_map(), mask, layer.floor,
                                DistilledSum::magnitudes);
}

DistillationTask::DistillationTask(Task& task, const Transformer& transformer)
    : task_(task),
      layers_(Index(transformer.blocks.size())),
      validation_(layers_, transformer.blocks.front().attention.heads) {}

Var DistillationTask::loss_sum(const Batch& batch, const Pass&) {
  Var total;
  const Pass::Observer observe = [&](const MultiHeadAttention& layer, const Var& projected, const AttentionMask& mask) {
    double tokens = 0;
    const Var loss = mean(layer_distillation(layer, projected, mask, tokens));
    const Var weighted = scale(loss, float(tokens / double(layers_)));
    total = total.defined() ? total + weighted : weighted;
  };
  task_.loss_sum(batch, {.observer = &observe});  // the teacher reads without dropout; its own loss is not needed
  return total;
}

Evaluation DistillationTask::evaluate(const Pass&) {
  HeadLosses losses(layers_, validation_.heads());
  Index calls = 0;
  const Pass::Observer observe = [&](const MultiHeadAttention& layer, const Var& projected, const AttentionMask& mask) {
    double tokens = 0;
    const Var loss = layer_distillation(layer, projected, mask, tokens);
    losses.add(calls++ % layers_, loss.value(), tokens);
  };
  const Evaluation teacher = task_.evaluate({.observer = &observe});
  validation_ = losses;
  Evaluation out;
  out.loss = losses.mean();
  out.targets = teacher.targets;
  out.log["teacher_loss"] = json_number(teacher.loss);
  out.summary["teacher_loss"] = json_number(teacher.loss);
  out.summary["head_losses"] = losses.to_json();
  out.words = text("(the teacher's own loss: ", fixed(teacher.loss, 4), ")");
  return out;
}

void fit_kernels(Task& task) {
  const Pass::Observer fit = [](const MultiHeadAttention& layer, const Var& projected, const AttentionMask&) {
    fit_layer(layer, projected);
  };
  task.begin_step(0);
  task.loss_sum(task.batch(0), {.observer = &fit});
}

std::uint64_t hash_without_kernels(const Parameters& parameters) {
  std::string bytes;
  for (const Parameter& p : parameters) {
    if (p.kernel) continue;
    const Tensor tensor = p.var.value().to(Device::cpu);
    const std::uint64_t part =
        fnv1a64({reinterpret_cast<const char*>(tensor.data()), std::size_t(tensor.numel()) * sizeof(float)});
    bytes += p.name;
    bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
  }
  return fnv1a64(bytes);
}

}  // namespace flexformer
