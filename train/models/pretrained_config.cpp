// config.json of each format. Keys that say nothing about what the model computes are left alone; those that would
// change it in a way these models cannot follow are refused, so that a wrong model is never made quietly.
#include <algorithm>
#include <set>

#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"
#include "train/models/pretrained.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

class Config {
 public:
  Config(const Json& json, const std::string& source) : json_(json), source_(source) {}

  bool has(const char* key) const {
    used_.insert(key);
    return json_.contains(key) && !json_[key].is_null();
  }
  template <class T> T get(const char* key) const {
    used_.insert(key);
    return json_get<T>(json_, key, source_);
  }
  double number(const char* key, double other) const {
    return has(key) ? number_from_json(json_[key], text(source_, ": ", key)) : other;
  }
  template <class T> T get(const char* key, T other) const { return has(key) ? get<T>(key) : other; }

  // Throws Error unless the key is missing, null or one of these values.
  void only(const char* key, const std::vector<Json>& allowed = {}) const {
    if (!has(key) || std::ranges::find(allowed, json_[key]) != allowed.end()) return;
    std::string list;
    for (const Json& value : allowed) list += (list.empty() ? "" : ", ") + dump_json(value);
    fail(source_, ": ", key, " = ", dump_json(json_[key]), " is not supported; these models know ",
         list.empty() ? "none" : list);
  }
  [[noreturn]] void refuse(const char* key, const std::string& known) const {
    fail(source_, ": ", key, " = ", dump_json(json_[key]), " is not supported; there are ", known);
  }
  // Refuses a key that is there and says something: not null, false, 0, "" or empty.
  void none(const char* key) const {
    if (!has(key) || json_[key].empty() || json_[key] == false || json_[key] == 0 || json_[key] == "") return;
    fail(source_, ": ", key, " = ", quote(dump_json(json_[key]), 200), " is not supported; these models know none");
  }
  // Keys that nobody asked for.
  std::vector<std::string> unused() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : json_.items())
      if (!used_.count(key)) keys.push_back(key);
    return keys;
  }
  const Json& json() const { return json_; }
  const std::string& source() const { return source_; }

 private:
  const Json& json_;
  const std::string& source_;
  mutable std::set<std::string> used_;
};

struct ActivationName {
  const char *theirs, *ours;
};
constexpr ActivationName activations[] = {
    {"gelu_new", "gelu"}, {"gelu", "gelu_erf"}, {"relu", "relu"}, {"gelu_pytorch_tanh", "gelu"}, {"gelu_fast", "gelu"}};

std::string activation_of(const Config& config, const char* key, const char* other) {
  const auto name = config.get<std::string>(key, other);
  for (const ActivationName& row : activations)
    if (name == row.theirs) return row.ours;
  config.refuse(key, "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu");
}

std::string their_activation(const std::string& ours) {
  for (const ActivationName& row : activations)
    if (ours == row.ours) return row.theirs;
  fail("model.activation=", ours, " has no name in this format; there are gelu, gelu_erf, relu");
}

void set_sizes(Options& options, Index layers, Index heads, Index dim, Index ffn) {
  options.set("model.attention", "softmax");
  options.set("model.layers", layers);
  options.set("model.heads", heads);
  options.set("model.dim", dim);
  options.set("model.ffn", ffn);
}

void read_gpt2(const Config& config, Options& options) {
  config.only("scale_attn_weights", {true});
  config.only("scale_attn_by_inverse_layer_idx", {false});
  config.only("add_cross_attention", {false});
  const Index dim = config.get<Index>("n_embd");
  set_sizes(options, config.get<Index>("n_layer"), config.get<Index>("n_head"), dim,
            config.get<Index>("n_inner", 4 * dim));
  options.set("train.block", config.get<Index>(config.has("n_positions") ? "n_positions" : "n_ctx"));
  options.set("model.activation", activation_of(config, "activation_function", "gelu_new"));
  options.set("model.norm_eps", config.number("layer_norm_epsilon", 1e-5));
  options.set("model.dropout", config.number("resid_pdrop", 0.1));
  options.set("model.tie", config.get<bool>("tie_word_embeddings", true));
  options.set("model.head_bias", false);
}

void set_llama(Options& options, double eps, double theta, bool tie) {
  options.set("model.norm", "rms");
  options.set("model.norm_eps", eps);
  options.set("model.activation", "swiglu");
  options.set("model.biases", false);
  options.set("model.head_bias", false);
  options.set("model.position", "rope");
  options.set("model.rope_theta", theta);
  options.set("model.tie", tie);
}

// Newer files keep the base in rope_parameters.
double rope_theta_of(const Config& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!config.has(key)) continue;
    const Config rope(config.json()[key], config.source());
    const auto type = rope.get<std::string>("rope_type", rope.get<std::string>("type", "default"));
    if (type != "default") config.refuse(key, "the type \"default\"");
    if (rope.has("rope_theta")) return rope.number("rope_theta", 10000);
  }
  return config.number("rope_theta", 10000);
}

