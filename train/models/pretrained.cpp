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
    if (name == kOwnTokenizerFile) return entry.path().string();
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
std::unique_ptr<Tokenizer> tokenizer_of_size(const std::string& path, Index rows, bool parse_specials,
                                             VocabularyReport& report) {
  TokenizerOptions options;
  options.parse_specials = parse_specials;
  options.report = &report;
  options.rows = rows;
  std::unique_ptr<Tokenizer> tokenizer = load_vocabulary(path, options);
  const Index tokens = tokenizer->vocab_size();
  if (tokens > rows) fail(path, " has ", tokens, " tokens, but the model's token table only ", rows, " rows");
  if (tokens == rows) return tokenizer;
  for (Index i = tokens; i < rows; ++i) options.specials.push_back(text("<unused_", i, ">"));
  options.report = nullptr;
  report.notes.push_back(
      text("rows of the token table without a name: ", rows - tokens, ", ids ", tokens, " to ", rows - 1));
  return load_vocabulary(path, options);
}

// What stands around texts in the tokenizer's files must be what the run puts there.
void check_frame(const VocabularyReport& report, const Options& options, const Tokenizer& tokenizer,
                 const std::string& path) {
  if (tokenizer.name() == "sentencepiece" || report.single.empty()) return;
  std::vector<std::string> single = {"$A"}, pair;
  if (options.has("data.frame") && options.text("data.frame") != "plain") {
    const std::int32_t cls_id = tokenizer.special_id("<cls>"), sep_id = tokenizer.special_id("<sep>");
    if (cls_id < 0 || sep_id < 0)
      fail(path, ": a classifier needs special tokens that begin and end a text, <cls> and <sep> or [CLS] and [SEP]");
    const std::string &cls = tokenizer.token(cls_id), &sep = tokenizer.token(sep_id);
    single = {cls, "$A", sep};
    pair = {cls, "$A", sep, "$B", sep};
    if (options.text("data.frame") == "roberta") pair.insert(pair.begin() + 3, sep);
  }
  const auto shown = [](const std::vector<std::string>& parts) { return dump_json(Json(parts)); };
  if (report.single != single && !(options.has("data.frame") && report.single == std::vector<std::string>{"$A"}))
    fail(path, ": post_processor: ", shown(report.single), " around a text is not supported; it must be ",
         shown(single));
  if (!pair.empty() && report.single == single && report.pair != pair)
    fail(path, ": post_processor: ", shown(report.pair), " around a pair is not supported; it must be ", shown(pair));
}

// "a, b, c and 12 more"
std::string listed(const std::vector<std::string>& items) {
  constexpr std::size_t most = 12;
  std::string out;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) out += (i ? ", " : "") + printable(items[i]);
  return items.size() > most ? text(out, " and ", items.size() - most, " more") : out;
}

// What was read and what was left out, for people.
std::vector<std::string> reading_lines(const fs::path& from, const Pretrained& model, const VocabularyReport& report,
                                       const std::vector<std::string>& unused_keys, const LoadedWeights& loaded) {
  std::vector<std::string> files = model.files, left, lines;
  files.insert(files.end(), report.files.begin(), report.files.end());
  if (fs::is_directory(from))
    for (const auto& entry : fs::directory_iterator(from)) {
      const std::string name = entry.path().filename().string();
      if (std::ranges::find(files, name) == files.end()) left.push_back(name);
    }
  std::ranges::sort(left);
  lines.push_back("read: " + listed(files));
  if (!left.empty()) lines.push_back("files left out: " + listed(left));
  if (!unused_keys.empty()) lines.push_back("keys of config.json left out: " + listed(unused_keys));
  if (!loaded.left_out.empty()) lines.push_back("tensors left out: " + listed(loaded.left_out));
  for (const std::string& note : report.notes) lines.push_back("tokenizer: " + note);
  return lines;
}

