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
          .position_offset = options.position_offset,
          .token_types = options.token_types,
          .norm_embeddings = options.norm_embeddings,
          .norm = options.transformer.norm,
          .sinusoidal_start = options.sinusoidal_start,
          .dropout = options.transformer.dropout,
          .padding = options.padding};
}

// i32 [B,T], 1 where there is a token; undefined if there is no padding at all, which is faster.
Tensor visible_keys(const Tensor& ids, std::int32_t padding) {
  Tensor mask = Tensor::empty(ids.shape(), DType::i32);
  const std::int32_t* id = ids.ints();
  std::transform(id, id + ids.numel(), mask.ints(), [=](std::int32_t i) { return i != padding; });
  return std::find(id, id + ids.numel(), padding) == id + ids.numel() ? Tensor() : mask;
}

// [B,1,T]: one over a text's number of tokens where there is one, else 0.
Tensor mean_weights(const Tensor& ids, std::int32_t padding) {
  const Index B = ids.size(0), T = ids.size(1);
  Tensor weights = Tensor::empty({B, 1, T});
  for (Index b = 0; b < B; ++b) {
    const std::int32_t* row = ids.ints() + b * T;
    const Index tokens = T - std::count(row, row + T, padding);
    for (Index t = 0; t < T; ++t) weights.data()[b * T + t] = row[t] == padding ? 0.0f : 1.0f / float(tokens);
  }
  return weights;
}

// i32 [B,T]: how many separators stand before each token, `types` - 1 at most.
Tensor token_types(const Tensor& ids, std::int32_t separator, Index types) {
  Tensor out = Tensor::zeros(ids.shape(), DType::i32);
  const Index T = ids.size(1);
  for (Index i = 0; i < ids.numel(); ++i)
    if (i % T > 0)
      out.ints()[i] = std::int32_t(std::min(types - 1, Index(out.ints()[i - 1]) + (ids.ints()[i - 1] == separator)));
  return out;
}

Linear make_pooler(const Scope& scope, const ClassifierOptions& options) {
  const Index dim = options.transformer.dim;
  return options.pooler ? Linear(scope, dim, dim, start_of(options).matrix) : Linear();
}

}  // namespace

Pool pool_from(const std::string& name) {
  if (name == "mean") return Pool::mean;
  if (name == "cls") return Pool::cls;
  fail("there is no pooling called '", name, "'; there are mean, cls");
}

Classifier::Classifier(const ClassifierOptions& options, Random& random, Device device)
    : options_(resolved(options)),
      parameters_(device),
      input_(Scope(parameters_, random), options.transformer.dim, input_of(options), start_of(options)),
      transformer_(Scope(parameters_, random), options_.transformer, start_of(options)),
      pooler_(make_pooler(Scope(parameters_, random).sub("pooler"), options)),
      head_(Scope(parameters_, random).sub("head"), (options.two_tower ? 4 : 1) * options.transformer.dim,
            options.classes, start_of(options).matrix) {}

std::vector<Tensor> Classifier::inputs(const Tensor& given) const {
  check("model", given.rank() == 2, "token numbers must be [batch, time], got ", given.shape());
  const Tensor ids = given.to(Device::cpu);
  const bool typed = options_.token_types > 1 && options_.separator >= 0;
  return {ids, visible_keys(ids, options_.padding),
          options_.pool == Pool::cls ? Tensor() : mean_weights(ids, options_.padding),
          typed ? token_types(ids, options_.separator, options_.token_types) : Tensor()};
}

std::vector<Tensor> Classifier::inputs(const Tensor& ids_a, const Tensor& ids_b) const {
  check("classifier", ids_a.size(0) == ids_b.size(0), ids_a.size(0), " first texts, but ", ids_b.size(0),
        " second ones");
  std::vector<Tensor> both = inputs(ids_a);
  for (Tensor& tensor : inputs(ids_b)) both.push_back(std::move(tensor));
  return both;
}

Var Classifier::encode(std::span<const Tensor> inputs, const Pass& pass) const {
  const Tensor &ids = inputs[0], &visible = inputs[1], &weights = inputs[2], &types = inputs[3];
  const Device device = parameters_.device();
  const Var embedded = input_.forward(ids, 0, pass, types);
  const Var h = transformer_.forward(embedded, {.key_mask = visible.to(device)}, pass);
  const Var first_or_mean = options_.pool == Pool::cls ? slice(h, 1, 0, 1) : matmul(Var(weights.to(device)), h);
  const Var pooled = reshape(first_or_mean, {ids.size(0), options_.transformer.dim});
  if (!options_.pooler) return pooled;
  const float p = options_.transformer.dropout;
  if (options_.pooler_relu) return dropout(relu(pooler_.forward(pooled)), p, pass);
  return dropout(tanh(pooler_.forward(dropout(pooled, p, pass))), p, pass);
}

Var Classifier::forward(std::span<const Tensor> inputs, const Pass& pass) const {
  const auto in_float = [&](std::span<const Tensor> of_text) { return cast(encode(of_text, pass), DType::f32); };
  if (!options_.two_tower) return head_.forward(in_float(inputs));
  const Var u = in_float(inputs.first(4)), v = in_float(inputs.last(4));
  return head_.forward(concat({u, v, abs(u - v), u * v}, 1));
}

Var Classifier::forward(const Tensor& ids, const Pass& pass) const {
  check("classifier", !options_.two_tower, "this model compares two texts; it was given one");
  return forward(inputs(ids), pass);
}

Var Classifier::forward(const Tensor& ids_a, const Tensor& ids_b, const Pass& pass) const {
  check("classifier", options_.two_tower, "this model reads one text; it was given two");
  return forward(inputs(ids_a, ids_b), pass);
}

}  // namespace flexformer
