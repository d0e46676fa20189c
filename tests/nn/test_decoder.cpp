// Decoding against whole sequences: prompts at once and token by token, several sequences side by side, rounded
// weights.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "nn/decoder.h"
#include "tensor/parallel.h"
#include "tests/nn/small_models.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

using Ids = std::span<const std::int32_t>;

// Row t of the logits [1,T,V] of a whole sequence against [.., V], row r.
double distance(const Tensor& whole, Index t, const Tensor& logits, Index r = 0) {
  double worst = 0;
  for (Index v = 0; v < vocabulary; ++v) {
    const double error = std::abs(logits.data()[r * vocabulary + v] - whole.data()[t * vocabulary + v]);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

// What is remembered of a sequence, as numbers.
std::vector<float> memory_of(const DecodeState& state) {
  std::vector<float> all;
  for (const AttentionState& layer : state.layers) {
    for (const Tensor* x : {&layer.sums, &layer.weight_sum, &layer.max})
      if (x->defined()) all.insert(all.end(), x->data(), x->data() + x->numel());
    for (const Tensor* x : {&layer.keys, &layer.values})
      for (Index h = 0; x->defined() && h < x->size(0); ++h)
        all.insert(all.end(), x->data() + h * x->size(1) * x->size(2),
                   x->data() + (h * x->size(1) + state.length) * x->size(2));
  }
  return all;
}

void check_decoding(const LanguageModelOptions& options) {
  Random random(3);
  const LanguageModel model(options, random);
  Decoder decoder(model);
  const Index T = options.block;
  const Tensor ids = random_ids(1, T);
  const Tensor whole = model.forward(ids).value();
  const Ids all(ids.ints(), std::size_t(T));
  DecodeState stepped;
  std::vector<std::vector<float>> memories;
  for (Index t = 0; t < T; ++t) {
    CHECK(distance(whole, t, decoder.feed(all.subspan(std::size_t(t), 1), stepped)) < 2e-5);
    memories.push_back(memory_of(stepped));
  }
  CHECK(stepped.length == T);
  // A prompt at once leaves the same state and goes on the same: from one, few and many rows of products.
  for (const Index prompt : {1, 2, 7, 17, 64, 65, 69}) {
    CAPTURE(prompt);
    DecodeState state;
    CHECK(distance(whole, prompt - 1, decoder.feed(all.first(std::size_t(prompt)), state)) < 2e-5);
    const std::vector<float> at_once = memory_of(state), &one_by_one = memories[std::size_t(prompt - 1)];
    REQUIRE(at_once.size() == one_by_one.size());
    double worst = 0;
    for (std::size_t i = 0; i < at_once.size(); ++i)
      worst = std::max(worst, std::abs(double(at_once[i]) - one_by_one[i]) / (1 + std::abs(double(one_by_one[i]))));
    CHECK(worst < 2e-5);
    CHECK(distance(whole, T - 1, decoder.feed(all.subspan(std::size_t(prompt)), state)) < 2e-5);
  }
}

}  // namespace

TEST_CASE("decoding equals the whole sequence, for every kind, position and norm, prompts at once and by token") {
  struct Row {
    Position position;
    QkNorm norm;
    void (*shape)(LanguageModelOptions&) = [](LanguageModelOptions&) {};
  };
  for (const AttentionKind& kind : attention_kinds())
    for (const Row row :
         {Row{Position::learned, QkNorm::none}, Row{Position::sinusoidal, QkNorm::none},
          Row{Position::rope, QkNorm::none}, Row{Position::none, QkNorm::none}, Row{Position::rope, QkNorm::l2},
          Row{Position::none, QkNorm::rms}, Row{Position::rope, QkNorm::none, like_llama},
          Row{Position::learned, QkNorm::none, like_bert}, Row{Position::rope, QkNorm::rms, like_llama}}) {
      CAPTURE(kind.name);
      CAPTURE(int(row.position));
      CAPTURE(int(row.norm));
      LanguageModelOptions options = small(kind.name);
      options.block = 70;  // past the first capacity of a key-value cache
      options.position = row.position;
      options.transformer.attention.qk_norm = row.norm;
      options.transformer.attention.features = 5;
      row.shape(options);
      check_decoding(options);
    }
}

TEST_CASE("sequences side by side give the bits that each gives alone, whatever their number, lengths and threads") {
  for (const char* kind : {"softmax", "flexformer_n", "polaformer"})
    for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
      LanguageModelOptions options = small(kind);
      options.position = Position::rope;
      like_llama(options);
      Random random(3);
      const LanguageModel model(options, random);
      Decoder decoder(model, format);
      constexpr Index count = 11;  // more than products take at a time
      const Tensor ids = random_ids(count, 16);
      std::vector<DecodeState> alone(count), beside(count);
      std::vector<DecodeState*> states;
      for (Index s = 0; s < count; ++s) {
        const Ids prompt(ids.ints() + s * 16, std::size_t(1 + s % 5));
        decoder.feed(prompt, alone[std::size_t(s)]);
        decoder.feed(prompt, beside[std::size_t(s)]);
        states.push_back(&beside[std::size_t(s)]);
      }
      for (Index t = 5; t < 9; ++t) {
        std::vector<std::int32_t> next;
        std::vector<float> wanted;
        for (Index s = 0; s < count; ++s) {
          next.push_back(ids.ints()[s * 16 + t]);
          const Tensor& row = decoder.feed(std::span(&next.back(), 1), alone[std::size_t(s)]);
          wanted.insert(wanted.end(), row.data(), row.data() + vocabulary);
        }
        set_threads(1 + int(t % 3));
        CHECK(decoder.step(next, states).to_vector() == wanted);
        set_threads(0);
      }
    }
}

