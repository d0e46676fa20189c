// Import and export as a whole: weights, configuration, tokenizer and labels.
#include "train/models/pretrained.h"

#include <algorithm>

#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"
#include "train/tokenizers/tokenizer_files.h"
#include "train/util/files.h"
#include "train/util/log.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

// In a folder without a file of a usual name, llama2.c's tok512.bin and the like.
std::string tokenizer_path(const fs::path& from, const std::string& given) {
  if (!given.empty()) return given;
  const fs::path folder = fs::is_directory(from) ? from : from.parent_path();
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder)) {
    const std::string name = entry.path().filename().string();
    if (name == "tokenizer.bin" || name == "tokenizer.model" || name == "tokenizer.json" || name == "vocab.txt" ||
        name == "vocab.json" || name == "encoder.json")
      return folder.empty() ? "." : folder.string();
    if (name.starts_with("tok") && name.ends_with(".bin")) found.push_back(entry.path().string());
  }
  if (found.size() == 1) return found[0];
  fail(folder.string(),
       " holds no tokenizer (tokenizer.json, vocab.json with merges.txt, vocab.txt, tokenizer.model or ",
       "tokenizer.bin); give it by tokenizer=FILE or FOLDER");
}

// Token tables often have more rows than the tokenizer has tokens, to be of a round size: it gets unused ones.
std::unique_ptr<Tokenizer> tokenizer_of_size(const std::string& path, Index rows, bool parse_specials) {
  TokenizerOptions options;
  options.parse_specials = parse_specials;
  std::unique_ptr<Tokenizer> tokenizer = load_vocabulary(path, options);
  const Index tokens = tokenizer->vocab_size();
  if (tokens > rows) fail(path, " has ", tokens, " tokens, but the model's token table only ", rows, " rows");
  if (tokens == rows) return tokenizer;
  for (Index i = tokens; i < rows; ++i) options.specials.push_back(text("<unused_", i, ">"));
  return load_vocabulary(path, options);
}

// The id of each class: `labels` are in the order of ids, ours in theirs.
std::vector<Index> class_ids(const std::vector<std::string>& labels, const LabelMap& ours) {
  std::vector<Index> ids(labels.size(), 0);
  for (std::size_t id = 0; id < labels.size(); ++id) ids[std::size_t(ours.id(labels[id]))] = Index(id);
  return ids;
}

LabelMap label_map(const std::vector<std::string>& labels, const std::string& source) {
  if (labels.size() == 1) return LabelMap(0, 1);  // one output is a number
  const LabelMap map(labels);
  if (map.size() != std::ssize(labels)) fail(source, ": two classes have the same name");
  return map;
}

Index vocabulary_of(const Pretrained& model) { return json_get<Index>(model.config, "vocab_size", model.source); }

std::string description(const Pretrained& model, const TransformerOptions& t, const Parameters& parameters,
                        const Tokenizer& tokenizer) {
  return text(model.format, ": ", t.layers, " layers, ", t.attention.heads, " heads, ", t.dim, " channels, ",
              tokenizer.name(), " vocabulary of ", tokenizer.vocab_size(), ", ", grouped(parameters.count()),
              " parameters");
}

void write_run(const RunFolder& folder, const Options& options, const Tokenizer& tokenizer, const Pretrained& model,
               const std::vector<std::string>& labels, const Parameters& parameters, const std::string& vocabulary) {
  Json names = Json::array();
  for (const NamedTensor& tensor : model.tensors) names.push_back(tensor.name);
  write_json_atomic(folder.file("tokenizer.json"), tokenizer.to_json());
  write_json_atomic(folder.file("pretrained.json"),
                    {{"format", model.format}, {"config", model.config}, {"labels", labels}, {"tensors", names}});
  folder.write_config(options);
  TrainingState state;
  state.best_step = 0;
  state.vocabulary = vocabulary;
  folder.save_best(parameters, state);
}

std::vector<std::string> import_language_model(const Pretrained& model, Options& options, const Tokenizer& tokenizer,
                                               const RunFolder& folder) {
  Random random(0);
  const LanguageModel ours(language_model_options(options, tokenizer.vocab_size()), random);
  const TransformerOptions& t = ours.options().transformer;
  load_pretrained(model, pretrained_places(model.format, ours.parameters(), t, {}), ours.parameters());
  write_run(folder, options, tokenizer, model, {}, ours.parameters(), tokenizer.fingerprint());
  return {description(model, t, ours.parameters(), tokenizer)};
}

