// Sampling, and generation beyond the context that a model was trained for.
#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <numeric>
#include <set>

#include "tests/nn/small_models.h"
#include "train/models/generation.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

const std::vector<float> kLogits = {1, 3, 2, 3, -1};  // the largest twice

// Tokens drawn over an even grid of `uniform`, with how often.
std::vector<int> histogram(const SamplingOptions& options, int draws = 1000) {
  std::vector<int> counts(kLogits.size(), 0);
  for (int i = 0; i < draws; ++i) ++counts[std::size_t(sample(kLogits, options, (i + 0.5) / draws))];
  return counts;
}

std::vector<std::int32_t> generate(const LanguageModel& model, const std::vector<std::int32_t>& prompt, int tokens,
                                   std::uint64_t seed, double temperature = 1) {
  Generator generator(model, {.temperature = temperature}, seed);
  for (std::int32_t id : prompt) generator.feed(id);
  std::vector<std::int32_t> out;
  for (int i = 0; i < tokens; ++i) out.push_back(generator.next());
  return out;
}

// sample() by sorting everything.
std::int32_t sampled_by_sorting(const std::vector<float>& logits, const SamplingOptions& options, double uniform) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min(order.size(), std::size_t(options.top_k)));
  std::vector<double> weight;
  for (std::size_t id : order)
    weight.push_back(std::exp((double(logits[id]) - double(logits[order[0]])) / options.temperature));
  const double limit = options.top_p * std::accumulate(weight.begin(), weight.end(), 0.0);
  double reached = 0;
  std::size_t kept = 0;
  while (kept < order.size() && (kept == 0 || reached < limit)) reached += weight[kept++];
  double target = uniform * reached;
  for (std::size_t i = 0; i + 1 < kept; ++i)
    if ((target -= weight[i]) < 0) return std::int32_t(order[i]);
  return std::int32_t(order[kept - 1]);
}

std::int32_t greedy(const LanguageModel& model, const std::vector<std::int32_t>& context) {
  const Index T = Index(context.size());
  const std::vector<float> all = model.forward(Tensor::from_ints({1, T}, context)).value().to_vector();
  return std::int32_t(std::max_element(all.end() - vocabulary, all.end()) - (all.end() - vocabulary));
}

// Weights large enough for choices to be clear.
std::unique_ptr<LanguageModel> model_with(Position position, const std::string& kind) {
  LanguageModelOptions options = small(kind);
  options.position = position;
  options.block = 8;
  Random random(4);
  auto model = std::make_unique<LanguageModel>(options, random);
  for (const Parameter& p : model->parameters())
    if (p.decay) {
      Tensor value = p.var.value();
      for (Index i = 0; i < value.numel(); ++i) value.data()[i] *= 4;
    }
  return model;
}

}  // namespace

TEST_CASE("temperature 0 takes the most probable token, the first of equals, as do tiny temperatures and k = 1") {
  for (double uniform : {0.0, 0.5, 0.999999}) {
    CHECK(sample(kLogits, {.temperature = 0}, uniform) == 1);
    CHECK(sample(kLogits, {.temperature = 1, .top_k = 1}, uniform) == 1);
    CHECK(sample(kLogits, {.temperature = 1, .top_p = 1e-9}, uniform) == 1);
  }
  CHECK(histogram({.temperature = 1e-30}) == std::vector<int>{0, 500, 0, 500, 0});
}

TEST_CASE("tokens are drawn with their probabilities at the temperature") {
  for (double temperature : {0.5, 1.0, 2.0, 1e9}) {
    double total = 0;
    for (float logit : kLogits) total += std::exp(double(logit) / temperature);
    const std::vector<int> counts = histogram({.temperature = temperature}, 10000);
    for (std::size_t i = 0; i < kLogits.size(); ++i)
      CHECK(std::fabs(counts[i] - 10000 * std::exp(double(kLogits[i]) / temperature) / total) <= 1.5);
  }
}

TEST_CASE("top_k and top_p leave the most probable tokens only") {
  CHECK(histogram({.temperature = 1, .top_k = 2}) == std::vector<int>{0, 500, 0, 500, 0});
  const std::vector<int> three = histogram({.temperature = 1, .top_k = 3});
  CHECK((three[0] == 0 && three[2] > 0 && three[4] == 0));
  CHECK(histogram({.temperature = 1, .top_k = 99}) == histogram({.temperature = 1}));
  // The two largest have e^3 / (2 e^3 + e^2 + e + 1/e) = 0.399 each.
  CHECK(histogram({.temperature = 1, .top_p = 0.39}) == std::vector<int>{0, 1000, 0, 0, 0});
  CHECK(histogram({.temperature = 1, .top_p = 0.41}) == std::vector<int>{0, 500, 0, 500, 0});
  CHECK(histogram({.temperature = 1, .top_k = 2, .top_p = 0.6}) == std::vector<int>{0, 500, 0, 500, 0});
  CHECK(histogram({.temperature = 1, .top_p = 1}) == histogram({.temperature = 1}));
}

TEST_CASE("drawing without sorting gives what sorting gives, in large vocabularies with many equal logits") {
  Random random(8);
  for (std::size_t size : {1, 2, 33, 100, 5000}) {
    std::vector<float> logits;
    for (std::size_t i = 0; i < size; ++i) logits.push_back(float(random.below(i % 2 ? 40 : 1000)) / 40);
    for (double temperature : {0.05, 0.7, 3.0})
      for (Index k : {0, 1, 7, 300, 4999})
        for (double p : {0.013, 0.5, 0.97, 1.0})
          for (int draw = 0; draw < 3; ++draw) {
            const SamplingOptions options{temperature, k, p};
            const double uniform = random.uniform();
            CHECK(sample(logits, options, uniform) == sampled_by_sorting(logits, options, uniform));
          }
  }
}

