// What models compute: causality, dropout, padding, pooling.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/nn/small_models.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

Tensor column(const Tensor& ids, Index t) {
  Tensor out = Tensor::empty({ids.size(0)}, DType::i32);
  for (Index b = 0; b < ids.size(0); ++b) out.ints()[b] = ids.ints()[b * ids.size(1) + t];
  return out;
}

}  // namespace

TEST_CASE("an untrained model guesses evenly") {
  for (const AttentionKind& kind : attention_kinds()) {
    Random random(1);
    const LanguageModel model(small(kind.name), random);
    CHECK(model.loss(random_ids(4, 16), random_ids(4, 16, 2), {}).value().item() ==
          doctest::Approx(std::log(17.0)).epsilon(0.02));
  }
}

TEST_CASE("dropout acts in training only and is drawn from the run's generator") {
  Random random(1);
  LanguageModelOptions options = small("flexformer_n");
  options.transformer.dropout = 0.5f;
  const LanguageModel model(options, random);
  const Tensor ids = random_ids(2, 9);
  const auto run = [&](const Pass& pass) { return model.forward(ids, pass).value().to_vector(); };
  const std::vector<float> evaluated = run({});
  Random dropout_random(7);
  const RandomKey start = dropout_random.state();
  const std::vector<float> trained = run({.training = true, .random = &dropout_random});
  CHECK(trained != evaluated);
  CHECK(run({.training = true, .random = &dropout_random}) != trained);
  dropout_random.set_state(start);
  CHECK(run({.training = true, .random = &dropout_random}) == trained);
  CHECK(run({}) == evaluated);
  CHECK_THROWS_WITH_AS(run({.training = true}), doctest::Contains("training with dropout 0.5 needs Pass::random"),
                       Error);
}

TEST_CASE("logits do not depend on later tokens, bit for bit") {
  for (const AttentionKind& kind : attention_kinds())
    for (const bool training : {false, true}) {
      CAPTURE(kind.name);
      Random random(3);
      LanguageModelOptions options = small(kind.name);
      options.transformer.dropout = 0.1f;
      const LanguageModel model(options, random);
      Tensor ids = random_ids(1, 16);
      const auto logits = [&] {
        Random masks(5);
        return model.forward(ids, {.training = training, .random = &masks}).value();
      };
      const Tensor before = logits();
      for (Index t = 15; t >= 1; --t) {
        ids.ints()[t] = (ids.ints()[t] + 1) % std::int32_t(vocabulary);
        const Tensor after = logits();
        const float *a = before.data(), *b = after.data();
        CHECK(std::equal(a, a + t * vocabulary, b));
        CHECK_FALSE(std::equal(a + t * vocabulary, a + (t + 1) * vocabulary, b + t * vocabulary));
      }
    }
}

TEST_CASE("q and k are normalised where that is asked for") {
  for (const QkNorm norm : {QkNorm::l2, QkNorm::rms}) {
    Random random(1);
    Parameters parameters;
    const MultiHeadAttention attention(Scope(parameters, random), 16, {.heads = 2, .floor = 0.1f, .qk_norm = norm},
                                       Initialisation::xavier());
    Tensor x = Tensor::empty({1, 3, 16});
    for (Index i = 0; i < 48; ++i) x.data()[i] = std::sin(float(i));
    const Tensor y = attention.project(Var(x)).value(), plain = attention.qkv.forward(Var(x)).value();
    for (Index t = 0; t < 3; ++t) {
      for (Index h = 0; h < 4; ++h) {  // two heads of q, two of k
        double squares = 0;
        for (Index c = 0; c < 8; ++c) squares += std::pow(double(y.data()[t * 48 + h * 8 + c]), 2);
        CHECK(squares == doctest::Approx(norm == QkNorm::l2 ? 1 : 8).epsilon(1e-4));
      }
      CHECK(std::equal(y.data() + t * 48 + 32, y.data() + t * 48 + 48, plain.data() + t * 48 + 32));
    }
  }
}

TEST_CASE("a text's class does not depend on its padding or on its batch") {
  for (const AttentionKind& kind : attention_kinds())
    for (const Pool pool : {Pool::mean, Pool::cls}) {
      CAPTURE(kind.name);
      Random random(1);
      ClassifierOptions options = small_classifier(kind.name);
      options.pool = pool;
      const Classifier model(options, random);
      const Tensor alone = random_ids(1, 5);
      Tensor batch = random_ids(2, 11, 9);
      std::fill_n(batch.ints(), 11, 0);
      std::copy_n(alone.ints(), 5, batch.ints());
      const Tensor together = model.forward(batch).value(), single = model.forward(alone).value();
      for (Index c = 0; c < 3; ++c) CHECK(together.data()[c] == doctest::Approx(single.data()[c]).epsilon(1e-4));
      for (Index c = 0; c < 3; ++c) CHECK(together.data()[c] != together.data()[3 + c]);
    }
}

