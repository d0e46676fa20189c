// The tables of names. "N" stands for the layer; every row is a module whose ".weight" and ".bias" go where ours are.
#include <algorithm>
#include <set>

#include "train/models/pretrained.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

enum class Part { whole, query, key, value };
enum Layout : int { rows = 0, transposed = 1, half_split = 2, outer = 4, classes = 8 };

struct NameRow {
  const char *theirs, *ours;
  Part part = Part::whole;
  int layout = Layout::rows;
};

// GPT-2 keeps its matrices as [in, out], and those of q, k and v side by side.
const std::vector<NameRow> gpt2_rows = {
    {"wte", "token"},
    {"wpe", "position"},
    {"h.N.ln_1", "blocks.N.norm1"},
    {"h.N.attn.c_attn", "blocks.N.attn.qkv", Part::whole, transposed},
    {"h.N.attn.c_proj", "blocks.N.attn.out", Part::whole, transposed},
    {"h.N.ln_2", "blocks.N.norm2"},
    {"h.N.mlp.c_fc", "blocks.N.mlp.up", Part::whole, transposed},
    {"h.N.mlp.c_proj", "blocks.N.mlp.down", Part::whole, transposed},
    {"ln_f", "norm"},
    {"lm_head", "head", Part::whole, outer},
};

// Hugging Face's rotary positions turn channels c and c + d/2 together, ours and llama2.c's 2c and 2c + 1.
const std::vector<NameRow> llama_rows = {
    {"embed_tokens", "token"},
    {"layers.N.input_layernorm", "blocks.N.norm1"},
    {"layers.N.self_attn.q_proj", "blocks.N.attn.qkv", Part::query, half_split},
    {"layers.N.self_attn.k_proj", "blocks.N.attn.qkv", Part::key, half_split},
    {"layers.N.self_attn.v_proj", "blocks.N.attn.qkv", Part::value},
    {"layers.N.self_attn.o_proj", "blocks.N.attn.out"},
    {"layers.N.post_attention_layernorm", "blocks.N.norm2"},
    {"layers.N.mlp.gate_proj", "blocks.N.mlp.gate"},
    {"layers.N.mlp.up_proj", "blocks.N.mlp.up"},
    {"layers.N.mlp.down_proj", "blocks.N.mlp.down"},
    {"norm", "norm"},
    {"lm_head", "head", Part::whole, outer},
};

const std::vector<NameRow> llama2c_rows = {
    {"tok_embeddings", "token"},
    {"layers.N.attention_norm", "blocks.N.norm1"},
    {"layers.N.attention.wq", "blocks.N.attn.qkv", Part::query},
    {"layers.N.attention.wk", "blocks.N.attn.qkv", Part::key},
    {"layers.N.attention.wv", "blocks.N.attn.qkv", Part::value},
    {"layers.N.attention.wo", "blocks.N.attn.out"},
    {"layers.N.ffn_norm", "blocks.N.norm2"},
    {"layers.N.feed_forward.w1", "blocks.N.mlp.gate"},
    {"layers.N.feed_forward.w3", "blocks.N.mlp.up"},
    {"layers.N.feed_forward.w2", "blocks.N.mlp.down"},
    {"norm", "norm"},
    {"output", "head", Part::whole, outer},
};

const std::vector<NameRow> encoder_rows = {
    {"embeddings.word_embeddings", "token"},
    {"embeddings.position_embeddings", "position"},
    {"embeddings.token_type_embeddings", "type"},
    {"embeddings.LayerNorm", "embedding_norm"},
    {"encoder.layer.N.attention.self.query", "blocks.N.attn.qkv", Part::query},
    {"encoder.layer.N.attention.self.key", "blocks.N.attn.qkv", Part::key},
    {"encoder.layer.N.attention.self.value", "blocks.N.attn.qkv", Part::value},
    {"encoder.layer.N.attention.output.dense", "blocks.N.attn.out"},
    {"encoder.layer.N.attention.output.LayerNorm", "blocks.N.norm1"},
    {"encoder.layer.N.intermediate.dense", "blocks.N.mlp.up"},
    {"encoder.layer.N.output.dense", "blocks.N.mlp.down"},
    {"encoder.layer.N.output.LayerNorm", "blocks.N.norm2"},
};

