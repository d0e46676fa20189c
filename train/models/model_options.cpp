#include "train/models/model_options.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "train/models/option_lists.h"
#include "train/util/log.h"

namespace flexformer {

static const char* context_key(const Options& options) {
  return options.has("train.block") ? "train.block" : "data.max_length";
}

void add_model_options(Options& options, Index layers, Index heads, Index dim, Index ffn, double dropout) {
  options.add_choice("model.attention", "flexformer_n", attention_kind_names(), "kind of attention");
  options.add_integer("model.layers", layers, {.min = 1, .max = 1000, .help = "transformer blocks"});
  options.add_integer("model.heads", heads, {.min = 1, .max = 4096, .help = "attention heads; they share model.dim"});
  options.add_integer("model.dim", dim, {.min = 1, .max = 1 << 20, .unit = "channels", .help = "width of the model"});
  options.add_integer("model.ffn", ffn,
                      {.max = 1 << 22, .unit = "channels", .help = "inner size of the MLP; 0: 4 model.dim"});
  options.add_integer(
      "model.features", 0,
      {.max = 1 << 16, .help = "rows of the feature map per head (frequencies, projections); 0: the head size"});
  options.add_real("model.dropout", dropout,
                   {.max = 1, .below = true, .help = "share of activations dropped in training"});
  options.add_real("model.floor", -1,
                   {.min = -1,
                    .max = 1,
                    .below = true,
                    .help = "least denominator of linear attention, relative to the sum of key weights; "
                            "0: the paper's formula; -1: 0.05 for language models and 0.01 for "
                            "classifiers with trigonometric features, next to 0 with positive ones"});
  options.add_real("model.omega_scale", 0.5,
                   {.max = 1000, .help = "frequencies start as this times N(0, I / sqrt(head size)); the paper's: 1"});
  options.add_flag("model.train_tau", false, "learn the scale of the norm factor in flexformer_s too");
  options.add_choice("model.qk_norm", "none", {"none", "l2", "rms"}, "normalisation of each head's q and k");
  options.add_flag("model.tie_qk_init", true,
                   "start W_k as a copy of W_q (kinds without trigonometric features: only if given)");
  options.add_choice("model.position", "learned", {"learned", "sinusoidal", "rope", "none"},
                     "how positions are told apart; learned has the trained length as its end");
  options.add_integer("model.position_rows", 0,
                      {.max = 1 << 24,
                       .unit = "tokens",
                       .help = "the longest sequence that a learned position table allows; 0: the context length, "
                               "train.block or data.max_length"});
  options.add_real("model.rope_theta", 10000,
                   {.max = 1e12, .above = true, .help = "base of rotary positions: larger turns slower"});
  options.add_integer("model.kv_heads", 0,
                      {.max = 4096,
                       .help = "heads of keys and values, each shared by model.heads / model.kv_heads heads of "
                               "queries; 0: model.heads"});
  options.add_choice("model.norm", "layer", {"layer", "rms"}, "LayerNorm, or RMSNorm without mean and bias");
  options.add_real("model.norm_eps", 1e-5, {.max = 1, .above = true, .help = "added to the variance in norms"});
  options.add_flag("model.norm_first", true, "norms before attention and MLP; false: behind their sums, as in BERT");
  options.add_flag("model.norm_embeddings", false, "a norm behind the embeddings, as in BERT");
  options.add_choice("model.activation", "gelu", {"gelu", "gelu_erf", "relu", "swiglu"},
                     "of the MLP: GELU in its tanh or its exact form, ReLU, or SwiGLU with a third matrix");
  options.add_flag("model.biases", true, "biases of the linear maps in the blocks");
}

void add_language_model_options(Options& options) {
  options.add_flag("model.tie", false, "use the token embedding as the output layer's matrix");
  options.add_flag("model.head_bias", true, "a bias of the output layer; false with model.adaptive");
  options.add_text(
      "model.adaptive", "",
      "for large word vocabularies: first ids of the second band, the third .., as 20000,60000; rarer bands "
      "have shorter vectors and an output layer of their own (Baevski and Auli, 2018); empty: no bands");
  options.add_integer("model.adaptive_factor", 4,
                      {.min = 1, .max = 1024, .help = "from band to band vectors get shorter by this"});
}

void add_classifier_model_options(Options& options) {
  options.add_choice("model.pool", "mean", {"mean", "cls"},
                     "what stands for a text: the mean of its tokens, or its first");
  options.add_flag("model.pooler", false, "a map between pooling and the output layer, as in BERT");
  options.add_choice("model.pooler_activation", "tanh", {"tanh", "relu"}, "what follows that map; relu: DistilBERT");
  options.add_choice("model.pair", "concat", {"concat", "two_tower"},
                     "how a pair of texts is read: joined by a separator token, or apart and compared");
  options.add_integer("model.token_types", 0,
                      {.max = 16,
                       .help = "rows of a table that tells the first text of a pair from the second, as in BERT; "
                               "0: none"});
  options.add_integer("model.position_offset", 0,
                      {.max = 1024, .help = "rows of the learned position table before the first; RoBERTa: 2"});
}

Index longest_context(const Options& options) {
  const char* key = context_key(options);
  const Index rows = options.integer("model.position_rows"), context = options.integer(key);
  if (rows > 0 && context > rows && options.text("model.position") == "learned")
    throw UsageError(text(key, "=", context, " is longer than model.position_rows=", rows,
                          ", what the position table allows; shorten it"));
  return rows > 0 ? rows : context;
}

void inherit_model_options(Options& options, const RunFolder& initial) {
  Options stored = options;
  initial.load_config(stored);
  const auto is_of_model = [](const std::string& key) {
    return key.starts_with("model.") || key == "train.block" || key == "data.max_length" || key == "data.frame";
  };
  const bool same_kind =
      !options.given("model.attention") || options.text("model.attention") == stored.text("model.attention");
  for (const Key& key : options.keys()) {
    if (key.given || !is_of_model(key.name) || (key.name == "model.floor" && !same_kind)) continue;
    options.set(key.name, stored.value(key.name));
  }
  // A table of positions keeps its size where the context is given a length of its own.
  if (!options.given("model.position_rows") && stored.integer("model.position_rows") == 0)
    options.set("model.position_rows", stored.integer(context_key(stored)));
}

void settle_model_options(Options& options, bool language) {
  const AttentionKind& kind = attention_kind(options.text("model.attention"));
  if (options.real("model.floor") < 0)
    options.set("model.floor", double(language ? kind.language_floor : kind.classifier_floor));
  if (!options.given("model.tie_qk_init")) options.set("model.tie_qk_init", kind.ties_qk);
  if (language && !options.text("model.adaptive").empty() && !options.given("model.head_bias"))
    options.set("model.head_bias", false);
  if (!options.given("train.kernel_lr")) options.set("train.kernel_lr", language ? 5.0 : 1.0);
}

static TransformerOptions transformer_options(const Options& options) {
  TransformerOptions t;
  t.dim = options.integer("model.dim");
  t.layers = options.integer("model.layers");
  t.ffn = options.integer("model.ffn");
  t.dropout = float(options.real("model.dropout"));
  AttentionOptions& a = t.attention;
  a.kind = options.text("model.attention");
  a.heads = options.integer("model.heads");
  a.features = options.integer("model.features");
  a.floor = float(options.real("model.floor"));
  a.omega_scale = float(options.real("model.omega_scale"));
  a.train_tau = options.flag("model.train_tau");
  a.tie_qk_init = options.flag("model.tie_qk_init");
  a.qk_norm = qk_norm_from(options.text("model.qk_norm"));
  a.rope_theta = float(options.real("model.rope_theta"));
  a.kv_heads = options.integer("model.kv_heads");
  t.norm = {norm_kind_from(options.text("model.norm")), float(options.real("model.norm_eps"))};
  t.norm_first = options.flag("model.norm_first");
  t.activation = activation_from(options.text("model.activation"));
  t.biases = options.flag("model.biases");
  if (t.dim % a.heads)
    throw UsageError(text("model.dim=", t.dim, " is not a multiple of model.heads=", a.heads,
                          "; try model.dim=", (t.dim / a.heads + 1) * a.heads));
  if (a.kv_heads > 0 && a.heads % a.kv_heads)
    throw UsageError(text("model.kv_heads=", a.kv_heads, " does not divide model.heads=", a.heads,
                          "; each head of keys must serve equally many heads of queries"));
  if (options.text("model.position") == "rope" && t.dim / a.heads % 2)
    throw UsageError(text("model.position=rope turns pairs of channels, but a head has ", t.dim / a.heads,
                          " (model.dim / model.heads); make that even"));
  return t;
}

// Whether the cut-offs fit the vocabulary is found out when the model is made.
static AdaptiveOptions adaptive_options(const Options& options) {
  AdaptiveOptions adaptive{.factor = options.integer("model.adaptive_factor")};
  if (!options.text("model.adaptive").empty()) adaptive.cutoffs = whole_numbers(options, "model.adaptive", 1);
  return adaptive;
}

LanguageModelOptions language_model_options(const Options& options, Index vocabulary) {
  LanguageModelOptions m;
  m.transformer = transformer_options(options);
  m.vocabulary = vocabulary;
  m.adaptive = adaptive_options(options);
  m.block = longest_context(options);
  m.position = position_from(options.text("model.position"));
  m.tie = options.flag("model.tie");
  m.head_bias = options.flag("model.head_bias");
  if (!m.adaptive.cutoffs.empty() && options.real("train.label_smoothing") > 0)
    throw UsageError("train.label_smoothing does not go with model.adaptive, which leaves most bands out; set it to 0");
  if (m.head_bias && !m.adaptive.cutoffs.empty())
    throw UsageError(
        "model.head_bias=true does not go with model.adaptive, whose output layers have none; leave it out");
  m.norm_embeddings = options.flag("model.norm_embeddings");
  return m;
}

ClassifierOptions classifier_options(const Options& options, const Tokenizer& tokenizer, Index classes) {
  ClassifierOptions m;
  m.transformer = transformer_options(options);
  m.vocabulary = tokenizer.vocab_size();
  m.padding = std::max(tokenizer.pad_id(), 0);
  m.separator = tokenizer.special_id("<sep>");
  m.classes = classes;
  m.max_length = longest_context(options);
  m.position = position_from(options.text("model.position"));
  m.pool = pool_from(options.text("model.pool"));
  m.two_tower = options.text("model.pair") == "two_tower";
  m.pooler = options.flag("model.pooler");
  m.pooler_relu = options.text("model.pooler_activation") == "relu";
  m.token_types = options.integer("model.token_types");
  m.position_offset = options.integer("model.position_offset");
  m.norm_embeddings = options.flag("model.norm_embeddings");
  return m;
}

double token_parameters(const LanguageModelOptions& m) {
  double numbers = 0;
  for (const Band& band : adaptive_bands(m.vocabulary, m.transformer.dim, m.adaptive))
    numbers += double(band.size) * double(band.width);
  return numbers;
}

double token_parameters(const ClassifierOptions& m) { return double(m.vocabulary) * double(m.transformer.dim); }

Index training_bytes(const TransformerOptions& t, Index parameters, Index tokens, Index outputs, Index width) {
  const double ffn = double(t.ffn ? t.ffn : 4 * t.dim), dim = double(t.dim);
  // Kept for the backward pass in each block: two norms, q k v, the heads' output, two sums, the MLP before and after
  // its GELU. On top, the gradients of the widest layer, and the logits with theirs.
  const double kept = double(t.layers) * (8 * dim + 2 * ffn + 3 * double(t.attention.heads)) + 3 * dim;
  const double floats =
      4.0 * double(parameters) + double(tokens) * (kept + 2 * ffn + 3 * dim) + 2.0 * double(outputs) * double(width);
  return Index(std::min(4 * floats, 1e18));
}

Index logit_rows(Index tokens, Index width) {
  return std::min(tokens, std::max<Index>(64, (1 << 22) / std::max<Index>(1, width)));
}

Index available_bytes() {
  Index available = std::numeric_limits<Index>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    Index kilobytes = 0;
    if (!(meminfo >> kilobytes)) break;
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = kilobytes * 1024;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    Index pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    available = std::min(available, std::max<Index>(0, Index(limit.rlim_cur) - pages * 4096));
  }
  return available;
}

void check_memory(Index needed, Device device) {
  if (device != Device::cpu) return;  // the first step allocates all it needs there, and says what to lower
  const Index available = available_bytes();
  if (needed > available)
    fail("training needs about ", megabytes(needed), " of memory, but only ", megabytes(available),
         " are available; lower train.batch (and raise train.accumulate), train.block or data.max_length, model.dim or "
         "model.layers");
}

}  // namespace flexformer
