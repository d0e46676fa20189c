// Adaptive inputs and adaptive softmax: against the definition in double precision, and in a model that trains, goes on
// and generates; and that the configurations of the paper's language models have the paper's numbers of parameters.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "tests/nn/small_models.h"
#include "tests/train/training/small_runs.h"
#include "train/models/generation.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

constexpr Index V = 11, dim = 8;
const AdaptiveOptions kOptions{.cutoffs = {3, 7}, .factor = 2};  // widths 8, 4, 2

// Input and output of one vocabulary, with numbers large enough for gradients to be seen.
struct Pair {
  explicit Pair(bool tie)
      : random(5),
        input(Scope(parameters, random).sub("token"), V, dim, kOptions, Init::normal(0.5f)),
        output(Scope(parameters, random).sub("head"), V, dim, kOptions, Init::normal(0.5f), tie ? &input : nullptr) {}

  Parameters parameters;
  Random random;
  AdaptiveInput input;
  AdaptiveSoftmax output;
};

using Numbers = std::vector<double>;

// The same in plain loops over the values of all parameters, by name.
struct Naive {
  explicit Naive(const Pair& pair, bool tie) : tie(tie) {
    for (const Parameter& p : pair.parameters) {
      const std::vector<float> values = p.var.value().to_vector();
      numbers.emplace_back(p.name, Numbers(values.begin(), values.end()));
    }
  }
  const Numbers& operator[](const std::string& name) const {
    for (const auto& [key, values] : numbers)
      if (key == name) return values;
    FAIL(name);
    return numbers[0].second;
  }
  static Index first(Index band) { return band == 0 ? 0 : kOptions.cutoffs[std::size_t(band) - 1]; }
  static Index band_of(Index v) { return (v >= 3) + (v >= 7); }
  static Index width(Index band) { return dim >> band; }

  // P_b E_b[v]; in the output layer band 0 has no P.
  Numbers vector_of(const std::string& side, Index v, bool mapped) const {
    const Index b = band_of(v), w = width(b);
    const Numbers& table = (*this)[text(side, ".band", b, ".weight")];
    const double* row = &table[std::size_t((v - first(b)) * w)];
    if (!mapped) return Numbers(row, row + w);
    const Numbers& map = (*this)[text(side, ".band", b, ".projection")];
    Numbers out(dim, 0.0);
    for (Index c = 0; c < dim; ++c)
      for (Index i = 0; i < w; ++i) out[std::size_t(c)] += map[std::size_t(c * w + i)] * row[i];
    return out;
  }
  static double dot(const Numbers& a, const double* b) { return std::inner_product(a.begin(), a.end(), b, 0.0); }

  Numbers probabilities(const Numbers& h) const {
    const auto normalise = [](Numbers scores) {
      double total = 0;
      for (double& s : scores) total += s = std::exp(s);
      for (double& s : scores) s /= total;
      return scores;
    };
    const std::string side = tie ? "token" : "head";
    Numbers head, out;
    for (Index v = 0; v < 3; ++v) head.push_back(dot(vector_of(side, v, false), h.data()));
    for (Index b = 0; b < 2; ++b) head.push_back(dot(h, &(*this)["head.tails"][std::size_t(b * dim)]));
    head = normalise(head);
    out.assign(head.begin(), head.begin() + 3);
    for (Index b = 1; b < 3; ++b) {
      Numbers tail;
      for (Index v = first(b); v < (b == 2 ? V : first(b + 1)); ++v)
        tail.push_back(dot(vector_of(side, v, true), h.data()));
      for (const double p : normalise(tail)) out.push_back(head[std::size_t(2 + b)] * p);
    }
    return out;
  }
  // Mean over the targets that count.
  double loss(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets) const {
    double sum = 0;
    int count = 0;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      if (targets[t] < 0) continue;
      sum -= std::log(probabilities(vector_of("token", ids[t], true))[std::size_t(targets[t])]);
      ++count;
    }
    return sum / count;
  }

  bool tie;
  std::vector<std::pair<std::string, Numbers>> numbers;
};

Var loss_of(const Pair& pair, const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets) {
  const Shape shape = {1, Index(ids.size())};
  return pair.output.loss(pair.input.forward(Tensor::from_ints(shape, ids)), Tensor::from_ints(shape, targets));
}

const std::vector<std::int32_t> kIds = {0, 10, 3, 7, 2, 6, 3, 9, 1}, kTargets = {10, 3, -100, 2, 7, 6, 0, 8, 3};

}  // namespace

TEST_CASE("adaptive inputs and softmax are their definition, values and gradients, tied or not") {
  for (const bool tie : {false, true}) {
    CAPTURE(tie);
    const Pair pair(tie);
    Naive naive(pair, tie);
    Tape tape;
    const Var loss = loss_of(pair, kIds, kTargets);
    CHECK(double(loss.value().item()) == doctest::Approx(naive.loss(kIds, kTargets)).epsilon(1e-6));
    tape.backward(loss);
    double worst = 0, largest = 0;
    for (auto& [name, values] : naive.numbers)
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double kept = values[i], step = 1e-5;
        values[i] = kept + step;
        const double above = naive.loss(kIds, kTargets);
        values[i] = kept - step;
        const double slope = (above - naive.loss(kIds, kTargets)) / (2 * step);
        values[i] = kept;
        const double error = std::abs(slope - double(pair.parameters[name].var.grad().data()[i]));
        worst = error <= worst ? worst : error;
        largest = std::max(largest, std::abs(slope));
      }
    CHECK(worst < 1e-6);
    CHECK(largest > 0.05);
  }
}

