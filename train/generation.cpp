#include "train/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace flexformer {

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  check("sample", !logits.empty(), "there are no logits");
  check("sample", std::none_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }),
        "a logit is NaN: the model's weights are not usable");
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto more_probable = [&](std::int32_t a, std::int32_t b) {
    return logits[std::size_t(a)] != logits[std::size_t(b)] ? logits[std::size_t(a)] > logits[std::size_t(b)] : a < b;
  };
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), more_probable);
  std::sort(order.begin(), order.end(), more_probable);
  std::size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, std::size_t(options.top_k));

  const double largest = logits[std::size_t(order[0])];
  std::vector<double> weight(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i)
    total += weight[i] = std::exp((double(logits[std::size_t(order[i])]) - largest) / options.temperature);
  double reached = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    reached += weight[i];
    if (reached >= options.top_p * total) kept = i + 1;
  }
  double target =
      uniform * std::min(reached, std::accumulate(weight.begin(), weight.begin() + std::ptrdiff_t(kept), 0.0));
  for (std::size_t i = 0; i + 1 < kept; ++i)
    if ((target -= weight[i]) < 0) return order[i];
  return order[kept - 1];
}

Generator::Generator(const LanguageModel& model, const SamplingOptions& options, std::uint64_t seed)
    : model_(model), options_(options), random_(seed) {}

void Generator::step(std::int32_t id) {
  const Tensor logits = model_.step(Tensor::from_ints({1}, std::span(&id, 1)), state_);
  logits_ = logits.to_vector();
}

void Generator::feed(std::int32_t id) {
  if (model_.has_end()) {
    const Index block = model_.options().block;
    if (state_.length() >= block) {
      recent_.erase(recent_.begin(), recent_.end() - block / 2);
      state_ = {};
      for (std::int32_t old : recent_) step(old);
    }
    recent_.push_back(id);
  }
  step(id);
}

std::int32_t Generator::next() {
  const std::int32_t id = sample(logits_, options_, random_.uniform());
  feed(id);
  return id;
}

}  // namespace flexformer
