// Published models in our run folders and back. A format is a table of names (pretrained_names.cpp) and a reading of
// its config.json (pretrained_config.cpp); weights differ from ours only in how they lie: matrices that are transposed,
// q, k and v apart or together, and the order of rows where rotary positions pair channels differently.
//
//   gpt2      GPT-2 of Hugging Face                  -> train_lm
//   llama     Llama and Mistral of Hugging Face      -> train_lm
//   llama2c   llama2.c and Meta's own names          -> train_lm
//   bert      BERT with a classification head        -> train_classifier
//   roberta   RoBERTa with a classification head     -> train_classifier
//   distilbert  DistilBERT with a classification head  -> train_classifier
#pragma once
#include <filesystem>

#include "nn/safetensors.h"
#include "nn/transformer.h"
#include "train/datasets/table.h"
#include "train/training/run_folder.h"

namespace flexformer {

// A downloaded model.
struct Pretrained {
  std::string source, weights_source;  // files, for messages
  std::string format;
  Json config;
  NamedTensors tensors;
  std::vector<UnreadTensor> unread = {};  // of types that cannot be read
  std::vector<std::string> files = {};    // that were read
};

// Reads a folder with config.json and model.safetensors (or the parts that model.safetensors.index.json names), or
// llama2.c's .bin: seven int32 (dim, hidden_dim, layers, heads, kv_heads, vocabulary, negative if the head is not tied,
// context length), then the matrices in float32. Throws Error, naming the file, if it is damaged or of no known format.
Pretrained read_pretrained(const std::filesystem::path& from);

// The options of train_lm or train_classifier for the model that config.json describes. Throws Error naming the key and
// value that these models cannot follow, as rope_scaling or a sliding_window.
// `unused` gets the keys that say nothing of what the model computes.
Options options_from_pretrained(const Pretrained& model, std::vector<std::string>* unused = nullptr);
// The inverse: config.json for a run; `outputs` is null for language models. Throws Error naming the key of the run
// that the format has no place for.
Json config_for_pretrained(const std::string& format, const Options& options, const TransformerOptions& transformer,
                           const Tokenizer& tokenizer, const std::vector<std::string>& labels, const LabelMap* outputs);
// The format that fits a run best.
std::string pretrained_format_of(const Options& options);
bool is_encoder_format(const std::string& format);
// The outputs' names in the order of the config's ids, and what they stand for by its problem_type.
std::vector<std::string> labels_from_config(const Json& config, const std::string& source);
LabelMap outputs_from_config(const Json& config, const std::vector<std::string>& labels, const std::string& source);

// Where a tensor of a format lies in a parameter of ours: their row order[r] (r itself without an order) is row
// first + r of ours.
struct WeightPlace {
  std::string theirs, ours;
  Index first = 0, rows = 0;
  bool transposed = false;
  bool is_outer = false;  // its name never has the prefix of the model's body
  std::vector<Index> order = {};
};

// Places for every parameter. `classes`: the id in the format of each class of ours; empty: the same. Throws Error for
// a parameter that the format lacks.
std::vector<WeightPlace> pretrained_places(const std::string& format, const Parameters& parameters,
                                           const TransformerOptions& transformer, const std::vector<Index>& classes);

struct LoadedWeights {
  std::vector<std::string> missing;   // ours that the file has none for: an output layer that was not published
  std::vector<std::string> left_out;  // theirs that were not needed
};
// Copies the weights into the parameters. Names with and without the body's prefix ("transformer.", "model.", "bert.",
// ...) are found; buffers that hold no weights and heads for other uses are left out, whatever their type. Throws Error
// listing all that is missing, too many or of another shape before anything is copied.
LoadedWeights load_pretrained(const Pretrained& model, const std::vector<WeightPlace>& places,
                              const Parameters& parameters);
// The inverse. `names`: those the original file had, so that ours are spelled and ordered alike; may be empty.
NamedTensors save_pretrained(const std::string& format, const std::vector<WeightPlace>& places,
                             const Parameters& parameters, const std::vector<std::string>& names);

struct ImportOptions {
  std::string tokenizer = {};            // file or folder; empty: in the model's own folder
  std::vector<std::string> labels = {};  // of an encoder's classes; empty: the config's
  bool pairs = false;                    // an encoder reads pairs of texts
  bool parse_specials = false;           // as in TokenizerOptions
};
// Makes `folder` the run folder of a trained model: config.json, tokenizer.json, labels.json, checkpoint/best, and
// pretrained.json with what an export needs. Returns lines for people.
std::vector<std::string> import_model(const std::filesystem::path& from, const RunFolder& folder,
                                      const ImportOptions& options);

// Writes config.json, model.safetensors and the tokenizer's files of a run's best weights into the folder `to`.
// `format` empty: the one the run was imported from, or the one that fits. Returns lines for people.
std::vector<std::string> export_model(const RunFolder& folder, const std::filesystem::path& to, std::string format);

}  // namespace flexformer