void read_llama(const Config& config, Options& options) {
  const auto heads = config.get<Index>("num_attention_heads"), dim = config.get<Index>("hidden_size");
  const auto block = config.get<Index>("max_position_embeddings", 2048);
  config.only("hidden_act", {"silu", "swish"});
  config.only("attention_bias", {false});
  config.only("mlp_bias", {false});
  if (config.get<Index>("sliding_window", block) < block) config.only("sliding_window");
  config.only("partial_rotary_factor", {1, 1.0});
  config.only("head_dim", {dim / std::max<Index>(heads, 1)});
  set_sizes(options, config.get<Index>("num_hidden_layers"), heads, dim, config.get<Index>("intermediate_size"));
  options.set("model.kv_heads", config.get<Index>("num_key_value_heads", heads));
  if (config.has("layer_types"))
    for (const Json& type : config.json()["layer_types"])
      if (type != "full_attention" && type != "sliding_attention") config.only("layer_types");
  options.set("train.block", block);
  set_llama(options, config.number("rms_norm_eps", 1e-6), rope_theta_of(config),
            config.get<bool>("tie_word_embeddings", false));
}

void read_llama2c(const Config& config, Options& options) {
  config.only("rope", {"interleaved"});
  config.only("use_scaled_rope", {false});
  const auto heads = config.get<Index>("n_heads");
  set_sizes(options, config.get<Index>("n_layers"), heads, config.get<Index>("dim"), config.get<Index>("hidden_dim"));
  options.set("model.kv_heads", config.get<Index>("n_kv_heads", heads));
  options.set("train.block", config.get<Index>("max_seq_len"));
  set_llama(options, config.number("norm_eps", 1e-5), config.number("rope_theta", 10000),
            config.get<bool>("tie_word_embeddings", true));
}

void read_encoder(const Config& config, const std::string& format, Options& options) {
  config.only("position_embedding_type", {"absolute"});
  config.only("is_decoder", {false});
  config.only("add_cross_attention", {false});
  config.none("pruned_heads");
  const bool roberta = format == "roberta", distil = format == "distilbert";
  const auto key = [&](const char* usual, const char* distilled) { return distil ? distilled : usual; };
  const Index offset = roberta ? config.get<Index>("pad_token_id", 1) + 1 : 0;
  set_sizes(options, config.get<Index>(key("num_hidden_layers", "n_layers")),
            config.get<Index>(key("num_attention_heads", "n_heads")), config.get<Index>(key("hidden_size", "dim")),
            config.get<Index>(key("intermediate_size", "hidden_dim")));
  options.set("model.position_offset", offset);
  options.set("data.max_length", config.get<Index>("max_position_embeddings") - offset);
  options.set("model.token_types", distil ? 0 : config.get<Index>("type_vocab_size", 2));
  options.set("model.activation", activation_of(config, key("hidden_act", "activation"), "gelu"));
  options.set("model.norm_eps", distil ? 1e-12 : config.number("layer_norm_eps", 1e-12));
  options.set("model.dropout", config.number(key("hidden_dropout_prob", "dropout"), 0.1));
  options.set("model.norm_first", false);
  options.set("model.norm_embeddings", true);
  options.set("model.pool", "cls");
  options.set("model.pooler", true);
  options.set("model.pooler_activation", distil ? "relu" : "tanh");
  options.set("data.frame", roberta ? "roberta" : "bert");
  options.set("data.lowercase", false);
}

// What a format presupposes of a run, by key.
using Required = std::vector<std::pair<const char*, Value>>;

void require(const std::string& format, const Options& options, const Required& required) {
  for (const auto& [key, value] : required)
    if (options.value(key) != value)
      fail("the format ", format, " needs ", key, "=", to_text(value), ", but this run has ",
           to_text(options.value(key)));
}

// The id of a special token of just this name, or null.
Json id_of(const Tokenizer& tokenizer, const char* name) {
  const std::int32_t id = tokenizer.special_id(name);
  return id >= 0 && tokenizer.token(id) == name ? Json(id) : Json();
}

