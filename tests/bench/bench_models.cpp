#include "tests/bench/bench_models.h"

#include <algorithm>
#include <memory>

#include "nn/classifier.h"
#include "nn/decoder.h"
#include "nn/optim.h"

namespace flexformer::bench {
namespace {

constexpr Index encoder_tokens = 8192;

LanguageModelOptions options_of(const LanguageShape& shape, const AttentionKind& kind) {
  LanguageModelOptions options{.vocabulary = shape.vocabulary, .block = shape.block, .tie = true};
  options.transformer.dim = shape.dim;
  options.transformer.layers = shape.layers;
  options.transformer.attention = {.kind = kind.name, .heads = shape.heads};
  return options;
}

struct Training {
  Training(const LanguageShape& shape, const AttentionKind& kind)
      : model(options_of(shape, kind), random, target),
        optimizer(model.parameters(), {}),
        ids(random_ids({shape.batch, shape.block}, 0, shape.vocabulary, 1)),
        targets(random_ids({shape.batch, shape.block}, 0, shape.vocabulary, 2)) {}

  void step() {
    model.parameters().clear_grads();
    Tape tape;
    tape.backward(model.loss(ids, targets, {}));
    optimizer.step(1e-4);
  }

  Random random{1};
  LanguageModel model;
  Optimizer optimizer;
  Tensor ids, targets;
};

ClassifierOptions encoder_options(const AttentionKind& kind, Index N) {
  ClassifierOptions options{.vocabulary = 256, .classes = 10, .max_length = N};
  options.transformer = {.dim = 128, .layers = 2, .attention = {.kind = kind.name, .heads = 4}};
  return options;
}

struct Encoding {
  Encoding(const AttentionKind& kind, Index N)
      : model(encoder_options(kind, N), random, target),
        ids(random_ids({std::max<Index>(1, encoder_tokens / N), N}, 1, 256, 1)),
        classes(random_ids({ids.size(0)}, 0, 10, 2)) {}

  void pass() {
    model.parameters().clear_grads();
    Tape tape;
    tape.backward(cross_entropy(model.forward(ids), classes));
  }

  Random random{1};
  Classifier model;
  Tensor ids, classes;
};

constexpr Index decoded = 1000;  // tokens that may follow the context, more than --repeats allows

struct Decoding {
  Decoding(const AttentionKind& kind, Index longest_context)
      : model(options_of(with_block(longest_context + decoded + 1), kind), random, target),
        ids(random_ids({model.options().block}, 0, model.options().vocabulary, 1)) {}

  static LanguageShape with_block(Index block) {
    LanguageShape shape = language_shapes[0];
    shape.block = block;
    return shape;
  }
  void next() { decoder.feed(std::span(ids.ints() + state.length, 1), state); }
  // The context's first tokens at once, if it begins here.
  void feed(Index context) {
    if (state.length == 0) decoder.feed(std::span(ids.ints(), std::size_t(context)), state);
    while (state.length < context) next();
  }