const std::vector<NameRow> distilbert_rows = {
    {"embeddings.word_embeddings", "token"},
    {"embeddings.position_embeddings", "position"},
    {"embeddings.LayerNorm", "embedding_norm"},
    {"transformer.layer.N.attention.q_lin", "blocks.N.attn.qkv", Part::query},
    {"transformer.layer.N.attention.k_lin", "blocks.N.attn.qkv", Part::key},
    {"transformer.layer.N.attention.v_lin", "blocks.N.attn.qkv", Part::value},
    {"transformer.layer.N.attention.out_lin", "blocks.N.attn.out"},
    {"transformer.layer.N.sa_layer_norm", "blocks.N.norm1"},
    {"transformer.layer.N.ffn.lin1", "blocks.N.mlp.up"},
    {"transformer.layer.N.ffn.lin2", "blocks.N.mlp.down"},
    {"transformer.layer.N.output_layer_norm", "blocks.N.norm2"},
    {"pre_classifier", "pooler", Part::whole, outer},
    {"classifier", "head", Part::whole, outer | classes},
};

std::vector<NameRow> with_head(std::vector<NameRow> body, std::initializer_list<NameRow> head) {
  body.insert(body.end(), head);
  return body;
}

struct Format {
  const char *name, *prefix;
  std::vector<NameRow> rows;  // the token table first
  bool is_encoder = false;    // which may come without an output layer
};

const std::vector<Format>& formats() {
  static const std::vector<Format> list = {
      {"gpt2", "transformer.", gpt2_rows},
      {"llama", "model.", llama_rows},
      {"llama2c", "", llama2c_rows},
      {"bert", "bert.",
       with_head(encoder_rows, {{"pooler.dense", "pooler"}, {"classifier", "head", Part::whole, outer | classes}}),
       true},
      {"roberta", "roberta.",
       with_head(encoder_rows, {{"classifier.dense", "pooler", Part::whole, outer},
                                {"classifier.out_proj", "head", Part::whole, outer | classes}}),
       true},
      {"distilbert", "distilbert.", distilbert_rows, true},
  };
  return list;
}

}  // namespace

bool is_encoder_format(const std::string& name) {
  return std::ranges::any_of(formats(), [&](const Format& format) { return name == format.name && format.is_encoder; });
}

