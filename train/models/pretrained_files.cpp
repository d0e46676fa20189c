// Reading published models: safetensors in one file or in parts, and llama2.c's file of bare numbers.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "train/models/pretrained.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

std::string format_of_config(const Json& config, const std::string& source) {
  if (!config.is_object()) fail(source, ": expected an object, found ", config.type_name());
  if (!config.contains("model_type") && config.contains("dim") && config.contains("n_layers")) return "llama2c";
  const auto type = json_get<std::string>(config, "model_type", source);
  if (type == "mistral") return "llama";
  for (const char* known : {"gpt2", "llama", "bert", "roberta", "distilbert"})
    if (type == known) return type;
  fail(source, ": models of model_type ", quote(type), " are not supported; there are gpt2, llama, mistral, bert, ",
       "roberta, distilbert, and llama2.c's with dim and n_layers");
}

void read_tensors(const fs::path& path, Pretrained& model) {
  for (NamedTensor& tensor : read_safetensors(read_file(path), path.string(), &model.unread).tensors)
    model.tensors.push_back(std::move(tensor));
  model.files.push_back(path.filename().string());
}

void read_parts(const fs::path& folder, const fs::path& index, Pretrained& model) {
  const std::string source = index.string();
  const Json json = read_json(index);
  model.files.push_back(index.filename().string());
  std::map<std::string, std::set<std::string>> names_of;  // by file
  for (const auto& [name, file] : json_member(json, "weight_map", source).items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      fail(source, ": weight_map must name a file of this folder for ", quote(name), ", found ", dump_json(file));
    names_of[file.get<std::string>()].insert(name);
  }
  for (const auto& [file, names] : names_of) {
    const std::size_t before = model.tensors.size(), unread = model.unread.size();
    if (!fs::exists(folder / file)) fail(source, " names the part ", quote(file), ", which is not there; fetch it too");
    read_tensors(folder / file, model);
    std::set<std::string> found;
    for (std::size_t i = before; i < model.tensors.size(); ++i) found.insert(model.tensors[i].name);
    for (std::size_t i = unread; i < model.unread.size(); ++i) found.insert(model.unread[i].name);
    for (const std::string& name : names)
      if (!found.count(name))
        fail(source, " says that ", quote(name), " is in ", file, ", but it is not; the parts are of different models");
  }
}

// Without what some programs put in front of every name.
void drop_common_prefix(Pretrained& model) {
  for (const std::string prefix : {"module.", "_orig_mod."}) {
    const auto has_it = [&](const auto& tensor) { return tensor.name.starts_with(prefix); };
    if (model.tensors.empty() || !std::ranges::all_of(model.tensors, has_it) ||
        !std::ranges::all_of(model.unread, has_it))
      continue;
    for (NamedTensor& tensor : model.tensors) tensor.name.erase(0, prefix.size());
    for (UnreadTensor& tensor : model.unread) tensor.name.erase(0, prefix.size());
  }
}

// One tensor after another of a file of floats.
class Floats {
 public:
  Floats(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}

  Tensor take(const Shape& shape, const std::string& name) {
    const auto size = std::size_t(shape.numel()) * sizeof(float);
    if (size > rest_.size())
      fail(source_, ": the file ends within ", name, " ", shape, "; its header does not fit its size");
    Tensor out = Tensor::empty(shape);
    std::memcpy(out.data(), rest_.data(), size);
    rest_.remove_prefix(size);
    return out;
  }
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
  const std::string& source_;
};

Pretrained read_llama2c_bin(const fs::path& path) {
  constexpr std::size_t count = 7;
  const std::string source = path.string(), bytes = read_file(path);
  std::array<std::int32_t, count> header{};
  if (bytes.size() < sizeof header) fail(source, ": it has ", bytes.size(), " bytes, too few for llama2.c's header");
  std::memcpy(header.data(), bytes.data(), sizeof header);
  const auto [dim, hidden, layers, heads, kv_heads, signed_vocabulary, block] = header;
  constexpr std::int32_t most = 1 << 24;
  const Index vocabulary = std::abs(Index(signed_vocabulary));
  for (const Index size :
       {Index(dim), Index(hidden), Index(layers), Index(heads), Index(kv_heads), vocabulary, Index(block)})
    if (size < 1 || size > most) fail(source, ": this is no model of llama2.c: its header holds the size ", size);
  if (dim % heads != 0 || heads % kv_heads != 0)
    fail(source, ": dim ", dim, ", ", heads, " heads and ", kv_heads, " heads of keys do not fit each other");
  const bool tied = signed_vocabulary > 0;
  const Index head_size = dim / heads, kv_dim = head_size * kv_heads;
  Floats floats(std::string_view(bytes).substr(sizeof header), source);
  Pretrained model{source, source, "llama2c", {}, {}};
  model.files.push_back(path.filename().string());
  const auto add = [&](const std::string& name, const Shape& shape) {
    model.tensors.push_back({name, floats.take(shape, name)});
  };
  add("tok_embeddings.weight", {vocabulary, dim});
  const std::pair<const char*, Shape> parts[] = {
      {"attention_norm", {dim}},          {"attention.wq", {dim, dim}},       {"attention.wk", {kv_dim, dim}},
      {"attention.wv", {kv_dim, dim}},    {"attention.wo", {dim, dim}},       {"ffn_norm", {dim}},
      {"feed_forward.w1", {hidden, dim}}, {"feed_forward.w2", {dim, hidden}}, {"feed_forward.w3", {hidden, dim}}};
  for (const auto& [name, shape] : parts)
    for (Index layer = 0; layer < layers; ++layer) add(text("layers.", layer, ".", name, ".weight"), shape);
  add("norm.weight", {dim});
  // cosines and sines of the positions, which follow from the sizes
  floats.take({2, block, head_size / 2}, "freq_cis");
  if (!tied) add("output.weight", {vocabulary, dim});
  if (floats.left() != 0)
    fail(source, ": ", floats.left(), " bytes are left behind the last matrix; its header does not fit its size");
  model.config = {{"dim", dim},           {"hidden_dim", hidden},       {"n_layers", layers},
                  {"n_heads", heads},     {"n_kv_heads", kv_heads},     {"vocab_size", vocabulary},
                  {"max_seq_len", block}, {"tie_word_embeddings", tied}};
  return model;
}

}  // namespace

Pretrained read_pretrained(const fs::path& from) {
  if (fs::is_regular_file(from)) {
    if (from.extension() != ".bin")
      fail(from.string(), ": give the folder of a model with config.json, or a .bin file of llama2.c");
    return read_llama2c_bin(from);
  }
  if (!fs::is_directory(from)) fail(from.string(), ": there is no such folder or file");
  const fs::path config = from / "config.json", whole = from / "model.safetensors";
  const fs::path index = from / "model.safetensors.index.json";
  Pretrained model{config.string(), (fs::exists(whole) ? whole : index).string(), "", read_json(config), {}};
  model.files.push_back("config.json");
  model.format = format_of_config(model.config, model.source);
  if (fs::exists(whole))
    read_tensors(whole, model);
  else if (fs::exists(index))
    read_parts(from, index, model);
  else
    fail(from.string(), " holds no model.safetensors",
         fs::exists(from / "pytorch_model.bin") ? "; pytorch_model.bin cannot be read: in Python, "
                                                  "model.save_pretrained(DIR, safe_serialization=True) writes one"
                                                : "");
  drop_common_prefix(model);
  return model;
}

}  // namespace flexformer