  Random random{1};
  LanguageModel model;
  Decoder decoder{model};
  Tensor ids;
  DecodeState state;
};

std::string per_second(double tokens, double seconds) { return cell(Index(tokens / seconds), 11); }

}  // namespace

Case step_case(const LanguageShape& shape, const AttentionKind& kind) {
  const auto prepare = [shape, kind]() -> Call {
    const auto training = std::make_shared<Training>(shape, kind);
    return [training] { training->step(); };
  };
  return {text("step:", shape.name, ":", kind.name), double(shape.batch * shape.block), shape.all_kinds ? 7 : 3, 0,
          prepare};
}

Case encoder_case(const AttentionKind& kind, Index N) {
  const auto prepare = [kind, N]() -> Call {
    const auto encoding = std::make_shared<Encoding>(kind, N);
    return [encoding] { encoding->pass(); };
  };
  return {text("encoder:", kind.name, ":", N), double(std::max(N, encoder_tokens)), 3, 0, prepare};
}

Case decode_case(const AttentionKind& kind, Index context) {
  const auto prepare = [kind, context]() -> Call {
    const auto decoding = std::make_shared<Decoding>(kind, context);
    decoding->feed(context);
    return [decoding] { decoding->next(); };
  };
  return {text("decode:", kind.name, ":", context), 1, 64, 0, prepare};
}

Json steps(Console& console) {
  Json rows = Json::array();
  for (const LanguageShape& shape : language_shapes) {
    console.say(text("\ntraining step, ", shape.name, " language model (", shape.layers, " layers, dim ", shape.dim,
                     ", ffn ", 4 * shape.dim, ", vocabulary ", grouped(shape.vocabulary), ", ", shape.batch, " x ",
                     shape.block, " tokens)"));
    console.say("       attention   ms/step   tokens/s   peak of tensors   of the process");
    for (const AttentionKind& kind : attention_kinds()) {
      if (!shape.all_kinds && kind.is_linear && kind.name != std::string("flexformer_n")) continue;
      const Case subject = step_case(shape, kind);
      const Measurement m = measure(subject);
      const double seconds = median(m.seconds);
      console.say(cell(kind.name, 16) + cell(1e3 * seconds, 1, 10) + per_second(subject.work, seconds) +
                  memory_cell(m.peak_tensor_bytes, 18) + memory_cell(m.peak_rss_bytes, 17));
      rows.push_back({{"shape", shape.name},
                      {"attention", kind.name},
                      {"ms", 1e3 * seconds},
                      {"tokens_per_second", subject.work / seconds},
                      {"peak_tensor_bytes", m.peak_tensor_bytes},
                      {"peak_rss_bytes", m.peak_rss_bytes}});
    }
  }
  return rows;
}

Json encoder(Console& console) {
  console.say(
      "\nencoder, forward + backward (2 layers, dim 128, ffn 512), 8,192 tokens in sequences of N: ms, and peak of the "
      "process");
  std::string head = cell("N", 8);
  for (const AttentionKind& kind : attention_kinds()) head += cell(kind.name, 22);
  console.say(head);
  Json rows = Json::array();
  for (const Index N : {256, 1024, 4096}) {
    std::string line = cell(N, 8);
    for (const AttentionKind& kind : attention_kinds()) {
      const Measurement m = measure(encoder_case(kind, N));
      const double seconds = median(m.seconds);
      line += cell(1e3 * seconds, 1, 11) + memory_cell(m.peak_rss_bytes, 11);
      rows.push_back({{"attention", kind.name},
                      {"N", N},
                      {"ms", 1e3 * seconds},
                      {"peak_tensor_bytes", m.peak_tensor_bytes},
                      {"peak_rss_bytes", m.peak_rss_bytes}});
    }
    console.say(line);
  }
  return rows;
}

Json decode(Console& console) {
  console.say("\ndecoding with the small language model, one sequence: tokens/s, and bytes of the state");
  constexpr Index contexts[] = {128, 512, 2048, 8192};
  std::string head = cell("attention", 16);
  for (const Index context : contexts) head += cell(text("at ", grouped(context)), 23);
  console.say(head);
  Json rows = Json::array();
  for (const AttentionKind& kind : attention_kinds()) {
    std::string line = cell(kind.name, 16);
    Decoding decoding(kind, std::ranges::max(contexts));
    for (const Index context : contexts) {
      decoding.feed(context);
      const Index bytes = decoding.state.bytes();
      const double seconds = medians_in_turns(64, 0, {[&] { decoding.next(); }})[0];
      line += per_second(1, seconds) + cell(bytes, 12);
      rows.push_back(
          {{"attention", kind.name}, {"context", context}, {"tokens_per_second", 1 / seconds}, {"state_bytes", bytes}});
    }
    console.say(line);
  }
  return rows;
}

}  // namespace flexformer::bench