TEST_CASE("adaptive log-probabilities are those of the definition, and add up to 1") {
  for (const bool tie : {false, true}) {
    const Pair pair(tie);
    const Naive naive(pair, tie);
    const Tensor all = pair.output.log_probabilities(pair.input.forward(Tensor::from_ints({3, 3}, kIds))).value();
    REQUIRE(all.shape() == Shape({3, 3, V}));
    for (std::size_t t = 0; t < kIds.size(); ++t) {
      const Numbers p = naive.probabilities(naive.vector_of("token", kIds[t], true));
      double sum = 0;
      for (std::size_t v = 0; v < std::size_t(V); ++v) {
        const double ours = std::exp(double(all.data()[t * std::size_t(V) + v]));
        CHECK(ours == doctest::Approx(p[v]).epsilon(1e-5));
        sum += ours;
      }
      CHECK(sum == doctest::Approx(1).epsilon(1e-6));
    }
  }
}

TEST_CASE("a band without a target has a gradient of 0, and targets that do not count leave no trace") {
  const Pair pair(false);
  const auto gradients = [&](const std::vector<std::int32_t>& targets) {
    pair.parameters.clear_grads();
    Tape tape;
    const Var loss = loss_of(pair, kIds, targets);
    tape.backward(loss);
    return double(loss.value().item());
  };
  const auto size = [&](const char* name) { return rms(pair.parameters[name].var.grad()); };
  gradients({0, 1, 2, 7, 0, 10, 8, 2, 1});  // none in band 1
  CHECK(size("head.band1.weight") == 0);
  CHECK(size("head.band1.projection") == 0);
  CHECK(size("head.band2.weight") > 0);
  CHECK(size("head.band0.weight") > 0);
  CHECK(gradients(std::vector<std::int32_t>(kIds.size(), -100)) == 0);
  for (const Parameter& p : pair.parameters) CHECK_MESSAGE(rms(p.var.grad()) == 0, p.name);
}

TEST_CASE("what adaptive layers refuse") {
  const auto bands = [](const std::vector<Index>& cutoffs, Index factor = 4) {
    adaptive_bands(100, 16, {.cutoffs = cutoffs, .factor = factor});
  };
  CHECK_NOTHROW(bands({1, 99}));
  CHECK_THROWS_WITH_AS(bands({50, 20}),
                       doctest::Contains("cut-off 20 does not lie between 50 and the vocabulary's size"), Error);
  CHECK_THROWS_WITH_AS(bands({20, 20}), doctest::Contains("cut-off 20 does not lie between 20 and"), Error);
  CHECK_THROWS_WITH_AS(bands({20, 100}),
                       doctest::Contains("cut-off 100 does not lie between 20 and the vocabulary's "
                                         "size 100; model.adaptive needs rising numbers"),
                       Error);
  CHECK_THROWS_WITH_AS(bands({0}), doctest::Contains("cut-off 0 does not lie between 0 and"), Error);
  CHECK_THROWS_WITH_AS(bands({10, 20, 30}), doctest::Contains("16 channels cannot be divided 3 times by 4"), Error);
  const Pair pair(true);
  CHECK_THROWS_WITH_AS(loss_of(pair, {0, 11}, {0, 0}),
                       doctest::Contains("id 11 at position 1 is outside the vocabulary"), Error);
  CHECK_THROWS_WITH_AS(loss_of(pair, {0, 1}, {0, -1}), doctest::Contains("id -1 at position 1 is outside"), Error);
  const Var h = pair.input.forward(Tensor::from_ints({2}, std::vector<std::int32_t>{1, 2}));
  const Tensor one = Tensor::zeros({1}, DType::i32), two = Tensor::zeros({2}, DType::i32);
  CHECK_THROWS_WITH_AS(pair.output.loss(h, one), doctest::Contains("targets need h's shape without the last axis"),
                       Error);
  CHECK_THROWS_WITH_AS(pair.output.loss(h, two, {.label_smoothing = 0.1f}), doctest::Contains("leave out train.label"),
                       Error);

  const auto model = [](const Arguments& arguments) {
    Options options("train_lm", "");
    add_language_options(options);
    options.parse(arguments);
    return language_model_options(options, 100);
  };
  CHECK_THROWS_WITH_AS(model({"--model.adaptive=20,x"}), doctest::Contains("'x' is not a whole number"), UsageError);
  CHECK_THROWS_WITH_AS(model({"--model.adaptive=20"}), doctest::Contains("model.head_bias=true does not go with"),
                       UsageError);
  CHECK_THROWS_WITH_AS(model({"--model.adaptive=20", "--model.head_bias=false", "--train.label_smoothing=0.1"}),
                       doctest::Contains("train.label_smoothing does not go with model.adaptive"), UsageError);
  Options options("train_lm", "");
  add_language_options(options);
  const TemporaryFolder home;
  const std::string file = (home.path() / "text.txt").string();
  write_file_atomic(file, small_text());
  options.parse({"--model.adaptive=20", "--data.tokenizer=byte", "--data.train=" + file});
  CHECK_THROWS_WITH_AS(load_language_data(options, nullptr), doctest::Contains("falling frequency"), UsageError);
}