namespace {

const Format& format_of(const std::string& name) {
  std::string names;
  for (const Format& format : formats()) {
    if (name == format.name) return format;
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  fail("there is no format '", name, "' of pretrained models; there are ", names);
}

std::string for_layer(std::string name, Index layer) {
  const std::size_t at = name.find(".N.");
  return at == name.npos ? name : name.replace(at + 1, 1, std::to_string(layer));
}

// Their row of each row of ours: 2c is theirs c, 2c + 1 theirs c + d/2, in every head.
std::vector<Index> half_split_order(Index count, Index head_size) {
  std::vector<Index> order(std::size_t(count), 0);
  for (Index r = 0; r < count; ++r) {
    const Index c = r % head_size;
    order[std::size_t(r)] = r - c + c / 2 + c % 2 * (head_size / 2);
  }
  return order;
}

WeightPlace place_of(const NameRow& row, const std::string& ending, Index layer, const Parameters& parameters,
                     const TransformerOptions& t, const std::vector<Index>& class_ids) {
  WeightPlace place{.theirs = for_layer(row.theirs, layer) + ending, .ours = for_layer(row.ours, layer) + ending};
  place.rows = parameters[place.ours].var.size(0);
  if (row.part != Part::whole) {
    const Index kv_heads = t.attention.kv_heads > 0 ? t.attention.kv_heads : t.attention.heads;
    const Index kv_rows = t.dim / t.attention.heads * kv_heads;
    place.first = row.part == Part::query ? 0 : row.part == Part::key ? t.dim : t.dim + kv_rows;
    place.rows = row.part == Part::query ? t.dim : kv_rows;
  }
  place.transposed = (row.layout & transposed) && ending == ".weight";
  place.is_outer = row.layout & outer;
  if (row.layout & half_split) place.order = half_split_order(place.rows, t.dim / t.attention.heads);
  if (row.layout & classes) place.order = class_ids;
  return place;
}

// Tensors of published files that are no weights of these models: masks and tables that follow from the sizes, and
// heads for other uses. `of_tokens`: the output layer of an encoder is for tokens or choices, not for whole texts.
bool is_left_out(const std::string& format, bool of_tokens, const std::string& name) {
  const auto ends = [&](const char* ending) { return name.ends_with(ending); };
  const auto starts_with_one = [&](std::initializer_list<const char*> starts) {
    return std::ranges::any_of(starts, [&](const char* start) { return name.starts_with(start); });
  };
  if (format == "gpt2") return ends(".attn.bias") || ends(".attn.masked_bias");
  if (format == "llama") return name.find("rotary_emb.") != name.npos;
  if (format == "llama2c") return name == "freqs_cos" || name == "freqs_sin";
  if (ends("embeddings.position_ids") || ends("embeddings.token_type_ids")) return true;
  if (of_tokens && name.starts_with("classifier.")) return true;
  if (name.starts_with("qa_outputs.")) return true;
  if (format == "bert") return name.starts_with("cls.");
  if (format == "distilbert") return starts_with_one({"vocab_transform.", "vocab_layer_norm.", "vocab_projector."});
  return starts_with_one({"lm_head.", "roberta.pooler.", "pooler."});
}

// Whether the architectures of a config.json have an output layer for each token, or for choices.
bool has_head_of_tokens(const Pretrained& model) {
  if (!model.config.is_object() || !model.config.contains("architectures")) return false;
  const std::string list = dump_json(model.config["architectures"]);
  return list.find("ForTokenClassification") != list.npos || list.find("ForMultipleChoice") != list.npos;
}

// How a file spells a name: with or without the body's prefix, and norms' parameters gamma and beta in old ones.
std::string spelling(const Format& format, const WeightPlace& place, const std::set<std::string>& names) {
  const std::string full = (place.is_outer ? "" : format.prefix) + place.theirs;
  for (std::string name : {full, place.theirs}) {
    if (names.count(name)) return name;
    for (const auto& [now, old] :
         {std::pair(".LayerNorm.weight", ".LayerNorm.gamma"), std::pair(".LayerNorm.bias", ".LayerNorm.beta")})
      if (name.ends_with(now) && names.count(name.substr(0, name.size() - std::string(now).size()) + old))
        return name.substr(0, name.size() - std::string(now).size()) + old;
  }
  return full;
}

// Calls copy(ours, theirs) for each row of a place; a transposed one goes by single numbers.
template <class Copy> void for_each_run(const WeightPlace& place, const Tensor& ours, const Copy& copy) {
  const Index C = ours.numel() / ours.size(0);
  for (Index r = 0; r < place.rows; ++r) {
    const Index to = (place.first + r) * C, from = place.order.empty() ? r : place.order[std::size_t(r)];
    if (!place.transposed)
      copy(to, from * C, C);
    else
      for (Index c = 0; c < C; ++c) copy(to + c, c * place.rows + from, 1);
  }
}

Shape their_shape(const WeightPlace& place, const Shape& ours) {
  if (ours.rank() == 1) return {place.rows};
  return place.transposed ? Shape{ours[1], place.rows} : Shape{place.rows, ours[1]};
}

std::string tied_head(const std::string& format) { return format == "llama2c" ? "output.weight" : "lm_head.weight"; }

// The file's tensors without those that are left out. A file may repeat the token table as the matrix of a tied head.
NamedTensors stored_weights(const Pretrained& model, bool is_tied, const std::string& table_name,
                            std::vector<std::string>& left_out) {
  NamedTensors stored;
  const NamedTensor *head = nullptr, *table = nullptr;
  const bool of_tokens = has_head_of_tokens(model);
  for (const NamedTensor& item : model.tensors) {
    if (is_left_out(model.format, of_tokens, item.name)) {
      left_out.push_back(item.name);
      continue;
    }
    if (item.name == table_name) table = &item;
    if (is_tied && item.name == tied_head(model.format))
      head = &item;
    else
      stored.push_back(item);
  }
  if (head && table && head->tensor.to_vector() != table->tensor.to_vector())
    fail(model.source, ": tie_word_embeddings is true, but ", head->name, " is not ", table_name,
         "; set it to false in config.json");
  return stored;
}

// Whole numbers and truth values are no weights of these models; anything else that is left over might be.
bool is_no_weight(const UnreadTensor& tensor) {
  const std::string& type = tensor.type;
  return type == "BOOL" || ((type.starts_with("I") || type.starts_with("U")) && type.size() <= 3);
}

}  // namespace

std::vector<WeightPlace> pretrained_places(const std::string& format, const Parameters& parameters,
                                           const TransformerOptions& transformer, const std::vector<Index>& class_ids) {
  std::vector<WeightPlace> places;
  std::set<std::string> placed;
  for (const NameRow& row : format_of(format).rows) {
    const bool per_layer = std::string(row.theirs).find(".N.") != std::string::npos;
    for (Index layer = 0; layer < (per_layer ? transformer.layers : 1); ++layer)
      for (const char* ending : {".weight", ".bias"}) {
        if (!parameters.has(for_layer(row.ours, layer) + ending)) continue;
        places.push_back(place_of(row, ending, layer, parameters, transformer, class_ids));
        placed.insert(places.back().ours);
      }
  }
  for (const Parameter& parameter : parameters)
    if (!placed.count(parameter.name))
      fail("the format ", format, " has no name for the parameter ", parameter.name, " of this model");
  return places;
}

LoadedWeights load_pretrained(const Pretrained& model, const std::vector<WeightPlace>& places,
                              const Parameters& parameters) {
  const Format& format = format_of(model.format);
  LoadedWeights loaded;
  std::set<std::string> names;
  for (const NamedTensor& item : model.tensors) names.insert(item.name);
  for (const UnreadTensor& item : model.unread) names.insert(item.name);
  if (has_head_of_tokens(model))
    std::erase_if(names, [&](const std::string& name) { return is_left_out(model.format, true, name); });
  const bool has_head = std::ranges::any_of(
      places, [&](const WeightPlace& place) { return place.is_outer && names.count(spelling(format, place, names)); });
  std::vector<TensorSpec> needed;
  std::vector<const WeightPlace*> found;
  std::set<std::string> wanted;
  for (const WeightPlace& place : places) {
    const std::string name = spelling(format, place, names);
    const bool of_head = place.ours.starts_with("head.") || place.ours.starts_with("pooler.");
    if (format.is_encoder && of_head && !has_head && !names.count(name)) {
      loaded.missing.push_back(place.ours);
      continue;
    }
    needed.push_back({name, their_shape(place, parameters[place.ours].var.shape())});
    found.push_back(&place);
    wanted.insert(name);
  }
  std::ranges::sort(loaded.missing);
  NamedTensors stored =
      stored_weights(model, !parameters.has("head.weight"), spelling(format, places[0], names), loaded.left_out);
  std::erase_if(stored, [&](const NamedTensor& item) {
    const bool is_spare = item.tensor.dtype() == DType::i32 && !wanted.count(item.name);
    if (is_spare) loaded.left_out.push_back(item.name);
    return is_spare;
  });
  for (const UnreadTensor& item : model.unread) {
    if (wanted.count(item.name) ||
        !(is_left_out(model.format, has_head_of_tokens(model), item.name) || is_no_weight(item)))
      fail(model.weights_source, ": tensor ", quote(item.name), " cannot be used: ", item.reason);
    loaded.left_out.push_back(item.name);
  }
  const std::vector<Tensor> tensors = match_tensors(needed, stored, model.weights_source);
  for (std::size_t i = 0; i < found.size(); ++i) {
    Tensor ours = parameters[found[i]->ours].var.value();
    const float* theirs = tensors[i].data();
    for_each_run(*found[i], ours,
                 [&](Index to, Index from, Index n) { std::copy_n(theirs + from, n, ours.data() + to); });
  }
  return loaded;
}

NamedTensors save_pretrained(const std::string& format, const std::vector<WeightPlace>& places,
                             const Parameters& parameters, const std::vector<std::string>& names) {
  const std::set<std::string> known(names.begin(), names.end());
  NamedTensors out;
  for (const WeightPlace& place : places) {
    const Tensor ours = parameters[place.ours].var.value();
    Tensor theirs = Tensor::empty(their_shape(place, ours.shape()));
    for_each_run(place, ours,
                 [&](Index to, Index from, Index n) { std::copy_n(ours.data() + to, n, theirs.data() + from); });
    out.push_back({spelling(format_of(format), place, known), theirs});
  }
  if (known.count(tied_head(format)) && !parameters.has("head.weight"))
    out.push_back({tied_head(format), parameters["token.weight"].var.value()});
  const auto rank = [&](const NamedTensor& item) { return std::ranges::find(names, item.name) - names.begin(); };
  std::ranges::stable_sort(out, {}, rank);
  return out;
}

}  // namespace flexformer