std::vector<std::string> import_classifier(const Pretrained& model, Options& options, const Tokenizer& tokenizer,
                                           const RunFolder& folder, const ImportOptions& import) {
  const std::vector<std::string> labels =
      import.labels.empty() ? labels_from_config(model.config, model.source) : import.labels;
  const LabelMap map = label_map(labels, model.source);
  if (import.pairs) options.set("data.text2", "text2");
  Random random(0);
  const Classifier ours(classifier_options(options, tokenizer, map.outputs()), random);
  const TransformerOptions& t = ours.options().transformer;
  const std::vector<Index> ids = map.is_regression() ? std::vector<Index>{} : class_ids(labels, map);
  const std::vector<std::string> missing =
      load_pretrained(model, pretrained_places(model.format, ours.parameters(), t, ids), ours.parameters());
  write_json_atomic(folder.file("labels.json"), map.to_json());
  write_run(folder, options, tokenizer, model, labels, ours.parameters(), vocabulary_fingerprint(tokenizer, map));
  std::vector<std::string> lines = {description(model, t, ours.parameters(), tokenizer),
                                    map.is_regression() ? "output: a number" : "classes: " + map.list()};
  if (!missing.empty()) {
    std::string names;
    for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
    lines.push_back("the output layer was not published (" + names + "): it starts at random and must be trained");
  }
  return lines;
}

std::vector<std::string> strings_of(const Json& object, const char* key, const std::string& source) {
  std::vector<std::string> strings;
  for (const Json& element : json_member(object, key, source)) strings.push_back(bytes_from_json(element, source));
  return strings;
}

struct Exported {
  std::string format;
  Json config;
  NamedTensors tensors;
};

Exported exported(const RunFolder& folder, std::string format, const Options& options, const Parameters& parameters,
                  const TransformerOptions& t, const Tokenizer& tokenizer, const LabelMap* labels) {
  std::vector<std::string> names, ordered;
  Json origin;
  if (fs::exists(folder.file("pretrained.json"))) {
    origin = read_json(folder.file("pretrained.json"));
    const std::string source = folder.file("pretrained.json").string();
    const auto original = json_get<std::string>(origin, "format", source);
    if (format.empty()) format = original;
    if (format != original) origin = nullptr;
    if (!origin.is_null()) {
      names = strings_of(origin, "tensors", source);
      ordered = strings_of(origin, "labels", source);
    }
  }
  if (format.empty()) format = pretrained_format_of(options);
  if (ordered.empty() && labels && !labels->is_regression())
    for (Index i = 0; i < labels->size(); ++i) ordered.push_back(labels->name(i));
  if (ordered.empty() && labels) ordered.push_back("LABEL_0");
  std::vector<Index> ids;
  if (labels && !labels->is_regression()) ids = class_ids(ordered, *labels);
  Exported out{format, {}, {}};
  const Json made = config_for_pretrained(format, options, t, tokenizer.vocab_size(), ordered);
  out.config = origin.is_null() ? made : origin.at("config");
  if (labels) out.config["id2label"] = made.at("id2label"), out.config["label2id"] = made.at("label2id");
  out.tensors = save_pretrained(format, pretrained_places(format, parameters, t, ids), parameters, names);
  return out;
}

}  // namespace

std::vector<std::string> import_model(const fs::path& from, const RunFolder& folder, const ImportOptions& import) {
  const Pretrained model = read_pretrained(from);
  Options options = options_from_pretrained(model);
  const bool classifier = options.program() == "train_classifier";
  if (!classifier && !import.labels.empty())
    throw UsageError(text("labels are of classifiers, but ", model.source, " describes a language model"));
  const std::string path = tokenizer_path(from, import.tokenizer);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of_size(path, vocabulary_of(model), import.parse_specials);
  options.set("data.tokenizer", path);
  return classifier ? import_classifier(model, options, *tokenizer, folder, import)
                    : import_language_model(model, options, *tokenizer, folder);
}

std::vector<std::string> export_model(const RunFolder& folder, const fs::path& to, std::string format) {
  const std::string config = folder.file("config.json").string();
  const bool classifier = json_get<std::string>(read_json(config), "program", config) == "train_classifier";
  Exported out;
  std::vector<std::string> files;
  fs::create_directories(to);
  if (classifier) {
    const SavedClassifier saved(folder);
    out = exported(folder, format, saved.options, saved.model->parameters(), saved.model->options().transformer,
                   *saved.tokenizer, &saved.labels);
    files = write_tokenizer_files(*saved.tokenizer, to);
  } else {
    const SavedLanguageModel saved(folder);
    out = exported(folder, format, saved.options, saved.model->parameters(), saved.model->options().transformer,
                   *saved.tokenizer, nullptr);
    files = write_tokenizer_files(*saved.tokenizer, to);
  }
  write_file_atomic(to / "model.safetensors", write_safetensors({out.tensors, {{"format", "pt"}}}));
  write_json_atomic(to / "config.json", out.config);
  std::string list = "config.json, model.safetensors";
  for (const std::string& file : files) list += ", " + file;
  return {text(out.format, ": ", out.tensors.size(), " tensors"), text(to.string(), ": ", list)};
}

}  // namespace flexformer
