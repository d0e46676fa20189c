#include "train/model_options.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "train/log.h"

namespace flexformer {

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
}

void settle_model_options(Options& options, bool language) {
  const AttentionKind& kind = attention_kind(options.text("model.attention"));
  if (options.real("model.floor") < 0)
    options.set("model.floor", double(language ? kind.language_floor : kind.classifier_floor));
  if (!options.given("model.tie_qk_init")) options.set("model.tie_qk_init", kind.ties_qk);
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
  if (t.dim % a.heads)
    throw UsageError(text("model.dim=", t.dim, " is not a multiple of model.heads=", a.heads,
                          "; try model.dim=", (t.dim / a.heads + 1) * a.heads));
  if (options.text("model.position") == "rope" && t.dim / a.heads % 2)
    throw UsageError(text("model.position=rope turns pairs of channels, but a head has ", t.dim / a.heads,
                          " (model.dim / model.heads); make that even"));
  return t;
}

LanguageModelOptions language_model_options(const Options& options, Index vocabulary) {
  LanguageModelOptions m;
  m.transformer = transformer_options(options);
  m.vocabulary = vocabulary;
  m.block = options.integer("train.block");
  m.position = position_from(options.text("model.position"));
  m.tie = options.flag("model.tie");
  return m;
}

ClassifierOptions classifier_options(const Options& options, Index vocabulary, Index classes) {
  ClassifierOptions m;
  m.transformer = transformer_options(options);
  m.vocabulary = vocabulary;
  m.classes = classes;
  m.max_length = options.integer("data.max_length");
  m.position = position_from(options.text("model.position"));
  m.pool = pool_from(options.text("model.pool"));
  m.two_tower = options.text("model.pair") == "two_tower";
  return m;
}

Index training_bytes(const TransformerOptions& t, Index parameters, Index tokens, Index outputs, Index width) {
  const double ffn = double(t.ffn ? t.ffn : 4 * t.dim), dim = double(t.dim);
  // Kept for the backward pass in each block: two norms, q k v, the heads' output, two sums, the MLP before and after
  // its GELU. On top, the gradients of the widest layer, and the logits with theirs.
  const double kept = double(t.layers) * (8 * dim + 2 * ffn + 3 * double(t.attention.heads)) + 3 * dim;
  const double floats =
      4.0 * double(parameters) + double(tokens) * (kept + 2 * ffn + 3 * dim) + 2.0 * double(outputs) * double(width);
  return Index(std::min(4 * floats, 1e18));
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

void check_memory(Index needed) {
  const Index available = available_bytes();
  if (needed > available)
    fail("training needs about ", megabytes(needed), " of memory, but only ", megabytes(available),
         " are available; lower train.batch (and raise train.accumulate), train.block or data.max_length, model.dim or "
         "model.layers");
}

}  // namespace flexformer
