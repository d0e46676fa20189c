// What the programs around a classifier share: its keys, its data, and loading it back from a run folder.
#pragma once
#include <memory>
#include <optional>

#include "nn/classifier.h"
#include "train/classification_task.h"
#include "train/run_folder.h"

namespace flexformer {

// Declares every key of train_classifier.
void add_classifier_options(Options& options);

EncodingOptions encoding_options(const Options& options);
ClassificationOptions classification_options(const Options& options);

// The labelled texts that the options ask for: files, or expressions of the embedded ListOps where data.train is empty.
struct ClassifierData {
  std::optional<Table> train, valid, test;  // as read
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<LabelMap> labels;
  EncodedTexts train_texts, valid_texts, test_texts;
  bool embedded = false;
  bool valid_is_train = false;  // the training rows were too few to share
  std::string fingerprint;      // of the training rows

  std::string vocabulary() const;                // fingerprint of tokenizer and labels together
  std::vector<std::string> description() const;  // lines for people
};
// `stored_tokenizer` and `stored_labels`: those of the run that goes on or whose weights are the start, or nothing to
// make them from the training rows.
ClassifierData load_classifier_data(Options& options, std::unique_ptr<Tokenizer> stored_tokenizer,
                                    std::optional<LabelMap> stored_labels);
// One more file, with the tokenizer and labels of a trained model.
EncodedTexts load_labelled(const Options& options, const std::string& path, const Tokenizer& tokenizer,
                           const LabelMap& labels);

// A trained model as a run folder holds it, with its best weights.
struct SavedClassifier {
  explicit SavedClassifier(const RunFolder& folder);

  Options options;  // of the training run
  std::unique_ptr<Tokenizer> tokenizer;
  LabelMap labels;
  std::unique_ptr<Classifier> model;
  Index step;  // at which these weights were best
};

LabelMap load_labels(const RunFolder& folder);
std::string vocabulary_fingerprint(const Tokenizer& tokenizer, const LabelMap& labels);

}  // namespace flexformer
