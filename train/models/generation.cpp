#include "train/models/generation.h"

#include <algorithm>
#include <cmath>

#include "tensor/simd.h"

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

// The largest logit. Throws Error as sample() does.
float largest_of(std::span<const float> logits) {
  check("sample", !logits.empty(), "there are no logits");
  Vec most = splat(-HUGE_VALF);
  VecInt nan{};
  for (std::size_t i = 0; i < logits.size(); i += std::size_t(kLanes)) {
    // The end once more, or what there is of it.
    const std::size_t from = logits.size() < std::size_t(kLanes) ? 0 : std::min(i, logits.size() - std::size_t(kLanes));
    Vec x = load_up_to(logits.data() + from, Index(logits.size() - from));
    for (std::size_t lane = logits.size(); lane < std::size_t(kLanes); ++lane) x[int(lane)] = logits[0];
    nan |= x != x;
    most = max(most, x);
  }
  check("sample", max_lanes(select(nan != 0, splat(1.0f), Vec{})) == 0,
        "a logit is NaN: the model's weights are not usable");
  check("sample", std::isfinite(max_lanes(most)), "the largest logit is infinite: the model's weights are not usable");
  return max_lanes(most);
}

// Weights exp((logit - largest) / temperature) of a vocabulary, in classes of falling logits: class c reaches c / 8
// temperatures down. Only the classes that a draw may end in become candidates.
class Weighed {
 public:
  Weighed(std::span<const float> logits, float most, double temperature)
      : logits_(logits),
        weights_(logits.size()),
        most_(most),
        classes_per_logit_(float(std::min(1e30, 8 / temperature))) {
    const auto rate = float(std::min(1e30, 1 / temperature));
    for (std::size_t i = 0; i < logits.size(); i += std::size_t(kLanes)) {
      const Index left = Index(logits.size() - i);
      store_up_to(weights_.data() + i, exp((load_up_to(logits.data() + i, left) - most) * rate), left);
    }
    for (std::size_t i = 0; i < logits.size(); ++i) {
      Class& c = classes_[i % kCopies][class_of(logits[i])];
      c.weight += double(weights_[i]);
      c.count += weights_[i] > 0;
    }
    for (int copy = 1; copy < kCopies; ++copy)
      for (int c = 0; c < kClasses; ++c) {
        classes_[0][c].weight += classes_[copy][c].weight;
        classes_[0][c].count += classes_[copy][c].count;
      }
    for (const Class& c : classes_[0]) total_ += c.weight, count_ += c.count;
  }

  double total() const { return total_; }
  Index count() const { return count_; }  // of those that have a weight

  // The most probable ones, at least so many that they count `count` and weigh more than `weight`; or all.
  std::vector<Candidate> top(Index count, double weight) const {
    int end = 0;
    double weighs = 0;
    Index counts = 0;
    for (; end < kClasses && (counts < count || weighs <= weight); ++end) {
      weighs += classes_[0][end].weight;
      counts += classes_[0][end].count;
    }
    std::vector<Candidate> candidates;
    candidates.reserve(std::size_t(counts));
    for (std::size_t i = 0; i < logits_.size(); ++i)
      if (weights_[i] > 0 && class_of(logits_[i]) < end)
        candidates.push_back({logits_[i], std::int32_t(i), double(weights_[i])});
    return candidates;
  }

 private:
  static constexpr int kClasses = 512;
  static constexpr int kCopies = 4;  // sums that take turns, so that they need not wait for each other
  struct Class {
    double weight = 0;
    Index count = 0;
  };
  int class_of(float logit) const { return int(std::min((most_ - logit) * classes_per_logit_, float(kClasses - 1))); }

