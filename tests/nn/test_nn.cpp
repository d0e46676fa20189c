// Parameters of models: names, order, numbers and starts; and models that cannot be.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tensor/parallel.h"
#include "tests/nn/small_models.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

double distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  double worst = 0;
  for (Index i = 0; i < a.numel(); ++i) {
    const double difference = std::abs(double(a.data()[i]) - b.data()[i]);
    worst = difference <= worst ? worst : difference;  // a NaN stays
  }
  return worst;
}

std::vector<std::string> names(const Parameters& parameters) {
  std::vector<std::string> out;
  for (const Parameter& parameter : parameters) out.push_back(parameter.name);
  return out;
}

bool same_weights(const Parameters& a, const Parameters& b) {
  const NamedTensors x = a.tensors(), y = b.tensors();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const NamedTensor& p, const NamedTensor& q) {
    return p.name == q.name && p.tensor.to_vector() == q.tensor.to_vector();
  });
}

}  // namespace

TEST_CASE("a language model's parameters have their names, order and number") {
  Random random(1);
  LanguageModelOptions options = small("flexformer_n");
  options.transformer.layers = 1;
  const LanguageModel model(options, random);
  CHECK(names(model.parameters()) == std::vector<std::string>{"token.weight",
                                                              "position.weight",
                                                              "blocks.0.norm1.weight",
                                                              "blocks.0.norm1.bias",
                                                              "blocks.0.attn.qkv.weight",
                                                              "blocks.0.attn.qkv.bias",
                                                              "blocks.0.attn.out.weight",
                                                              "blocks.0.attn.out.bias",
                                                              "blocks.0.attn.w1",
                                                              "blocks.0.attn.w2",
                                                              "blocks.0.attn.tau",
                                                              "blocks.0.norm2.weight",
                                                              "blocks.0.norm2.bias",
                                                              "blocks.0.mlp.up.weight",
                                                              "blocks.0.mlp.up.bias",
                                                              "blocks.0.mlp.down.weight",
                                                              "blocks.0.mlp.down.bias",
                                                              "norm.weight",
                                                              "norm.bias",
                                                              "head.weight",
                                                              "head.bias"});
  const Index block =
      2 * 16 + (48 * 16 + 48) + (16 * 16 + 16) + 2 * (2 * 8 * 8) + 2 + 2 * 16 + (32 * 16 + 32) + (16 * 32 + 16);
  CHECK(model.parameters().count() == 17 * 16 + 16 * 16 + block + 2 * 16 + 17 * 16 + 17);
  for (const Parameter& parameter : model.parameters()) {
    CAPTURE(parameter.name);
    CHECK(parameter.decay == (parameter.var.shape().rank() == 2));
    const std::string last = parameter.name.substr(parameter.name.rfind('.') + 1);
    CHECK(parameter.kernel == (last == "w1" || last == "w2" || last == "tau"));
  }
}

TEST_CASE("tau is kept but not learned in the stationary kind, unless asked for") {
  Random random(1);
  LanguageModelOptions options = small("flexformer_s");
  const LanguageModel fixed(options, random);
  options.transformer.attention.train_tau = true;
  const LanguageModel trained(options, random);
  CHECK_FALSE(fixed.parameters()["blocks.0.attn.tau"].var.requires_grad());
  CHECK(trained.parameters()["blocks.0.attn.tau"].var.requires_grad());
  CHECK(trained.parameters().count() - fixed.parameters().count() == 2 * 2);
  CHECK_FALSE(fixed.parameters().has("blocks.0.attn.w2"));
}

TEST_CASE("a tied head is counted once and gets the sum of both gradients") {
  LanguageModelOptions options = small("flexformer_n");
  Random random(1);
  const LanguageModel untied(options, random);
  options.tie = true;
  const LanguageModel tied(options, random);
  CHECK(untied.parameters().count() - tied.parameters().count() == vocabulary * 16);
  CHECK_FALSE(tied.parameters().has("head.weight"));
  for (const Parameter& parameter : untied.parameters()) {
    Tensor value = parameter.var.value();
    if (parameter.name == "head.weight")
      value.copy_from(tied.parameters()["token.weight"].var.value());
    else
      value.copy_from(tied.parameters()[parameter.name].var.value());
  }
  const Tensor ids = random_ids(2, 9), targets = random_ids(2, 9, 2);
  for (const LanguageModel* model : {&untied, &tied}) {
    Tape tape;
    tape.backward(model->loss(ids, targets, {}));
  }
  Tensor sum = untied.parameters()["token.weight"].var.grad().clone();
  for (Index i = 0; i < sum.numel(); ++i) sum.data()[i] += untied.parameters()["head.weight"].var.grad().data()[i];
  CHECK(distance(tied.parameters()["token.weight"].var.grad(), sum) < 1e-6);
}