TEST_CASE("a text of padding alone is encoded as zeros, and padding gets no gradient") {
  Random random(1);
  const Classifier model(small_classifier("flexformer_n"), random);
  Tensor ids = random_ids(2, 6);
  std::fill_n(ids.ints(), 6, 0);
  const Tensor encoded = model.encode(ids).value();
  for (Index c = 0; c < 16; ++c) CHECK(encoded.data()[c] == 0);
  CHECK(rms(encoded, 1, 2) > 0.1);
  Tape tape;
  tape.backward(sum(square(model.forward(ids))));
  for (const Parameter& parameter : model.parameters()) {
    CAPTURE(parameter.name);
    CHECK(std::isfinite(rms(parameter.var.grad())));
  }
  CHECK(rms(model.parameters()["token.weight"].var.grad(), 0, 1) == 0);
  CHECK(rms(model.parameters()["token.weight"].var.grad()) > 0);
}

TEST_CASE("two towers encode each text by itself and compare") {
  Random random(1);
  ClassifierOptions options = small_classifier("flexformer_n");
  options.two_tower = true;
  const Classifier model(options, random);
  CHECK(model.parameters()["head.weight"].var.shape() == Shape({3, 64}));
  const Tensor a = random_ids(2, 6), b = random_ids(2, 9, 2);
  const Tensor u = model.encode(a).value(), v = model.encode(b).value(), got = model.forward(a, b).value();
  const float* w = model.parameters()["head.weight"].var.value().data();
  for (Index r = 0; r < 2; ++r)
    for (Index k = 0; k < 3; ++k) {
      double expected = 0;
      for (Index c = 0; c < 16; ++c) {
        const double x = u.data()[r * 16 + c], y = v.data()[r * 16 + c];
        const float* row = w + k * 64 + c;
        expected += row[0] * x + row[16] * y + row[32] * std::abs(x - y) + row[48] * x * y;
      }
      CHECK(got.data()[r * 3 + k] == doctest::Approx(expected).epsilon(1e-4));
    }
  CHECK_THROWS_WITH_AS(model.forward(a), doctest::Contains("compares two texts; it was given one"), Error);
  CHECK_THROWS_WITH_AS(model.forward(a, random_ids(3, 6)), doctest::Contains("2 first texts, but 3 second"), Error);
  const Classifier single(small_classifier("linear"), random);
  CHECK_THROWS_WITH_AS(single.forward(a, b), doctest::Contains("reads one text; it was given two"), Error);
}

TEST_CASE("a sequence may fill the position table but not pass its end") {
  Random random(1);
  const LanguageModel model(small("flexformer_n"), random);
  CHECK(model.forward(random_ids(1, 16)).shape() == Shape({1, 16, vocabulary}));
  const char* message = "a sequence of 17 tokens, but the position table has 16 rows; shorten it, or train with";
  CHECK_THROWS_WITH_AS(model.forward(random_ids(1, 17)), doctest::Contains(message), Error);
}

TEST_CASE("a kind with an end serves its context and nothing longer, whatever the positions") {
  Random random(1);
  LanguageModelOptions options = small("cosformer");
  options.position = Position::none;
  const LanguageModel model(options, random);
  CHECK(model.has_end());
  CHECK(model.forward(random_ids(1, 16)).shape() == Shape({1, 16, vocabulary}));
  CHECK_THROWS_WITH_AS(model.forward(random_ids(1, 17)),
                       doctest::Contains("cosformer is set up for at most 16 tokens, got 17"), Error);
  Parameters parameters;
  CHECK_THROWS_WITH_AS(
      MultiHeadAttention(Scope(parameters, random), 16, {.kind = "cosformer", .floor = 0}, Initialisation::xavier()),
      doctest::Contains("cosformer needs to know the longest sequence"), Error);
}

TEST_CASE("input that does not fit is refused") {
  Random random(1);
  const LanguageModel model(small("flexformer_n"), random);
  CHECK_THROWS_WITH_AS(model.forward(column(random_ids(2, 3), 0)),
                       doctest::Contains("token numbers must be [batch, time], got [2]"), Error);
}