TEST_CASE("the word tokenizer's ids fall in frequency, as adaptive bands need them") {
  const std::string text = small_text(300);
  const auto tokenizer = make_tokenizer("word", text, {});
  std::vector<int> count(std::size_t(tokenizer->vocab_size()), 0);
  for (const std::int32_t id : tokenizer->encode(text)) ++count[std::size_t(id)];
  REQUIRE(tokenizer->special_count() == 1);  // <unk>
  CHECK(count.size() == 9);
  CHECK(std::is_sorted(count.begin() + 1, count.end(), std::greater<>()));
}

TEST_CASE("an adaptive model decodes as it reads, whole or token by token, and its loss is that of its probabilities") {
  for (const bool tie : {false, true}) {
    LanguageModelOptions options = small("flexformer_n");
    options.adaptive = {.cutoffs = {5, 9}, .factor = 2};
    options.tie = tie;
    Random random(3);
    const LanguageModel model(options, random);
    const Tensor ids = random_ids(1, 12), targets = random_ids(1, 12, 2);
    const Tensor whole = model.forward(ids).value();
    CHECK(double(model.loss(ids, targets, {}).value().item()) ==
          doctest::Approx(cross_entropy(Var(whole), targets).value().item()).epsilon(1e-5));
    Decoder decoder(model);
    DecodeState state;
    for (Index t = 0; t < 12; ++t) {
      const Tensor& logits = decoder.feed(std::span(ids.ints() + t, 1), state);
      for (Index v = 0; v < vocabulary; ++v)
        CHECK(std::abs(logits.data()[v] - whole.data()[t * vocabulary + v]) < 1e-5);
    }
  }
}

TEST_CASE("a run with adaptive layers learns, goes on bit for bit, and generates from its folder") {
  const TemporaryFolder home;
  const Arguments adaptive = {"--model.adaptive=3,5", "--model.tie", "--train.lr=0.01"};
  SmallLanguageRun whole(home.path() / "whole", small_text(), adaptive);
  REQUIRE(whole.train() == 0);
  CHECK(whole.column("loss").back() < whole.column("loss").front() - 0.3);
  {
    SmallLanguageRun cut(home.path() / "cut", small_text(), adaptive + Arguments{"--train.save_every=4"});
    REQUIRE(cut.train(11) == -1);
  }
  SmallLanguageRun resumed(home.path() / "cut", small_text(), {});
  REQUIRE(resumed.train() == 0);
  CHECK(resumed.column("loss") == whole.column("loss"));
  const SavedLanguageModel saved(whole.folder), other(resumed.folder);
  CHECK(saved.model->parameters().count() == whole.model->parameters().count());
  const auto generated = [](const SavedLanguageModel& run) {
    Generator generator(*run.model, {}, 1);
    generator.feed(run.tokenizer->start_id());
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(generator.next());
    return run.tokenizer->decode(ids);
  };
  CHECK(generated(saved) == generated(other));
}

namespace {

// What a config's model would count, without its 41 or 247 million numbers: it is made with one block and three words.
Index parameters_of(const std::string& config, const std::string& kind) {
  Options options("train_lm", "");
  add_language_options(options);
  options.parse({"--config=" + config, "--model.attention=" + kind});
  settle_model_options(options, true);
  const LanguageModelOptions full = language_model_options(options, 267735);
  LanguageModelOptions small = full;
  small.transformer.layers = 1;
  small.vocabulary = 3;
  small.adaptive.cutoffs = {1, 2};
  Random random(0);
  const LanguageModel model(small, random);
  Index block = 0;
  for (const Parameter& p : model.parameters())
    if (p.name.starts_with("blocks.0.") && p.var.requires_grad()) block += p.var.value().numel();
  REQUIRE(full.tie);  // so the words are counted once
  return model.parameters().count() + (full.transformer.layers - 1) * block + Index(token_parameters(full)) -
         Index(token_parameters(small));
}

}  // namespace

TEST_CASE("the WikiText-103 configurations have the paper's numbers of parameters") {
  const Index small = parameters_of("train/configs/wikitext103-small.json", "softmax");
  CHECK(small == 41267936);
  const auto growth = [&](const char* kind) {
    return 100 * (double(parameters_of("train/configs/wikitext103-small.json", kind)) / double(small) - 1);
  };
  CHECK(growth("flexformer_s") == doctest::Approx(0.49).epsilon(0.03));
  CHECK(growth("flexformer_n") == doctest::Approx(0.97).epsilon(0.03));
  const Index big = parameters_of("train/configs/wikitext103-big.json", "softmax");
  CHECK(big == 246934976);
}
