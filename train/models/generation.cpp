#include "train/models/generation.h"

#include <algorithm>
#include <cmath>

namespace flexformer {

namespace {

struct Candidate {
  float logit;
  std::int32_t id;
  double weight;  // the probability, times a common factor

  bool operator<(const Candidate& other) const {  // more probable ones first
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

double total(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

// In order of probability, the place of the first candidate with which the weights add up to more than `target`; the
// last place if none does. Instead of sorting, the most probable eighth is split off and what is not needed left alone:
// n + 7/8 n + (7/8)^2 n + ... = 8 n at most, 8/7 n if most of the weight is in front, as it is in language. All before
// the place returned stand there in some order, and `before` gets their weight.
std::size_t place_of(std::span<Candidate> candidates, double target, double& before) {
  std::size_t first = 0, end = candidates.size();
  before = 0;
  while (end - first > 32) {
    const std::size_t middle = first + (end - first) / 8;
    std::nth_element(candidates.begin() + std::ptrdiff_t(first), candidates.begin() + std::ptrdiff_t(middle),
                     candidates.begin() + std::ptrdiff_t(end));
    const double weight = total(candidates.subspan(first, middle - first));
    if (before + weight > target) {
      end = middle;
    } else {
      before += weight;
      first = middle;
    }
  }
  std::sort(candidates.begin() + std::ptrdiff_t(first), candidates.begin() + std::ptrdiff_t(end));
  for (; first + 1 < end && before + candidates[first].weight <= target; ++first) before += candidates[first].weight;
  return first;
}

}  // namespace

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  check("sample", !logits.empty(), "there are no logits");
  check("sample", std::none_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }),
        "a logit is NaN: the model's weights are not usable");
  const auto most_probable = std::max_element(logits.begin(), logits.end());
  check("sample", std::isfinite(*most_probable), "the largest logit is infinite: the model's weights are not usable");
  if (options.temperature == 0) return std::int32_t(most_probable - logits.begin());
  std::vector<Candidate> all;
  all.reserve(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp((double(logits[id]) - double(*most_probable)) / options.temperature);
    if (weight > 0) all.push_back({logits[id], std::int32_t(id), weight});
  }
  std::span<Candidate> kept = all;
  if (const auto k = std::size_t(options.top_k); options.top_k > 0 && k < kept.size()) {
    std::nth_element(all.begin(), all.begin() + std::ptrdiff_t(k), all.end());
    kept = kept.first(k);
  }
  double before = 0, weight = total(kept);
  if (options.top_p < 1) {
    // The place where the sum is not below the limit any more: a sum equal to the limit is enough.
    const std::size_t last = place_of(kept, std::nextafter(options.top_p * weight, 0.0), before);
    kept = kept.first(last + 1);
    weight = before + kept[last].weight;
  }
  return kept[place_of(kept, uniform * weight, before)].id;
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
