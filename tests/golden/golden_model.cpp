// Golden cases of whole models: from given weights, twenty steps of AdamW with decay on every parameter, clipped.
// Compared are all losses, the logits and gradients of the first step, and the final weights.
#include <algorithm>
#include <cmath>
#include <memory>

#include "nn/classifier.h"
#include "nn/language_model.h"
#include "nn/optim.h"
#include "tests/golden/golden_runner.h"

namespace flexformer::golden {
namespace {

// One tensor of the files inside one parameter of ours: all of it, or a third of a joined projection.
struct Place {
  std::string theirs, ours;
  int part = -1;  // 0, 1, 2: the q, k or v rows of the joined projection
};

// Where every tensor of the files is found. `key_bias` is left out of comparisons: its gradient is exactly 0 under
// softmax, and Adam makes full steps of whatever rounding leaves there.
std::vector<Place> places_of(const Named& init) {
  std::vector<Place> places{{"tok_emb", "token.weight"}, {"pos_emb", "position.weight"}, {"lnf.w", "norm.weight"},
                            {"lnf.b", "norm.bias"},      {"head.w", "head.weight"},      {"head.b", "head.bias"}};
  const std::pair<const char*, const char*> in_layer[] = {
      {"ln1.w", "norm1.weight"}, {"ln1.b", "norm1.bias"},    {"wo", "attn.out.weight"}, {"bo", "attn.out.bias"},
      {"omega1", "attn.w1"},     {"omega2", "attn.w2"},      {"tau", "attn.tau"},       {"ln2.w", "norm2.weight"},
      {"ln2.b", "norm2.bias"},   {"ff.w1", "mlp.up.weight"}, {"ff.b1", "mlp.up.bias"},  {"ff.w2", "mlp.down.weight"},
      {"ff.b2", "mlp.down.bias"}};
  for (Index layer = 0; init.count(text("layer", layer, ".wq")); ++layer) {
    const std::string theirs = text("layer", layer, "."), ours = text("blocks.", layer, ".");
    for (const auto& [left, right] : in_layer) places.push_back({theirs + left, ours + right});
    for (int part = 0; part < 3; ++part) {
      places.push_back({theirs + "w" + "qkv"[part], ours + "attn.qkv.weight", part});
      places.push_back({theirs + "b" + "qkv"[part], ours + "attn.qkv.bias", part});
    }
  }
  std::erase_if(places, [&](const Place& place) { return !init.count(place.theirs); });
  if (places.size() != init.size()) fail("init holds a weight that these models do not have");
  return places;
}

// The numbers of ours, on the host, that a place stands for.
std::span<float> numbers_at(Tensor& tensor, const Place& place) {
  const Index n = place.part < 0 ? tensor.numel() : tensor.numel() / 3;
  return {tensor.data() + std::max(place.part, 0) * n, std::size_t(n)};
}

// Either of the two models.
struct Model {
  std::unique_ptr<LanguageModel> language;
  std::unique_ptr<Classifier> classifier;