TEST_CASE("weights start with the documented deviations") {
  Random random(1);
  LanguageModelOptions options = small("flexformer_n");
  options.transformer.dim = 128;
  options.transformer.ffn = 256;
  options.transformer.attention.heads = 4;
  const LanguageModel model(options, random);
  const auto value = [&](const char* name) { return model.parameters()[name].var.value(); };
  const auto near = [](double x) { return doctest::Approx(x).epsilon(0.03); };
  const Tensor qkv = value("blocks.0.attn.qkv.weight");
  CHECK(rms(qkv, 0, 128) == near(1 / std::sqrt(128.0)));
  CHECK(rms(qkv, 128, 256) == near(1 / std::sqrt(128.0)));
  CHECK(rms(qkv, 256, 384) == near(0.02));
  CHECK(rms(value("blocks.1.attn.out.weight")) == near(0.02 / std::sqrt(4.0)));
  CHECK(rms(value("blocks.1.mlp.up.weight")) == near(0.02));
  CHECK(rms(value("blocks.1.mlp.down.weight")) == near(0.02 / std::sqrt(4.0)));
  CHECK(rms(value("token.weight")) == doctest::Approx(0.02).epsilon(0.06));
  CHECK(rms(value("position.weight")) == doctest::Approx(0.02).epsilon(1e-5));
  CHECK(rms(value("blocks.0.attn.w1")) == near(0.5 * std::pow(32.0, -0.25)));
  CHECK(rms(value("blocks.0.attn.w2")) == near(0.5 * std::pow(32.0, -0.25)));
  CHECK(value("blocks.0.attn.tau").data()[3] == doctest::Approx(std::log(2 * std::sqrt(32.0))));
  CHECK(rms(value("blocks.0.attn.qkv.bias")) == 0);
  CHECK(value("norm.weight").to_vector() == std::vector<float>(128, 1.0f));
}

TEST_CASE("a classifier's matrices start by Xavier's rule") {
  Random random(1);
  ClassifierOptions options = small_classifier("softmax");
  options.transformer.dim = 64;
  options.transformer.ffn = 256;
  const Classifier model(options, random);
  const Tensor up = model.parameters()["blocks.0.mlp.up.weight"].var.value();
  const double bound = std::sqrt(6.0 / (64 + 256));
  CHECK(rms(up) == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.03));
  for (const float w : up.to_vector()) REQUIRE(std::abs(w) <= bound);
  CHECK(rms(model.parameters()["blocks.0.attn.qkv.weight"].var.value()) == doctest::Approx(0.125).epsilon(0.03));
}

TEST_CASE("W_k starts as a copy of W_q in trigonometric kinds only, unless asked otherwise") {
  const auto qkv = [](const std::string& kind, std::optional<bool> tie) {
    Random random(1);
    LanguageModelOptions options = small(kind);
    options.transformer.attention.tie_qk_init = tie;
    return LanguageModel(options, random).parameters()["blocks.0.attn.qkv.weight"].var.value().to_vector();
  };
  const auto is_tied = [](const std::vector<float>& w) {
    return std::equal(w.begin(), w.begin() + 256, w.begin() + 256);
  };
  CHECK(is_tied(qkv("flexformer_n", {})));
  CHECK(is_tied(qkv("flexformer_s", {})));
  CHECK(is_tied(qkv("rfa", {})));
  CHECK_FALSE(is_tied(qkv("softmax", {})));
  CHECK_FALSE(is_tied(qkv("linear", {})));
  CHECK(is_tied(qkv("softmax", true)));
  const std::vector<float> tied = qkv("flexformer_n", true), free = qkv("flexformer_n", false);
  CHECK_FALSE(is_tied(free));
  CHECK(std::equal(tied.begin() + 512, tied.end(), free.begin() + 512));  // W_v is the same either way
}

