// The classifier; its members are built in the order of parameters().
#include "nn/classifier.h"

#include <algorithm>

namespace flexformer {
namespace {

ClassifierOptions resolved(ClassifierOptions options) {
  AttentionOptions& attention = options.transformer.attention;
  if (attention.floor < 0) attention.floor = attention_kind(attention.kind).classifier_floor;
  attention.rope = options.position == Position::rope;
  attention.max_length = options.max_length;
  return options;
}

Initialisation start_of(const ClassifierOptions& options) {
  return options.xavier_start ? Initialisation::xavier()
                              : Initialisation::gpt(options.transformer.dim, options.transformer.layers);
}

InputOptions input_of(const ClassifierOptions& options) {
  return {.vocabulary = options.vocabulary,
          .block = options.max_length,
          .position = options.position,
          .sinusoidal_start = options.sinusoidal_start,
          .dropout = options.transformer.dropout,
          .padding = Classifier::padding};
}

// i32 [B,T], 1 where there is a token; undefined if there is no padding at all, which is faster.
Tensor visible_keys(const Tensor& ids) {
  Tensor mask = Tensor::empty(ids.shape(), DType::i32);
  const std::int32_t* id = ids.ints();
  std::transform(id, id + ids.numel(), mask.ints(), [](std::int32_t i) { return i != Classifier::padding; });
  return std::find(id, id + ids.numel(), Classifier::padding) == id + ids.numel() ? Tensor() : mask;
}

// [B,1,T]: one over a text's number of tokens where there is one, else 0.
Tensor mean_weights(const Tensor& ids) {
  const Index B = ids.size(0), T = ids.size(1);
  Tensor weights = Tensor::empty({B, 1, T});
  for (Index b = 0; b < B; ++b) {
    const std::int32_t* row = ids.ints() + b * T;
    const Index tokens = T - std::count(row, row + T, Classifier::padding);
    for (Index t = 0; t < T; ++t)
      weights.data()[b * T + t] = row[t] == Classifier::padding ? 0.0f : 1.0f / float(tokens);
  }
  return weights;
}

}  // namespace

Pool pool_from(const std::string& name) {
  if (name == "mean") return Pool::mean;
  if (name == "cls") return Pool::cls;
  fail("there is no pooling called '", name, "'; there are mean, cls");
}

Classifier::Classifier(const ClassifierOptions& options, Random& random)
    : options_(resolved(options)),
      input_(Scope(parameters_, random), options.transformer.dim, input_of(options), start_of(options)),
      transformer_(Scope(parameters_, random), options_.transformer, start_of(options)),
      head_(Scope(parameters_, random).sub("head"), (options.two_tower ? 4 : 1) * options.transformer.dim,
            options.classes, start_of(options).matrix) {}

Var Classifier::encode(const Tensor& ids, const Pass& pass) const {
  const Var h = transformer_.forward(input_.forward(ids, 0, pass), {.key_mask = visible_keys(ids)}, pass);
  const Shape pooled = {ids.size(0), options_.transformer.dim};
  if (options_.pool == Pool::cls) return reshape(slice(h, 1, 0, 1), pooled);
  return reshape(matmul(Var(mean_weights(ids)), h), pooled);
}

Var Classifier::forward(const Tensor& ids, const Pass& pass) const {
  check("classifier", !options_.two_tower, "this model compares two texts; it was given one");
  return head_.forward(encode(ids, pass));
}

Var Classifier::forward(const Tensor& ids_a, const Tensor& ids_b, const Pass& pass) const {
  check("classifier", options_.two_tower, "this model reads one text; it was given two");
  check("classifier", ids_a.size(0) == ids_b.size(0), ids_a.size(0), " first texts, but ", ids_b.size(0),
        " second ones");
  const Var u = encode(ids_a, pass), v = encode(ids_b, pass);
  return head_.forward(concat({u, v, abs(u - v), u * v}, 1));
}

}  // namespace flexformer