  const Parameters& parameters() const { return language ? language->parameters() : classifier->parameters(); }
  Var logits(const Tensor& ids) const { return language ? language->forward(ids) : classifier->forward(ids); }
};

Model build(const Case& golden) {
  const auto size = [&](const char* name, int axis) {
    if (!golden.init.count(name)) fail("init lacks '", name, "'");
    return golden.init.at(name).shape[axis];
  };
  TransformerOptions transformer{
      .dim = size("tok_emb", 1), .layers = 0, .ffn = size("layer0.ff.w1", 0), .dropout = 0, .attention = {}};
  while (golden.init.count(text("layer", transformer.layers, ".wq"))) ++transformer.layers;
  transformer.attention.kind = golden.word("attention");
  transformer.attention.heads = 2;
  transformer.attention.floor = float(golden.number("delta", 0));
  transformer.attention.train_tau = true;
  if (golden.init.count("layer0.omega1")) transformer.attention.features = size("layer0.omega1", 1);
  Random random(1);
  Model model;
  if (golden.has_input("mask")) {
    model.classifier = std::make_unique<Classifier>(ClassifierOptions{.transformer = transformer,
                                                                      .vocabulary = size("tok_emb", 0),
                                                                      .classes = size("head.w", 0),
                                                                      .max_length = size("pos_emb", 0)},
                                                    random, golden.device);
  } else {
    LanguageModelOptions options;
    options.transformer = transformer;
    options.vocabulary = size("tok_emb", 0);
    options.block = size("pos_emb", 0);
    options.tie = golden.flag("tied_head");
    model.language = std::make_unique<LanguageModel>(options, random, golden.device);
  }
  return model;
}

void load(const Case& golden, const Parameters& parameters, const std::vector<Place>& places) {
  Index numbers = 0;
  std::map<std::string, Tensor> joined;  // the parameters' values, on the host
  for (const Place& place : places) {
    const Shape& shape = parameters[place.ours].var.shape();
    const auto ours = numbers_at(joined.try_emplace(place.ours, Tensor::zeros(shape)).first->second, place);
    const auto& theirs = golden.init.at(place.theirs).data;
    if (ours.size() != theirs.size()) fail(place.theirs, " does not fit into ", place.ours, " ", shape);
    std::copy(theirs.begin(), theirs.end(), ours.begin());
    numbers += Index(theirs.size());
  }
  if (numbers != parameters.count()) fail("init has ", numbers, " weights, the model ", parameters.count());
  for (const auto& [name, value] : joined) Var(parameters[name].var).value().copy_from(value);
}

// Calls compare(place, ours, theirs) for every tensor of `expected` but the key biases.
template <class Compare>
void compare_weights(const std::vector<Place>& places, const Named& expected, const Parameters& parameters,
                     bool gradients, Compare compare) {
  for (const Place& place : places) {
    if (place.theirs.ends_with(".bk")) continue;
    if (!expected.count(place.theirs)) fail("'", place.theirs, "' is missing from final or grads");
    const Var& parameter = parameters[place.ours].var;
    Tensor tensor = (gradients ? parameter.grad() : parameter.value()).to(Device::cpu);
    const auto ours = numbers_at(tensor, place);
    compare(place.theirs, std::vector<double>(ours.begin(), ours.end()), expected.at(place.theirs).data);
  }
}

double largest_difference(const std::vector<double>& ours, const std::vector<double>& theirs) {
  if (ours.size() != theirs.size()) return NAN;
  double most = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double error = std::fabs(ours[i] - theirs[i]);
    if (!(error <= most)) most = error;
  }
  return most;
}

}  // namespace

void run_trajectory(const Case& golden, Verdict& verdict) {
  const Model model = build(golden);
  const auto places = places_of(golden.init);
  load(golden, model.parameters(), places);
  // How far float32 strays from float64 on this very run, as recorded with it.
  const double drift = golden.number("torch_float32_max_rel_loss_deviation", 0);
  const double weight_drift = golden.number("torch_float32_max_abs_weight_deviation",
                                            golden.number("torch_float32_max_abs_weight_deviation_excluding_bk", 0));
  const double limit = std::max(10 * drift, 1e-5), weight_limit = std::max(10 * weight_drift, 1e-3);

  Optimizer optimizer(model.parameters(), {.kind = OptimizerKind::adamw,
                                           .beta1 = float(golden.number("beta1", 0.9)),
                                           .beta2 = float(golden.number("beta2", 0.999)),
                                           .eps = float(golden.number("eps", 1e-8)),
                                           .weight_decay = float(golden.number("weight_decay", 0)),
                                           .decay_all = true});
  const auto& losses = golden.output("loss").data;
  for (Index t = 0; t < Index(losses.size()); ++t) {
    const Index batch = t % golden.input("x").shape[0];
    model.parameters().clear_grads();
    Tape tape;
    const Var logits = model.logits(golden.input("x").part(batch).ints());
    const Var loss = cross_entropy(logits, golden.input("y").part(batch).ints());
    tape.backward(loss);
    verdict.compare(text("loss of step ", t), double(loss.value().item()), losses[std::size_t(t)], limit);
    if (t == 0) {
      verdict.compare("logits of step 0", logits.value(), golden.output("logits_step0"), limit);
      compare_weights(places, golden.grads, model.parameters(), true,
                      [&](const std::string& name, const auto& ours, const auto& theirs) {
                        verdict.compare("gradient of " + name, ours, theirs, std::max(limit, 1e-4));
                      });
    }
    const double norm = optimizer.step(golden.number("lr", 0), golden.number("clip", 0));
    if (t == 0) verdict.compare("gradient norm", norm, golden.output("grad_norm_before_clip").data.at(0), limit);
  }
  compare_weights(places, golden.final, model.parameters(), false,
                  [&](const std::string& name, const auto& ours, const auto& theirs) {
                    verdict.add("final " + name, largest_difference(ours, theirs), weight_limit);
                  });
}

}  // namespace flexformer::golden