TEST_CASE("feature maps have the parameters and the start that their kind is documented with") {
  struct Row {
    const char* kind;
    int sets;
    bool trained;
  };
  for (const Row& row : {Row{"softmax", 0, false}, Row{"flexformer_s", 1, true}, Row{"flexformer_n", 2, true},
                         Row{"linear", 0, false}, Row{"performer", 1, false}, Row{"rfa", 1, false},
                         Row{"cosformer", 0, false}, Row{"hedgehog", 2, true}, Row{"polaformer", 1, true}}) {
    CAPTURE(row.kind);
    Random random(1), again(1);
    LanguageModelOptions options = small(row.kind);
    options.transformer.attention.features = 20;  // of heads of 8: two and a half blocks
    const LanguageModel model(options, random), same(options, again);
    CHECK(same_weights(model.parameters(), same.parameters()));
    const std::string prefix = "blocks.1.attn.";
    CHECK(model.parameters().has(prefix + "w1") == (row.sets >= 1));
    CHECK(model.parameters().has(prefix + "w2") == (row.sets == 2));
    if (row.sets == 0) continue;
    const Parameter& w1 = model.parameters()[prefix + "w1"];
    CHECK(w1.kernel);
    CHECK_FALSE(w1.decay);
    CHECK(w1.var.requires_grad() == row.trained);
    const std::vector<float> w = w1.var.value().to_vector();
    const std::string kind = row.kind;
    const auto product = [&](int a, int b) {
      double sum = 0;
      for (int c = 0; c < 8; ++c) sum += double(w[std::size_t(8 * a + c)]) * double(w[std::size_t(8 * b + c)]);
      return sum;
    };
    CHECK(w1.var.shape() == Shape({2, kind == "polaformer" ? 1 : 20, 8}));
    if (kind == "polaformer") CHECK(rms(w1.var.value()) == 0);
    if (kind == "rfa") CHECK(rms(w1.var.value()) == doctest::Approx(1).epsilon(0.15));
    if (kind == "hedgehog")
      for (int r = 0; r < 20; ++r)
        for (int c = 0; c < 8; ++c) CHECK(std::abs(w[std::size_t(8 * r + c)] - float(r % 8 == c)) < 0.1f);
    if (kind == "hedgehog") CHECK(std::abs(product(0, 0) - product(0, 8)) > 1e-4);  // repeated rows are not the same
    if (kind != "performer") continue;
    CHECK(rms(w1.var.value()) == doctest::Approx(1).epsilon(0.15));
    for (int a = 0; a < 40; ++a)
      for (int b = a + 1; b < 40; ++b)
        if (a / 20 == b / 20 && a % 20 / 8 == b % 20 / 8) CHECK(std::abs(product(a, b)) < 1e-5 * product(a, a));
  }
}

TEST_CASE("the same seed gives the same weights, whatever the number of threads") {
  const auto make = [](std::uint64_t seed, int count, Index dim) {
    const int before = threads();
    set_threads(count);
    Random random(seed);
    LanguageModelOptions options = small("flexformer_n");
    options.transformer.dim = dim;
    auto model = std::make_unique<LanguageModel>(options, random);
    set_threads(before);
    return model;
  };
  const auto a = make(1, 1, 128), b = make(1, 3, 128), c = make(2, 1, 128);
  CHECK(same_weights(a->parameters(), b->parameters()));
  CHECK_FALSE(same_weights(a->parameters(), c->parameters()));
}

TEST_CASE("names that do not exist are refused with the list of those that do") {
  CHECK_THROWS_WITH_AS(attention_kind("flexformer"),
                       doctest::Contains("there is no attention 'flexformer'; there are "
                                         "softmax, flexformer_s, flexformer_n, linear, performer, rfa, "
                                         "cosformer, hedgehog, polaformer"),
                       Error);
  CHECK(attention_kind_names().size() == attention_kinds().size());
  CHECK(qk_norm_from("rms") == QkNorm::rms);
  CHECK_THROWS_WITH_AS(qk_norm_from("l1"), doctest::Contains("'l1'; there are none, l2, rms"), Error);
  CHECK(position_from("rope") == Position::rope);
  CHECK_THROWS_WITH_AS(position_from("x"), doctest::Contains("'x'; there are learned, sinusoidal, rope, none"), Error);
  CHECK(pool_from("cls") == Pool::cls);
  CHECK_THROWS_WITH_AS(pool_from("max"), doctest::Contains("'max'; there are mean, cls"), Error);
}

TEST_CASE("models that cannot be are refused") {
  Random random(1);
  LanguageModelOptions options = small("softmax");
  options.transformer.attention.heads = 3;
  CHECK_THROWS_WITH_AS(LanguageModel(options, random), doctest::Contains("dim 16 cannot be split into 3 heads"), Error);
  options = small("linear");
  options.transformer.dim = 6;
  options.position = Position::rope;
  CHECK_THROWS_WITH_AS(LanguageModel(options, random), doctest::Contains("but the head size is 3"), Error);
  options = small("flexformer_s");
  options.transformer.attention.floor = 1.5f;
  CHECK_THROWS_WITH_AS(LanguageModel(options, random), doctest::Contains("must be in [0, 1], got 1.5"), Error);
  Parameters parameters;
  const Scope scope(parameters, random);
  scope.parameter("a", {1}, Init::constant(0));
  CHECK_THROWS_WITH_AS(scope.parameter("a", {1}, Init::constant(0)), doctest::Contains("two parameters called 'a'"),
                       Error);
  CHECK_THROWS_WITH_AS(parameters["b"], doctest::Contains("there is no parameter 'b' among the 1"), Error);
}