TEST_CASE("grouped heads equal heads whose keys and values are repeated, gradients summed") {
  for (const char* kind : {"softmax", "flexformer_n"}) {
    CAPTURE(kind);
    Random random(2);
    Parameters grouped_parameters, full_parameters;
    const AttentionOptions options{.kind = kind, .heads = 4, .kv_heads = 2, .floor = 0.1f, .rope = true};
    AttentionOptions full_options = options;
    full_options.kv_heads = 0;
    const MultiHeadAttention grouped(Scope(grouped_parameters, random), 16, options, Initialisation::xavier());
    const MultiHeadAttention full(Scope(full_parameters, random), 16, full_options, Initialisation::xavier());
    CHECK(grouped.qkv.weight.shape() == Shape({32, 16}));
    for (const Parameter& parameter :
         full_parameters)  // heads 0 and 1 of k and v are the group's first, 2 and 3 its second
      for (Index to = 0; to < parameter.var.size(0); ++to) {
        const Index heads_of_4 = to / 4, part = heads_of_4 / 4;
        const bool packed = parameter.name.starts_with("qkv.");
        const Index from = !packed || part == 0 ? to : 16 + (part - 1) * 8 + heads_of_4 % 4 / 2 * 4 + to % 4;
        Tensor y = parameter.var.value();
        const Tensor x = grouped_parameters[parameter.name].var.value();
        const Index row = y.numel() / y.size(0);
        std::copy_n(x.data() + from * row, row, y.data() + to * row);
      }
    Tensor x = Tensor::empty({2, 5, 16});
    for (Index i = 0; i < x.numel(); ++i) x.data()[i] = std::sin(float(i));
    const auto run = [&](const MultiHeadAttention& attention) {
      Tape tape;
      const Var y = attention.forward(Var(x), {.causal = true, .key_mask = {}});
      tape.backward(sum(square(y)));
      return y.value().to_vector();
    };
    CHECK(run(grouped) == run(full));
    const Tensor dw = grouped.qkv.weight.grad(), dfull = full.qkv.weight.grad();
    for (Index r = 0; r < 4; ++r)
      for (Index c = 0; c < 16; ++c) {
        const auto at = [&](Index row) { return double(dfull.data()[(row + r) * 16 + c]); };
        CHECK(dw.data()[(16 + r) * 16 + c] == doctest::Approx(at(16) + at(20)).epsilon(1e-4));
        CHECK(dw.data()[(28 + r) * 16 + c] == doctest::Approx(at(40) + at(44)).epsilon(1e-4));
      }
  }
  Random random(1);
  LanguageModelOptions options = small("softmax");
  options.transformer.attention.kv_heads = 3;
  CHECK_THROWS_WITH_AS(LanguageModel(options, random),
                       doctest::Contains("2 heads of queries cannot share 3 heads of keys"), Error);
}

TEST_CASE("keys that start as copies of queries are those of each group's first head") {
  Random random(1);
  Parameters parameters;
  const MultiHeadAttention attention(Scope(parameters, random), 16,
                                     {.heads = 4, .kv_heads = 2, .floor = 0.1f, .tie_qk_init = true},
                                     Initialisation::xavier());
  const float* w = attention.qkv.weight.value().data();
  CHECK(std::equal(w, w + 4 * 16, w + 16 * 16));
  CHECK(std::equal(w + 8 * 16, w + 12 * 16, w + 20 * 16));
}

TEST_CASE("an MLP computes what its activation says") {
  const auto f = [](Activation activation, double x) {
    if (activation == Activation::relu) return std::max(x, 0.0);
    if (activation == Activation::gelu_erf) return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    if (activation == Activation::swiglu) return x / (1 + std::exp(-x));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  for (const char* name : {"gelu", "gelu_erf", "relu", "swiglu"}) {
    CAPTURE(name);
    const Activation activation = activation_from(name);
    Random random(4);
    Parameters parameters;
    const Mlp layer(Scope(parameters, random), 1, 3, Init::normal(1), Init::normal(1), {activation, false});
    CHECK(parameters.size() == (activation == Activation::swiglu ? 3 : 2));
    const auto weight = [](const Linear& map, Index i) { return double(map.weight.value().data()[i]); };
    double expected = 0.5;
    for (Index i = 0; i < 3; ++i)
      expected += weight(layer.down, i) * (activation == Activation::swiglu
                                               ? f(activation, 2 * weight(layer.gate, i)) * 2 * weight(layer.up, i)
                                               : f(activation, 2 * weight(layer.up, i)));
    const Var y = layer.forward(Var(Tensor::full({1, 1}, 2)), Var(Tensor::full({1, 1}, 0.5f)));
    CHECK(y.value().item() == doctest::Approx(expected).epsilon(1e-5));
  }
  CHECK_THROWS_WITH_AS(activation_from("tanh"), doctest::Contains("there are gelu, gelu_erf, relu, swiglu"), Error);
  CHECK_THROWS_WITH_AS(norm_kind_from("batch"), doctest::Contains("there are layer, rms"), Error);
}

TEST_CASE("a token's type is the number of separators before it, and any token may be padding") {
  Random random(1);
  ClassifierOptions options = small_classifier("softmax");
  options.pool = Pool::cls;
  options.token_types = 2;
  options.separator = 3;
  options.padding = 5;
  options.position_offset = 2;
  options.pooler = options.norm_embeddings = true;
  const Classifier model(options, random);
  CHECK(model.parameters()["position.weight"].var.shape() == Shape({18, 16}));
  const auto logits = [&](const std::vector<std::int32_t>& ids) {
    return model.forward(Tensor::from_ints({1, Index(ids.size())}, ids)).value().to_vector();
  };
  const std::vector<float> before = logits({1, 3, 2, 3, 4}), single = logits({1, 2, 3});
  CHECK(logits({1, 3, 2, 3, 4, 5, 5})[0] == doctest::Approx(before[0]).epsilon(1e-4));
  Tensor types = model.parameters()["type.weight"].var.value();
  std::fill_n(types.data() + 16, 8, 3.0f);  // changes texts with something behind a separator alone
  CHECK(logits({1, 3, 2, 3, 4}) != before);
  CHECK(logits({1, 2, 3}) == single);
}