TEST_CASE("of equal tokens at the end of top_k and top_p those of lower number are kept") {
  const std::vector<float> equal(100, 1.5f);
  for (double uniform : {0.0, 0.3, 0.999}) {
    CHECK(sample(equal, {.temperature = 1, .top_k = 10}, uniform) == std::int32_t(10 * uniform));
    CHECK(sample(equal, {.temperature = 1, .top_p = 0.1}, uniform) == std::int32_t(10 * uniform));
    CHECK(sample(equal, {.temperature = 1}, uniform) == std::int32_t(100 * uniform));
  }
}

TEST_CASE("logits that are NaN are refused, and so is an empty vocabulary") {
  CHECK_THROWS_WITH_AS(sample(std::vector<float>{1, std::nanf("")}, {}, 0.5), doctest::Contains("a logit is NaN"),
                       Error);
  CHECK_THROWS_WITH_AS(sample(std::vector<float>{1, HUGE_VALF}, {}, 0.5), doctest::Contains("logit is infinite"),
                       Error);
  CHECK(sample(std::vector<float>{-HUGE_VALF, 1}, {}, 0.5) == 1);
  CHECK_THROWS_WITH_AS(sample({}, {}, 0.5), doctest::Contains("there are no logits"), Error);
}

TEST_CASE("the same seed gives the same text and another seed another, for every kind") {
  for (const AttentionKind& kind : attention_kinds()) {
    const auto model = model_with(Position::rope, kind.name);
    CHECK(generate(*model, {3}, 30, 1) == generate(*model, {3}, 30, 1));
    CHECK(generate(*model, {3}, 30, 1) != generate(*model, {3}, 30, 2));
  }
}

TEST_CASE("learned positions and cosformer go on past the block from its last half, with short and long prompts") {
  const std::pair<const char*, Position> rows[] = {
      {"softmax", Position::learned}, {"flexformer_n", Position::learned}, {"cosformer", Position::rope}};
  for (const auto& [kind, position] : rows) {
    const auto model = model_with(position, kind);
    for (Index prompt_length : {1, 8, 9, 20}) {
      std::vector<std::int32_t> all, context;
      // The rule by itself: when the block is full, its last half is where the context starts anew.
      const auto take = [&](std::int32_t id) {
        if (context.size() == 8) context.erase(context.begin(), context.end() - 4);
        context.push_back(id);
        all.push_back(id);
      };
      for (Index i = 0; i < prompt_length; ++i) take(std::int32_t(1 + i * 5 % (vocabulary - 1)));
      const std::vector<std::int32_t> prompt = all;
      for (int i = 0; i < 24; ++i) take(greedy(*model, context));
      CHECK(generate(*model, prompt, 24, 1, 0) == std::vector<std::int32_t>(all.end() - 24, all.end()));
    }
  }
}

TEST_CASE("other positions see everything however long it is; a linear kind's state does not grow") {
  for (Position position : {Position::rope, Position::none, Position::sinusoidal})
    for (const AttentionKind& kind : attention_kinds()) {
      if (kind.has_end) continue;
      CAPTURE(kind.name);
      const auto model = model_with(position, kind.name);
      std::vector<std::int32_t> all = {3, 1, 4, 1, 5};
      for (int i = 0; i < 24; ++i) all.push_back(greedy(*model, all));
      CHECK(generate(*model, {3, 1, 4, 1, 5}, 24, 1, 0) == std::vector<std::int32_t>(all.begin() + 5, all.end()));
      Generator generator(*model, {}, 1);
      generator.feed(1);
      const Index bytes = generator.state_bytes();
      for (int i = 0; i < 80; ++i) generator.next();
      if (kind.is_linear) CHECK(generator.state_bytes() == bytes);
      if (!kind.is_linear) CHECK(generator.state_bytes() > bytes);
    }
}

TEST_CASE("texts side by side are those that each gives alone, past the block too, prompts whole or by token") {
  const std::pair<const char*, Position> rows[] = {
      {"softmax", Position::learned}, {"flexformer_n", Position::rope}, {"cosformer", Position::rope}};
  for (const auto& [kind, position] : rows) {
    const auto model = model_with(position, kind);
    Decoder decoder(*model);
    std::vector<std::vector<std::int32_t>> prompts, texts(4);
    std::deque<Generator> generators;
    std::vector<Generator*> all;
    for (Index i = 0; i < 4; ++i) {
      prompts.emplace_back();
      for (Index t = 0; t < 1 + 5 * i; ++t) prompts.back().push_back(std::int32_t(1 + (i + t * 5) % (vocabulary - 1)));
      generators.emplace_back(decoder, SamplingOptions{.temperature = 1}, 7);
      generators.back().feed(prompts.back());
      all.push_back(&generators.back());
    }
    for (int t = 0; t < 20; ++t) {
      const std::vector<std::int32_t> ids = Generator::next(all);
      for (std::size_t i = 0; i < ids.size(); ++i) texts[i].push_back(ids[i]);
    }
    for (std::size_t i = 0; i < texts.size(); ++i) CHECK(texts[i] == generate(*model, prompts[i], 20, 7));
  }
}
