// What the programs around a classifier share: its keys, its data, and loading it back from a run folder.
#pragma once
#include <memory>
#include <optional>

#include "nn/classifier.h"
#include "train/datasets/data_set.h"
#include "train/training/run_folder.h"
#include "train/training/text_task.h"

namespace flexformer {

// Declares every key of train_classifier.
void add_classifier_options(Options& options);

EncodingOptions encoding_options(const Options& options);
ClassificationOptions classification_options(const Options& options);

// Classification or regression, as the labels are.
std::unique_ptr<TextTask> make_text_task(const Classifier& model, const EncodedTexts& train, const EncodedTexts& valid,
                                         const LabelMap& labels, const Options& options);

// The labelled texts that the options ask for: files, or expressions of the embedded ListOps where data.train is empty.
struct ClassifierData {
  std::optional<Table> train, valid, test;  // as read
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<LabelMap> labels;
  EncodedTexts train_texts, valid_texts, test_texts;
  bool embedded = false;
  bool valid_is_train = false;  // the training rows were too few to share
  Index max_length = 0;         // what the texts were cut to
  std::string fingerprint;      // of the training rows

  std::string vocabulary() const;                // fingerprint of tokenizer and labels together
  std::vector<std::string> description() const;  // lines for people
  std::string class_shares() const;              // the line on the classes
  // {"training": share of <unk> among the tokens, ..}, for summary.json; empty where no token can be <unk>.
  Json unknown_share() const;

 private:
  std::vector<std::pair<const char*, const EncodedTexts*>> sets() const;
  std::vector<std::string> unknown_words() const;
};
// `stored_tokenizer` and `stored_labels`: those of the run that goes on or whose weights are the start, or nothing to
// make them from the training rows. Unless `settled`, as in the options of an older run, the options that the data
// decide are set where they were not given:
//  data.task    regression if all labels are numbers and not all whole ones, else classification
//  data.text, data.text2       the columns of a pair that were found
//  pictures     data.format, data.tokenizer=byte, data.lowercase=false, data.max_length = pixels
//  listops      data.format, data.split_punctuation=false, data.lowercase=false, data.min_count=1, data.max_length=2000
// (with model.pool=cls one token more).
ClassifierData load_classifier_data(Options& options, std::unique_ptr<Tokenizer> stored_tokenizer,
                                    std::optional<LabelMap> stored_labels, bool settled = false);
// One more file, with the tokenizer and labels of a trained model.
EncodedTexts load_labelled(const Options& options, const std::string& path, const Tokenizer& tokenizer,
                           const LabelMap& labels);

// A trained model as a run folder holds it, with its best weights.
struct SavedClassifier {
  explicit SavedClassifier(const RunFolder& folder, Device device = Device::cpu);

  Options options;  // of the training run
  std::unique_ptr<Tokenizer> tokenizer;
  LabelMap labels;
  std::unique_ptr<Classifier> model;
  Index step;  // at which these weights were best
};

LabelMap load_labels(const RunFolder& folder);
std::string vocabulary_fingerprint(const Tokenizer& tokenizer, const LabelMap& labels);

}  // namespace flexformer