TEST_CASE("rounded weights are off by half a step at most, and a decoder of them is the model that has them") {
  const Tensor matrix = Tensor::empty({130, 33});
  Random random(5);
  for (Index i = 0; i < matrix.numel(); ++i)
    const_cast<float*>(matrix.data())[i] =
        i / 33 == 7 ? 0.0f : float((random.uniform() - 0.5) * std::pow(10.0, i / 33 % 5));
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
    const Weights weights(matrix, format);
    CHECK(weights.bytes() == matrix.numel() * weights.in().bytes());
    const Tensor back = weights.unpacked(0, 130);
    for (Index o = 0; o < 130; ++o) {
      const float* row = matrix.data() + o * 33;
      const float most =
          std::abs(*std::max_element(row, row + 33, [](float a, float b) { return std::abs(a) < std::abs(b); }));
      for (Index i = 0; i < 33; ++i) {
        const float error = std::abs(back.data()[o * 33 + i] - row[i]);
        CHECK(error <= (format == WeightFormat::f32    ? 0.0f
                        : format == WeightFormat::bf16 ? std::abs(row[i]) / 256
                                                       : most / 254 * 1.0001f));
      }
    }
    CHECK(same_numbers(Weights(back, format).unpacked(0, 130), back));
  }
  for (const bool tie : {false, true})
    for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::int8}) {
      LanguageModelOptions options = small("flexformer_n");
      options.tie = tie;
      like_llama(options);
      Random start(3);
      auto model = std::make_unique<LanguageModel>(options, start);
      Decoder decoder(*model, format);
      const Tensor ids = random_ids(1, 16), exact = model->forward(ids).value();
      round_weights(*model, format);
      const Tensor whole = model->forward(ids).value();
      model.reset();  // the decoder has weights of its own
      DecodeState stepped, at_once;
      for (Index t = 0; t < 16; ++t) CHECK(distance(whole, t, decoder.feed(Ids(ids.ints() + t, 1), stepped)) < 1e-5);
      CHECK(distance(whole, 15, decoder.feed(Ids(ids.ints(), 16), at_once)) < 1e-5);
      CHECK(!same_numbers(whole, exact));
    }
}