// The id of each class: `labels` are in the order of ids, ours in theirs.
std::vector<Index> class_ids(const std::vector<std::string>& labels, const LabelMap& ours) {
  std::vector<Index> ids(labels.size(), 0);
  if (!ours.has_classes()) return {};  // outputs keep their order
  for (std::size_t id = 0; id < labels.size(); ++id) ids[std::size_t(ours.id(labels[id]))] = Index(id);
  return ids;
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

// What an import has read before the model is made.
struct Import {
  const Pretrained& model;
  Options& options;
  const Tokenizer& tokenizer;
  const RunFolder& folder;
  const ImportOptions& wanted;
};

LoadedWeights import_language_model(const Import& import, std::vector<std::string>& lines) {
  const auto& [model, options, tokenizer, folder, wanted] = import;
  Random random(0);
  const LanguageModel ours(language_model_options(options, tokenizer.vocab_size()), random);
  const TransformerOptions& t = ours.options().transformer;
  const LoadedWeights loaded =
      load_pretrained(model, pretrained_places(model.format, ours.parameters(), t, {}), ours.parameters());
  write_run(folder, options, tokenizer, model, {}, ours.parameters(), tokenizer.fingerprint());
  lines.push_back(description(model, t, ours.parameters(), tokenizer));
  return loaded;
}

LoadedWeights import_classifier(const Import& import, std::vector<std::string>& lines) {
  const auto& [model, options, tokenizer, folder, wanted] = import;
  const std::vector<std::string> labels =
      wanted.labels.empty() ? labels_from_config(model.config, model.source) : wanted.labels;
  const LabelMap map = outputs_from_config(model.config, labels, model.source);
  options.set("data.task", map.task());
  if (wanted.pairs) options.set("data.text2", "text2");
  Random random(0);
  const Classifier ours(classifier_options(options, tokenizer, map.outputs()), random);
  const TransformerOptions& t = ours.options().transformer;
  const LoadedWeights loaded = load_pretrained(
      model, pretrained_places(model.format, ours.parameters(), t, class_ids(labels, map)), ours.parameters());
  write_json_atomic(folder.file("labels.json"), map.to_json());
  write_run(folder, options, tokenizer, model, labels, ours.parameters(), vocabulary_fingerprint(tokenizer, map));
  lines.push_back(description(model, t, ours.parameters(), tokenizer));
  lines.push_back(map.description());
  if (!loaded.missing.empty())
    lines.push_back("the output layer was not published (" + listed(loaded.missing) +
                    "): it starts at random and must be trained");
  return loaded;
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
  if (ordered.empty() && labels)
    for (Index i = 0; i < labels->size(); ++i) ordered.push_back(labels->name(i));
  if (ordered.empty() && labels) ordered.push_back("LABEL_0");
  const std::vector<Index> ids = labels ? class_ids(ordered, *labels) : std::vector<Index>();
  Exported out{format, {}, {}};
  const Json made = config_for_pretrained(format, options, t, tokenizer, ordered, labels);
  out.config = origin.is_null() ? made : origin.at("config");
  if (labels && (!origin.is_null() && labels_from_config(out.config, "") != ordered))
    out.config["id2label"] = made.at("id2label"), out.config["label2id"] = made.at("label2id");
  out.tensors = save_pretrained(format, pretrained_places(format, parameters, t, ids), parameters, names);
  return out;
}

}  // namespace

std::vector<std::string> import_model(const fs::path& from, const RunFolder& folder, const ImportOptions& wanted) {
  const Pretrained model = read_pretrained(from);
  std::vector<std::string> unused_keys, lines;
  Options options = options_from_pretrained(model, &unused_keys);
  const bool classifier = options.program() == "train_classifier";
  if (!classifier && !wanted.labels.empty())
    throw UsageError(text("labels are of classifiers, but ", model.source, " describes a language model"));
  const std::string path = tokenizer_path(from, wanted.tokenizer);
  VocabularyReport report;
  const std::unique_ptr<Tokenizer> tokenizer =
      tokenizer_of_size(path, vocabulary_of(model), wanted.parse_specials, report);
  check_frame(report, options, *tokenizer, path);
  options.set("data.tokenizer", path);
  const Import import{model, options, *tokenizer, folder, wanted};
  const LoadedWeights loaded = classifier ? import_classifier(import, lines) : import_language_model(import, lines);
  for (std::string& line : reading_lines(from, model, report, unused_keys, loaded)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> export_model(const RunFolder& folder, const fs::path& to, std::string format) {
  const std::string config = folder.file("config.json").string();
  const bool classifier = json_get<std::string>(read_json(config), "program", config) == "train_classifier";
  Exported out;
  std::vector<std::string> files;
  const auto write_tokenizer = [&](const Tokenizer& tokenizer, const Options& options) {
    fs::create_directories(to);
    TokenizerUse use{.llama2c = out.format == "llama2c", .longest = longest_context(options)};
    if (classifier) use.frame = options.text("data.frame");
    files = write_tokenizer_files(tokenizer, to, use);
  };
  if (classifier) {
    const SavedClassifier saved(folder);
    out = exported(folder, format, saved.options, saved.model->parameters(), saved.model->options().transformer,
                   *saved.tokenizer, &saved.labels);
    write_tokenizer(*saved.tokenizer, saved.options);
  } else {
    const SavedLanguageModel saved(folder);
    out = exported(folder, format, saved.options, saved.model->parameters(), saved.model->options().transformer,
                   *saved.tokenizer, nullptr);
    write_tokenizer(*saved.tokenizer, saved.options);
  }
  write_file_atomic(to / "model.safetensors", write_safetensors({out.tensors, {{"format", "pt"}}}));
  write_json_atomic(to / "config.json", out.config);
  std::vector<std::string> lines = {text(out.format, ": ", out.tensors.size(), " tensors")},
                           all = {"config.json", "model.safetensors"};
  all.insert(all.end(), files.begin(), files.end());
  lines.push_back(text(to.string(), ": ", listed(all)));
  const auto has = [&](const char* name) { return std::ranges::find(files, name) != files.end(); };
  if (has(kOwnTokenizerFile))
    lines.push_back(
        text("the tokenizer has no form that other programs read: ", kOwnTokenizerFile, " is for import_model alone"));
  else if (has("merges.txt") && !fs::exists(folder.file("pretrained.json")))
    lines.push_back(
        "tokenizer.json says how texts are cut; programs that read vocab.json and merges.txt alone cut as GPT-2 does");
  return lines;
}

}  // namespace flexformer