  std::span<const float> logits_;
  std::vector<float> weights_;
  float most_, classes_per_logit_;
  double total_ = 0;
  Index count_ = 0;
  Class classes_[kCopies][kClasses];
};

}  // namespace

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  const float most = largest_of(logits);
  if (options.temperature == 0) return std::int32_t(std::find(logits.begin(), logits.end(), most) - logits.begin());
  const Weighed all(logits, most, options.temperature);
  const Index k = options.top_k > 0 ? std::min(options.top_k, all.count()) : all.count();
  std::vector<Candidate> candidates;
  std::span<Candidate> kept;
  double before = 0, weight = all.total();
  if (k < all.count()) {
    candidates = all.top(k, -1);
    std::nth_element(candidates.begin(), candidates.begin() + k - 1, candidates.end());
    kept = std::span(candidates).first(std::size_t(k));
    weight = total(kept);
  }
  if (options.top_p < 1) {
    // The place where the sum is not below the limit any more: a sum equal to the limit is enough.
    const double limit = std::nextafter(options.top_p * weight, 0.0);
    if (candidates.empty()) kept = candidates = all.top(1, limit);
    const std::size_t last = place_of(kept, limit, before);
    kept = kept.first(last + 1);
    weight = before + kept[last].weight;
  }
  const double target = uniform * weight;
  if (candidates.empty()) kept = candidates = all.top(1, target);
  return kept[place_of(kept, target, before)].id;
}

Generator::Generator(Decoder& decoder, const SamplingOptions& options, std::uint64_t seed)
    : decoder_(decoder), options_(options), random_(seed) {}

Generator::Generator(const LanguageModel& model, const SamplingOptions& options, std::uint64_t seed)
    : own_(std::make_unique<Decoder>(model)), decoder_(*own_), options_(options), random_(seed) {}

void Generator::keep(const Tensor& logits, Index row) {
  const Index V = decoder_.options().vocabulary;
  if (logits.device() == Device::cpu) {
    logits_.assign(logits.data() + row * V, logits.data() + (row + 1) * V);
  } else {
    const std::vector<float> all = logits.to_vector();
    logits_.assign(all.begin() + row * V, all.begin() + (row + 1) * V);
  }
}

void Generator::restart_if_full() {
  const Index block = decoder_.options().block;
  if (!decoder_.has_end() || Index(recent_.size()) < block) return;
  recent_.erase(recent_.begin(), recent_.end() - block / 2);
  state_ = {};
  if (!recent_.empty()) decoder_.feed(recent_, state_);
}

void Generator::feed(std::span<const std::int32_t> ids) {
  if (ids.empty()) return;
  if (!decoder_.has_end()) return keep(decoder_.feed(ids, state_), 0);
  // As if token after token: whenever the block is full, its last half is what is left of it.
  const Index block = decoder_.options().block, before = Index(recent_.size());
  recent_.insert(recent_.end(), ids.begin(), ids.end());
  Index length = Index(recent_.size());
  if (length > block) {
    const Index room = block - block / 2;
    length = block / 2 + (length - block - 1) % room + 1;
    recent_.erase(recent_.begin(), recent_.end() - length);
    state_ = {};
  }
  const auto fed =
      state_.length == 0 ? std::span<const std::int32_t>(recent_) : std::span(recent_).subspan(std::size_t(before));
  keep(decoder_.feed(fed, state_), 0);
}

std::int32_t Generator::next() {
  Generator* const texts[] = {this};
  return next(texts)[0];
}

std::vector<std::int32_t> Generator::next(std::span<Generator* const> texts) {
  std::vector<std::int32_t> ids;
  std::vector<DecodeState*> states;
  for (Generator* text : texts) {
    ids.push_back(sample(text->logits_, text->options_, text->random_.uniform()));
    text->restart_if_full();
    states.push_back(&text->state_);
  }
  const Tensor& logits = texts[0]->decoder_.step(ids, states);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i]->decoder_.has_end()) texts[i]->recent_.push_back(ids[i]);
    texts[i]->keep(logits, Index(i));
  }
  return ids;
}

}  // namespace flexformer