TEST_CASE("weights take the bytes of their format, with tied tables counted once") {
  const auto bytes = [](bool tie, WeightFormat format) {
    LanguageModelOptions options = small("softmax");
    options.tie = tie;
    options.position = Position::rope;
    Random random(1);
    const LanguageModel model(options, random);
    return Decoder(model, format).weight_bytes();
  };
  constexpr Index blocks = 2 * (3 * 16 * 16 + 16 * 16 + 2 * 16 * 32), table = vocabulary * 16;
  CHECK(bytes(true, WeightFormat::f32) == 4 * (blocks + table));
  CHECK(bytes(false, WeightFormat::bf16) == 2 * (blocks + 2 * table));
  CHECK(bytes(true, WeightFormat::int8) == blocks + table);
}

TEST_CASE("the state of a linear kind does not grow, a key-value cache does") {
  for (const AttentionKind& kind : attention_kinds()) {
    Random random(3);
    LanguageModelOptions options = small(kind.name);
    options.position = Position::none;
    options.block = 256;
    const LanguageModel model(options, random);
    Decoder decoder(model);
    DecodeState state;
    const std::int32_t id = 1;
    decoder.feed(std::span(&id, 1), state);
    const Index first = state.bytes();
    const Index M = kind.is_linear ? feature_count(kind.features, 8, 8) : 0;
    if (kind.is_linear) CHECK(first == 2 * 2 * 4 * (M * 9 + 2));  // layers, heads, bytes, M (d+1) + 2
    for (int t = 0; t < 200; ++t) decoder.feed(std::span(&id, 1), state);
    CAPTURE(kind.name);
    CHECK((state.bytes() == first) == kind.is_linear);
    CHECK(state.bytes() >= (kind.is_linear ? 0 : 2 * 2 * 201 * 16 * 4));
  }
}

TEST_CASE("a decoder refuses what does not fit, and a model's end") {
  Random random(1);
  LanguageModelOptions no_positions = small("cosformer");
  no_positions.position = Position::none;
  const LanguageModel learned(small("flexformer_n"), random), cosformer(no_positions, random);
  const Tensor ids = random_ids(1, 17);
  const std::pair<const LanguageModel*, const char*> ends[] = {
      {&learned, "a sequence of 17 tokens, but the position table has 16 rows; shorten it, or train with"},
      {&cosformer, "cosformer has its end at 16 tokens"}};
  for (const auto& [model, message] : ends) {
    Decoder decoder(*model);
    DecodeState state, at_once;
    decoder.feed(Ids(ids.ints(), 16), state);
    CHECK_THROWS_WITH_AS(decoder.feed(Ids(ids.ints() + 16, 1), state), doctest::Contains(message), Error);
    CHECK_THROWS_WITH_AS(decoder.feed(Ids(ids.ints(), 17), at_once), doctest::Contains(message), Error);
  }
  Decoder decoder(learned);
  DecodeState state, other;
  DecodeState* const two[] = {&state, &other};
  const std::int32_t outside = vocabulary, one = 1;
  CHECK_THROWS_WITH_AS(decoder.feed({}, state), doctest::Contains("no token"), Error);
  CHECK_THROWS_WITH_AS(decoder.feed(std::span(&outside, 1), state),
                       doctest::Contains("id 17 is outside the vocabulary of 17"), Error);
  CHECK_THROWS_WITH_AS(decoder.step(std::span(&one, 1), two), doctest::Contains("1 tokens for 2 sequences"), Error);
  decoder.feed(std::span(&one, 1), state);
  state.layers.resize(1);
  CHECK_THROWS_WITH_AS(decoder.feed(std::span(&one, 1), state),
                       doctest::Contains("the state has 1 layers, the model 2"), Error);
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(decoder.feed(std::span(&one, 1), other), doctest::Contains("close the tape first"), Error);
  }
  Tensor weight = learned.head().weight.value();
  weight.data()[20] = HUGE_VALF;
  CHECK_THROWS_WITH_AS(Decoder(learned, WeightFormat::int8),
                       doctest::Contains("row 1 of a matrix [17,16] holds a number that is not finite"), Error);
}
