#include "train/classifier_run.h"

#include "train/files.h"
#include "train/listops.h"
#include "train/log.h"
#include "train/model_options.h"
#include "train/program.h"
#include "train/tokenizer_options.h"
#include "train/utf8.h"

namespace flexformer {
namespace {

TableOptions table_options(const Options& options) {
  TableOptions t;
  t.format = options.text("data.format");
  t.header = options.text("data.header");
  t.text = options.text("data.text");
  t.text2 = options.text("data.text2");
  t.label = options.text("data.label");
  return t;
}

// Rows of the embedded task: one generator for all three tables, so that no row comes twice.
Table listops_table(ListOps& listops, Index rows, const char* name) {
  Table table;
  table.source = text("embedded ListOps, ", name, " rows");
  table.format = "tsv";
  table.header_reason = "generated";
  table.text_column = 1;
  table.label_column = 2;
  for (ListOpsRow& row : listops.take(rows))
    table.rows.push_back({std::move(row.text), {}, std::move(row.label), Index(table.rows.size()) + 1});
  return table;
}

void read_tables(const Options& options, ClassifierData& data) {
  const std::string &train = options.text("data.train"), &valid = options.text("data.valid"),
                    &test = options.text("data.test");
  data.embedded = train.empty();
  if (data.embedded) {
    if (!valid.empty() || !test.empty())
      throw UsageError(
          "data.valid or data.test is given without data.train; give it too, or none for embedded ListOps");
    ListOps listops(ListOpsOptions{}, 8);
    data.train = listops_table(listops, 10000, "training");
    data.valid = listops_table(listops, 1000, "validation");
    data.test = listops_table(listops, 1000, "test");
    return;
  }
  const TableOptions columns = table_options(options);
  data.train = read_table(train, columns);
  if (!test.empty()) data.test = read_table(test, columns);
  data.valid =
      valid.empty() ? split_off(*data.train, 0.1, std::uint64_t(options.integer("seed"))) : read_table(valid, columns);
  data.valid_is_train = data.valid->rows.empty();  // no class has two rows
  if (data.valid_is_train) data.valid = data.train;
}

std::unique_ptr<Tokenizer> new_tokenizer(const Options& options, const ClassifierData& data) {
  std::vector<std::string_view> texts;
  for (const Row& row : data.train->rows) {
    texts.push_back(row.text);
    texts.push_back(row.text2);
  }
  const std::string& kind = options.text("data.tokenizer");
  TokenizerOptions t = tokenizer_options(options, kind);
  t.min_count = data.embedded ? 1 : options.integer("data.min_count");
  t.lowercase = options.flag("data.lowercase") && !data.embedded;
  t.keep_newlines = false;
  if (data.embedded) t.split_punctuation = false;  // "[MAX" is one token
  t.specials = kClassifierTokens;
  return make_tokenizer(kind, texts, t);
}

std::string rows_fingerprint(const Table& table) {
  std::string bytes;
  for (const Row& row : table.rows)
    for (const std::string& part : {row.text, row.text2, row.label.value_or("")}) bytes += part, bytes += '\n';
  return fingerprint(bytes);
}

std::string set_description(const char* name, const Table& table, const EncodedTexts& texts) {
  std::string out = text(name, ": ", grouped(Index(texts.rows.size())), " rows, ",
                         fixed(double(texts.tokens) / std::max(1.0, double(texts.rows.size())), 1),
                         " tokens each on average, longest ", texts.longest);
  if (texts.truncated) out += text("; ", texts.truncated, " longer ones lost their end (data.max_length)");
  if (texts.empty) out += text("; ", texts.empty, " empty texts stand as one <unk>");
  return out + " (" + table.description() + ")";
}

}  // namespace

void add_classifier_options(Options& options) {
  options.add_text("data.train", "", "table of labelled texts; empty: the embedded ListOps task");
  options.add_text("data.valid", "", "table to validate on; empty: a tenth of each class of data.train");
  options.add_text("data.test", "", "table to test the best model on at the end");
  options.add_choice("data.format", "auto", {"auto", "tsv", "csv", "trec"}, "how tables are written");
  options.add_choice("data.header", "auto", {"auto", "true", "false"}, "whether line 1 holds column names");
  options.add_text("data.text", "", "column of the text, by name or by number from 1; empty: found by rule");
  options.add_text("data.text2", "", "column of the second text of a pair");
  options.add_text("data.label", "", "column of the label");
  add_tokenizer_options(options, "word");
  options.add_flag("data.lowercase", true, "texts are lower-cased first");
  options.add_integer("data.min_count", 2, {.min = 1, .help = "words seen fewer times in training are <unk>"});
  options.add_integer("data.max_length", 256,
                      {.min = 4, .max = 1 << 24, .unit = "tokens", .help = "longer texts lose their end"});
  add_training_options(options, {.steps = 6000,
                                 .batch = 64,
                                 .warmup = 300,
                                 .eval_every = 1000,
                                 .lr = 1e-3,
                                 .min_lr = 0,
                                 .weight_decay = 0.05,
                                 .beta2 = 0.999,
                                 .label_smoothing = 0.1,
                                 .steps_help = "optimiser steps; see also train.epochs"});
  options.add_real("train.epochs", 0,
                   {.max = 1e6,
                    .help = "rounds over the training rows, instead of train.steps; then train.warmup, "
                            "unless given, is a tenth of them and evaluation follows each; 0: train.steps counts, "
                            "or, for tables of one's own when neither is given, 10 rounds"});
  add_model_options(options, 2, 4, 64, 128, 0.1);
  options.add_choice("model.pool", "mean", {"mean", "cls"},
                     "what stands for a text: the mean of its tokens, or its first");
  options.add_choice("model.pair", "concat", {"concat", "two_tower"},
                     "how a pair of texts is read: joined, or apart and compared");
  add_machine_options(options);
  options.add_flag("eval", false,
                   "evaluate the best model of the run in out (or the last run) on data.valid, and stop");
}

EncodingOptions encoding_options(const Options& options) {
  EncodingOptions e;
  e.max_length = options.integer("data.max_length");
  e.start_token = options.text("model.pool") == "cls";
  e.pair = !options.text("data.text2").empty();
  e.two_tower = options.text("model.pair") == "two_tower";
  if (e.two_tower && !e.pair)
    throw UsageError("model.pair=two_tower compares two texts: name the second one's column in data.text2");
  return e;
}

ClassificationOptions classification_options(const Options& options) {
  ClassificationOptions c;
  c.batch = options.integer("train.batch");
  c.accumulate = options.integer("train.accumulate");
  c.label_smoothing = float(options.real("train.label_smoothing"));
  c.seed = std::uint64_t(options.integer("seed"));
  return c;
}

std::string vocabulary_fingerprint(const Tokenizer& tokenizer, const LabelMap& labels) {
  return fingerprint(tokenizer.fingerprint() + dump_json(labels.to_json()));
}

std::string ClassifierData::vocabulary() const { return vocabulary_fingerprint(*tokenizer, *labels); }

std::vector<std::string> ClassifierData::description() const {
  std::vector<std::string> lines = {set_description("training", *train, train_texts),
                                    set_description("validation", *valid, valid_texts)};
  if (test) lines.push_back(set_description("test", *test, test_texts));
  std::vector<std::int64_t> counts(std::size_t(labels->size()), 0);
  for (const EncodedText& row : train_texts.rows) ++counts[std::size_t(row.label)];
  std::string classes = text("classes: ", labels->size(), "; share of training rows:");
  for (Index c = 0; c < std::min<Index>(labels->size(), 20); ++c)
    classes += text(c ? ", " : " ", printable(labels->name(c)), " ",
                    fixed(100 * double(counts[std::size_t(c)]) / double(train_texts.rows.size()), 1), " %");
  lines.push_back(classes + (labels->size() > 20 ? ", ..." : ""));
  const auto warn_of_shared_rows = [&](const char* name, const Table& other) {
    if (const std::int64_t shared = count_shared_rows(*train, other))
      lines.push_back(text("warning: ", shared, " ", name, " rows have the same text as a training row"));
  };
  if (valid_is_train)
    lines.push_back("warning: no class has two rows to share; validation is on the training rows");
  else
    warn_of_shared_rows("validation", *valid);
  if (test) warn_of_shared_rows("test", *test);
  return lines;
}

ClassifierData load_classifier_data(Options& options, std::unique_ptr<Tokenizer> stored_tokenizer,
                                    std::optional<LabelMap> stored_labels) {
  ClassifierData data;
  read_tables(options, data);
  data.tokenizer = stored_tokenizer ? std::move(stored_tokenizer) : new_tokenizer(options, data);
  data.labels = stored_labels ? std::move(stored_labels) : LabelMap::of(*data.train);
  if (data.labels->size() < 2)
    fail(data.train->source, ": all rows have the label ", data.labels->list(), "; is data.label the right column?");
  const EncodingOptions encoding = encoding_options(options);
  const auto encode = [&](const Table& table) {
    return encode_table(table, label_ids(table, *data.labels), *data.tokenizer, encoding);
  };
  data.train_texts = encode(*data.train);
  data.valid_texts = encode(*data.valid);
  if (data.test) data.test_texts = encode(*data.test);
  data.fingerprint = rows_fingerprint(*data.train);
  return data;
}

EncodedTexts load_labelled(const Options& options, const std::string& path, const Tokenizer& tokenizer,
                           const LabelMap& labels) {
  const Table table = read_table(path, table_options(options));
  return encode_table(table, label_ids(table, labels), tokenizer, encoding_options(options));
}

LabelMap load_labels(const RunFolder& folder) {
  const auto path = folder.file("labels.json");
  return LabelMap::from_json(read_json(path), path.string());
}

SavedClassifier::SavedClassifier(const RunFolder& folder)
    : options("train_classifier", ""), labels(load_labels(folder)) {
  add_classifier_options(options);
  folder.load_config(options);
  tokenizer = load_tokenizer(folder);
  Random random(0);
  model = std::make_unique<Classifier>(classifier_options(options, tokenizer->vocab_size(), labels.size()), random);
  step = folder.load_best(model->parameters(), vocabulary_fingerprint(*tokenizer, labels));
}

}  // namespace flexformer