Json gpt2_config(const Options& options, const TransformerOptions& t, const Tokenizer& tokenizer) {
  require("gpt2", options,
          {{"model.position", "learned"},
           {"model.norm", "layer"},
           {"model.norm_first", true},
           {"model.biases", true},
           {"model.head_bias", false}});
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_layer", t.layers},
          {"n_head", t.attention.heads},
          {"n_embd", t.dim},
          {"n_inner", t.ffn > 0 ? t.ffn : 4 * t.dim},
          {"n_positions", longest_context(options)},
          {"n_ctx", longest_context(options)},
          {"vocab_size", tokenizer.vocab_size()},
          {"bos_token_id", id_of(tokenizer, "<|endoftext|>")},
          {"eos_token_id", id_of(tokenizer, "<|endoftext|>")},
          {"pad_token_id", id_of(tokenizer, "<pad>")},
          {"torch_dtype", "float32"},
          {"activation_function", their_activation(options.text("model.activation"))},
          {"layer_norm_epsilon", options.real("model.norm_eps")},
          {"resid_pdrop", options.real("model.dropout")},
          {"embd_pdrop", options.real("model.dropout")},
          {"attn_pdrop", 0.0},
          {"tie_word_embeddings", options.flag("model.tie")}};
}

const Required llama_needs = {{"model.position", "rope"}, {"model.norm", "rms"},      {"model.norm_first", true},
                              {"model.biases", false},    {"model.head_bias", false}, {"model.activation", "swiglu"}};

Json llama_config(const std::string& format, const Options& options, const TransformerOptions& t,
                  const Tokenizer& tokenizer) {
  const Index vocabulary = tokenizer.vocab_size();
  require(format, options, llama_needs);
  const Index heads = t.attention.heads, kv_heads = t.attention.kv_heads > 0 ? t.attention.kv_heads : heads;
  const Index ffn = t.ffn > 0 ? t.ffn : 4 * t.dim, block = longest_context(options);
  const double eps = options.real("model.norm_eps"), theta = options.real("model.rope_theta");
  const bool tie = options.flag("model.tie");
  if (format == "llama2c")
    return {{"dim", t.dim},           {"hidden_dim", ffn},        {"n_layers", t.layers}, {"n_heads", heads},
            {"n_kv_heads", kv_heads}, {"vocab_size", vocabulary}, {"max_seq_len", block}, {"tie_word_embeddings", tie},
            {"norm_eps", eps},        {"rope_theta", theta},      {"rope", "interleaved"}};
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"num_hidden_layers", t.layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads},
          {"hidden_size", t.dim},
          {"intermediate_size", ffn},
          {"max_position_embeddings", block},
          {"head_dim", t.dim / heads},
          {"vocab_size", vocabulary},
          {"bos_token_id", id_of(tokenizer, "<s>")},
          {"eos_token_id", id_of(tokenizer, "</s>")},
          {"pad_token_id", id_of(tokenizer, "<pad>")},
          {"torch_dtype", "float32"},
          {"hidden_act", "silu"},
          {"rms_norm_eps", eps},
          {"rope_theta", theta},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", tie}};
}

Json encoder_config(const std::string& format, const Options& options, const TransformerOptions& t,
                    const Tokenizer& tokenizer, const std::vector<std::string>& labels, const LabelMap& outputs) {
  const bool roberta = format == "roberta", distil = format == "distilbert";
  require(format, options,
          {{"model.position", "learned"},
           {"model.norm", "layer"},
           {"model.norm_first", false},
           {"model.norm_embeddings", true},
           {"model.biases", true},
           {"model.pool", "cls"},
           {"model.pooler", true},
           {"model.pooler_activation", distil ? "relu" : "tanh"},
           {"model.pair", "concat"},
           {"data.frame", roberta ? "roberta" : "bert"}});
  const Index offset = options.integer("model.position_offset");
  if (!roberta) require(format, options, {{"model.position_offset", std::int64_t(0)}});
  if (distil) require(format, options, {{"model.token_types", std::int64_t(0)}, {"model.norm_eps", 1e-12}});
  Json names = Json::object(), ids = Json::object();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    names[std::to_string(i)] = labels[i];
    ids[labels[i]] = i;
  }
  const std::string kind = roberta ? "Roberta" : distil ? "DistilBert" : "Bert";
  const Index ffn = t.ffn > 0 ? t.ffn : 4 * t.dim;
  const double dropout = options.real("model.dropout");
  const std::string activation = their_activation(options.text("model.activation"));
  Json config = {{"architectures", {kind + "ForSequenceClassification"}},
                 {"model_type", format},
                 {"problem_type", outputs.problem_type()},
                 {"max_position_embeddings", longest_context(options) + offset},
                 {"pad_token_id", roberta ? offset - 1 : Index(std::max(tokenizer.pad_id(), 0))},
                 {"vocab_size", tokenizer.vocab_size()},
                 {"torch_dtype", "float32"}};
  if (distil)
    config.update({{"n_layers", t.layers},
                   {"n_heads", t.attention.heads},
                   {"dim", t.dim},
                   {"hidden_dim", ffn},
                   {"activation", activation},
                   {"dropout", dropout},
                   {"attention_dropout", 0.0},
                   {"seq_classif_dropout", dropout},
                   {"sinusoidal_pos_embds", false},
                   {"tie_weights_", true}});
  else
    config.update({{"num_hidden_layers", t.layers},
                   {"num_attention_heads", t.attention.heads},
                   {"hidden_size", t.dim},
                   {"intermediate_size", ffn},
                   {"type_vocab_size", options.integer("model.token_types")},
                   {"hidden_act", activation},
                   {"layer_norm_eps", options.real("model.norm_eps")},
                   {"hidden_dropout_prob", dropout},
                   {"attention_probs_dropout_prob", 0.0},
                   {"position_embedding_type", "absolute"}});
  if (roberta) config.update({{"bos_token_id", id_of(tokenizer, "<s>")}, {"eos_token_id", id_of(tokenizer, "</s>")}});
  config["id2label"] = names;
  config["label2id"] = ids;
  return config;
}

}  // namespace

Options options_from_pretrained(const Pretrained& model, std::vector<std::string>* unused) {
  const bool encoder = is_encoder_format(model.format);
  Options options(encoder ? "train_classifier" : "train_lm", "");
  encoder ? add_classifier_options(options) : add_language_options(options);
  const Config config(model.config, model.source);
  config.none("quantization_config");
  config.none("auto_map");
  if (model.format == "gpt2") read_gpt2(config, options);
  if (model.format == "llama") read_llama(config, options);
  if (model.format == "llama2c") read_llama2c(config, options);
  if (encoder) read_encoder(config, model.format, options);
  options.set("model.position_rows", options.integer(encoder ? "data.max_length" : "train.block"));
  options.set("model.floor", 0.0);
  options.set("model.tie_qk_init", false);
  for (const char* key :
       {"model_type", "architectures", "vocab_size", "id2label", "label2id", "num_labels", "problem_type"})
    config.has(key);  // read elsewhere
  if (unused) *unused = config.unused();
  return options;
}

Json config_for_pretrained(const std::string& format, const Options& options, const TransformerOptions& transformer,
                           const Tokenizer& tokenizer, const std::vector<std::string>& labels,
                           const LabelMap* outputs) {
  require(format, options, {{"model.attention", "softmax"}, {"model.qk_norm", "none"}});
  if (is_encoder_format(format)) {
    if (!outputs) fail("the format ", format, " is for classifiers, but this run is a language model");
    return encoder_config(format, options, transformer, tokenizer, labels, *outputs);
  }
  if (outputs) fail("the format ", format, " is for language models, but this run is a classifier");
  require(format, options, {{"model.norm_embeddings", false}, {"model.adaptive", ""}});
  return format == "gpt2" ? gpt2_config(options, transformer, tokenizer)
                          : llama_config(format, options, transformer, tokenizer);
}

std::string pretrained_format_of(const Options& options) {
  if (options.program() == "train_classifier")
    return options.text("data.frame") == "roberta"             ? "roberta"
           : options.text("model.pooler_activation") == "relu" ? "distilbert"
                                                               : "bert";
  return options.text("model.norm") == "rms" ? "llama" : "gpt2";
}

std::vector<std::string> labels_from_config(const Json& config, const std::string& source) {
  std::vector<std::string> labels;
  if (!config.contains("id2label")) {
    const auto count = config.contains("num_labels") ? json_get<Index>(config, "num_labels", source) : Index(2);
    for (Index i = 0; i < count; ++i) labels.push_back(text("LABEL_", i));
    return labels;
  }
  const Json& names = config["id2label"];
  if (config.contains("num_labels") && config["num_labels"].is_number_integer() && config["num_labels"] != names.size())
    fail(source, ": num_labels is ", dump_json(config["num_labels"]), ", but id2label has ", names.size());
  if (!names.is_object()) fail(source, ": id2label must be an object of ids and labels");
  for (std::size_t i = 0; i < names.size(); ++i)
    labels.push_back(json_get<std::string>(names, std::to_string(i).c_str(), source + ": id2label"));
  return labels;
}

LabelMap outputs_from_config(const Json& config, const std::vector<std::string>& labels, const std::string& source) {
  const Json type = config.contains("problem_type") ? config["problem_type"] : Json();
  const std::string one = "single_label_classification", many = "multi_label_classification";
  if (!type.is_null() && type != one && type != many && type != "regression")
    fail(source, ": problem_type = ", dump_json(type), " is not supported; there are regression, ", one, " and ", many);
  if (type == one && labels.size() < 2) fail(source, ": problem_type = ", one, " needs at least two labels");
  if (type == many) return LabelMap::of_tags(labels);
  if (type == "regression" && labels.size() > 1) return LabelMap::of_values(labels);
  if (labels.size() == 1) return LabelMap(0, 1);
  const LabelMap map(labels);
  if (map.size() != std::ssize(labels)) fail(source, ": two classes have the same name");
  return map;
}

}  // namespace flexformer
