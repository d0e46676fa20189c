#include "train/models/classifier_run.h"

#include <algorithm>

#include "train/datasets/labels.h"
#include "train/models/model_options.h"
#include "train/synthetic/listops.h"
#include "train/text/unknown_share.h"
#include "train/tokenizers/tokenizer_options.h"
#include "train/training/classification_task.h"
#include "train/training/regression_task.h"
#include "train/training/tags_task.h"
#include "train/util/files.h"
#include "train/util/log.h"
#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

TableOptions table_options(const Options& options) {
  TableOptions t;
  t.format = options.text("data.format");
  t.separator = options.text("data.separator");
  t.header = options.text("data.header");
  t.text = options.text("data.text");
  t.text2 = options.text("data.text2");
  t.label = options.text("data.label");
  t.empty_labels = options.text("data.task") == "multilabel";
  t.skip_ragged = options.text("data.ragged") == "skip";
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

std::vector<std::string> labels_of(const Table& table) {
  const LabelMap labels = LabelMap::of(table);
  std::vector<std::string> names;
  for (Index id = 0; id < labels.size(); ++id) names.push_back(labels.name(id));
  return names;
}

// What the training rows decide of the options, see load_classifier_data().
void settle_data_options(Options& options, const Table& train) {
  const auto unless_given = [&](const char* key, const Value& value) {
    if (!options.given(key)) options.set(key, value);
  };
  if (train.text2_column && options.text("data.text2").empty() && !train.columns.empty()) {
    options.set("data.text", train.columns[std::size_t(train.text_column) - 1]);
    options.set("data.text2", train.columns[std::size_t(train.text2_column) - 1]);
  }
  const Index special = options.text("model.pool") == "cls";
  if (is_picture_format(train.format)) {
    if (options.given("data.tokenizer") && options.text("data.tokenizer") != "byte")
      throw UsageError(text("data.tokenizer=", options.text("data.tokenizer"),
                            " cannot read pictures: their tokens are the grey values; leave it out, or give byte"));
    if (options.given("data.lowercase") && options.flag("data.lowercase"))
      throw UsageError("data.lowercase=true would change the grey values of pictures; leave it out");
    std::size_t pixels = 0;
    for (const Row& row : train.rows) pixels = std::max(pixels, row.text.size());
    options.set("data.format", train.format);
    options.set("data.tokenizer", "byte");
    options.set("data.lowercase", false);
    options.set("data.normalize", "none");
    unless_given("data.max_length", std::max<Index>(4, Index(pixels) + special));
  } else if (train.format == "listops") {
    options.set("data.format", train.format);
    unless_given("data.split_punctuation", false);
    unless_given("data.lowercase", false);
    unless_given("data.min_count", Index(1));
    unless_given("data.max_length", Index(2000) + special);
  }
  if (options.text("data.task") == "auto")
    options.set("data.task", !train.label_names.empty()     ? has_flags(train) ? "multilabel" : "regression"
                             : has_fractional_labels(train) ? "regression"
                                                            : "classification");
  if (options.text("data.task") == "multilabel") unless_given("train.label_smoothing", 0.0);
}

// predict finds a text's column by its name, where all tables of the run have it.
void record_text_column(Options& options, const ClassifierData& data) {
  if (!options.text("data.text").empty() || data.train->text2_column || data.train->columns.empty()) return;
  const std::string name = data.train->columns[std::size_t(data.train->text_column) - 1];
  const auto has_it = [&](const std::optional<Table>& table) {
    return !table || std::ranges::count(table->columns, name) == 1;
  };
  if (!name.empty() && has_it(data.train) && has_it(data.valid) && has_it(data.test)) options.set("data.text", name);
}

void read_tables(Options& options, ClassifierData& data, bool settled) {
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
    if (options.text("data.task") == "auto") options.set("data.task", "classification");
    return;
  }
  data.train = read_data_set(train, table_options(options));
  if (options.text("data.task") != "multilabel" && data.train->label_columns.empty())
    settle_labels(*data.train, options.text("data.task"));
  if (!settled) settle_data_options(options, *data.train);
  TableOptions columns = table_options(options);
  if (options.text("data.task") == "classification") columns.known_labels = labels_of(*data.train);
  const double test_share = options.real("data.test_share");
  const bool regression = options.text("data.task") != "classification";  // no classes to share evenly
  if (!test.empty() && test_share > 0) throw UsageError("data.test and data.test_share exclude each other; give one");
  if (!test.empty()) data.test = read_data_set(test, columns);
  if (test_share > 0) data.test = split_off(*data.train, test_share, 0, regression);
  data.valid = valid.empty() ? split_off(*data.train, 0.1, std::uint64_t(options.integer("seed")), regression)
                             : read_data_set(valid, columns);
  if (!settled) record_text_column(options, data);
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

// "12 test rows (3.4 %)", where `all` is more than 0.
std::string count_and_share(Index count, std::size_t all, const std::string& rows) {
  const double percent = 100 * double(count) / double(all);
  return text(grouped(count), " ", rows, " (", percent < 0.05 ? "under 0.1" : fixed(percent, 1), " %)");
}

std::string set_description(const char* name, const Table& table, const EncodedTexts& texts, Index max_length) {
  std::vector<Index> lengths = texts.lengths;
  std::ranges::sort(lengths);
  const auto quantile = [&](double share) { return lengths[std::size_t(share * double(lengths.size() - 1) + 0.5)]; };
  std::string out = text(name, ": ", grouped(Index(texts.rows.size())), " rows; tokens: median ", quantile(0.5),
                         ", 95 % have at most ", quantile(0.95), ", longest ", lengths.back());
  if (texts.truncated)
    out += "; " + count_and_share(texts.truncated, texts.rows.size(), texts.truncated == 1 ? "row" : "rows") +
           text(" cut to data.max_length=", max_length);
  if (texts.empty) out += text("; ", texts.empty, " empty texts stand as one <unk>");
  return out + " (" + table.description() + ")";
}

std::vector<Index> rows_of_classes(const EncodedTexts& texts, const LabelMap& labels) {
  std::vector<Index> counts(std::size_t(labels.size()), 0);
  for (const EncodedText& row : texts.rows) ++counts[std::size_t(row.label)];
  return counts;
}

}  // namespace

void add_classifier_options(Options& options) {
  options.add_path(
      "data.train", "",
      "labelled texts or pictures: a table, a folder with a folder of .txt files for each class, ListOps or "
      "Pathfinder of the Long Range Arena, MNIST's images file, CIFAR-10's batches; .gz is fine; empty: the "
      "embedded ListOps task");
  options.add_path("data.valid", "", "the same to validate on; empty: a tenth of each class of data.train");
  options.add_path("data.test", "", "the same to test the best model on at the end");
  options.add_real("data.test_share", 0,
                   {.max = 1,
                    .below = true,
                    .help = "without data.test: this share of each class of data.train, the "
                            "same rows whatever the seed, becomes the test set"});
  options.add_choice("data.format", "auto", data_format_names(),
                     "how data.train, data.valid and data.test are written");
  options.add_choice("data.separator", "auto", {"auto", "tab", "comma", "semicolon", "bar"},
                     "what stands between the fields of a table; auto: found by look");
  options.add_choice("data.header", "auto", {"auto", "true", "false"}, "whether line 1 holds column names");
  options.add_text("data.text", "", "column of the text, by name or by number from 1; empty: found by rule");
  options.add_text("data.text2", "", "column of the second text of a pair; empty: found by the usual names, if at all");
  options.add_text("data.label", "",
                   "column of the label; several, as toxic,insult: each with 0 and 1, or each with a number");
  options.add_choice("data.ragged", "error", {"error", "skip"},
                     "what becomes of a table's rows with more or fewer fields than the first; skip counts them");
  options.add_choice(
      "data.task", "auto", {"auto", "classification", "regression", "multilabel"},
      "regression: labels are numbers; multilabel: a text has any number of them, with commas between; "
      "auto: regression if all are numbers and not all whole, multilabel for several columns of 0 and 1");
  add_tokenizer_options(options, "word", "; pictures are bytes");
  options.add_flag("data.lowercase", true, "texts are lower-cased first");
  options.add_choice(
      "data.frame", "plain", {"plain", "bert", "roberta"},
      "special tokens around texts: none but a pair's <sep>, and <cls> with model.pool=cls; bert: a <sep> "
      "at the end too; roberta: like that, and two of them within a pair");
  options.add_integer("data.min_count", 2, {.min = 1, .help = "words seen fewer times in training are <unk>"});
  options.add_integer("data.max_length", 256,
                      {.min = 4,
                       .max = 1 << 24,
                       .unit = "tokens",
                       .help = "longer texts lose their end; unless given, all pixels of a picture and 2000 for "
                               "ListOps of the Long Range Arena"});
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
  options.add_choice("train.class_weights", "none", {"none", "balanced"},
                     "balanced: a row's loss counts N / (K rows of its class) for N rows of K classes");
  add_model_options(options, 2, 4, 64, 128, 0.1);
  add_classifier_model_options(options);
  add_machine_options(options);
  options.add_flag("eval", false,
                   "evaluate the best model of the run in out (or the last run) on data.valid, and stop");
}

EncodingOptions encoding_options(const Options& options) {
  EncodingOptions e;
  e.max_length = options.integer("data.max_length");
  e.start_token = options.text("model.pool") == "cls";
  e.pair = !options.text("data.text2").empty();
  e.end_token = options.text("data.frame") != "plain";
  e.separators = options.text("data.frame") == "roberta" ? 2 : 1;
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
  c.balanced = options.text("train.class_weights") == "balanced";
  c.seed = std::uint64_t(options.integer("seed"));
  return c;
}

std::unique_ptr<TextTask> make_text_task(const Classifier& model, const EncodedTexts& train, const EncodedTexts& valid,
                                         const LabelMap& labels, const Options& options) {
  const ClassificationOptions task = classification_options(options);
  if (labels.has_classes()) return std::make_unique<ClassificationTask>(model, train, valid, labels, task);
  if (task.balanced) throw UsageError("train.class_weights=balanced needs classes that exclude each other");
  if (labels.kind() == LabelMap::tags) return std::make_unique<TagsTask>(model, train, valid, labels, task);
  return std::make_unique<RegressionTask>(model, train, valid, labels, task);
}

std::string vocabulary_fingerprint(const Tokenizer& tokenizer, const LabelMap& labels) {
  return fingerprint(tokenizer.fingerprint() + dump_json(labels.to_json()));
}

std::string ClassifierData::vocabulary() const { return vocabulary_fingerprint(*tokenizer, *labels); }

std::vector<std::string> ClassifierData::description() const {
  std::vector<std::string> lines = {set_description("training", *train, train_texts, max_length),
                                    set_description("validation", *valid, valid_texts, max_length)};
  if (test) lines.push_back(set_description("test", *test, test_texts, max_length));
  lines.push_back(labels->has_classes()                ? class_shares()
                  : labels->kind() == LabelMap::number ? text("labels: numbers, mean ", fixed(labels->mean(), 3),
                                                              ", standard deviation ", fixed(labels->deviation(), 3))
                                                       : labels->description());
  for (std::string& line : unknown_words()) lines.push_back(std::move(line));
  for (const std::string& warning : train->warnings) lines.push_back("warning: " + warning);
  if (valid_is_train) lines.push_back("warning: no class has two rows to share; validation is on the training rows");
  std::string shared;
  const auto add_shared = [&](const char* rows, const Table& other) {
    if (const std::int64_t count = count_shared_rows(*train, other))
      shared += (shared.empty() ? "" : " and ") + count_and_share(count, other.rows.size(), rows);
  };
  if (!valid_is_train) add_shared("validation rows", *valid);
  if (test) add_shared("test rows", *test);
  if (!shared.empty()) lines.push_back("warning: " + shared + " have the same text as a training row");
  return lines;
}

std::vector<std::pair<const char*, const EncodedTexts*>> ClassifierData::sets() const {
  std::vector<std::pair<const char*, const EncodedTexts*>> sets = {{"training", &train_texts},
                                                                   {"validation", &valid_texts}};
  if (test) sets.emplace_back("test", &test_texts);
  return sets;
}

Json ClassifierData::unknown_share() const {
  Json shares = Json::object();
  if (!may_be_unknown(*tokenizer)) return shares;
  for (const auto& [name, texts] : sets()) shares[name] = json_number(texts->unknown_share());
  return shares;
}

std::vector<std::string> ClassifierData::unknown_words() const {
  if (!may_be_unknown(*tokenizer)) return {};
  std::vector<UnknownShare> shares;
  for (const auto& [name, texts] : sets()) shares.push_back({name, texts->unknown_share()});
  return describe_unknown(shares, *tokenizer, "data.min_count=1");
}

std::string ClassifierData::class_shares() const {
  std::vector<std::pair<const EncodedTexts*, std::vector<Index>>> sets;
  for (const EncodedTexts* texts : {&train_texts, &valid_texts, &test_texts})
    if (!texts->rows.empty()) sets.emplace_back(texts, rows_of_classes(*texts, *labels));
  constexpr Index most = 20;
  std::string out =
      text("classes: ", labels->size(), "; share of training / validation", test ? " / test" : "", " rows:");
  for (Index c = 0; c < std::min(labels->size(), most); ++c) {
    out += text(c ? "; " : " ", printable(labels->name(c)));
    for (const auto& [texts, counts] : sets)
      out += text(texts == &train_texts ? " " : " / ",
                  fixed(100 * double(counts[std::size_t(c)]) / double(texts->rows.size()), 1));
    out += " %";
  }
  return out + (labels->size() > most ? "; ..." : "");
}

ClassifierData load_classifier_data(Options& options, std::unique_ptr<Tokenizer> stored_tokenizer,
                                    std::optional<LabelMap> stored_labels, bool settled) {
  ClassifierData data;
  if (!settled && stored_labels && options.text("data.task") == "auto") options.set("data.task", stored_labels->task());
  read_tables(options, data, settled);
  const std::string& task = options.text("data.task");
  if (stored_labels && stored_labels->task() != task)
    fail("data.task=", task, ", but the model to start from was trained for ", stored_labels->task());
  data.tokenizer = stored_tokenizer ? std::move(stored_tokenizer) : new_tokenizer(options, data);
  const bool has_columns = !data.train->label_names.empty();
  if (stored_labels)
    data.labels = std::move(stored_labels);
  else if (task == "multilabel")
    data.labels = LabelMap::of_tags(*data.train);
  else if (task == "regression")
    data.labels = has_columns ? LabelMap::of_values(*data.train) : LabelMap::of_numbers(*data.train);
  else
    data.labels = LabelMap::of(*data.train);
  if (has_columns && task == "classification")
    throw UsageError("several columns in data.label are labels of their own: give data.task=multilabel, or one column");
  if (data.labels->has_classes() && data.labels->size() < 2)
    fail(data.train->source, ": all rows have the label ", data.labels->list(), "; is data.label the right column?");
  const EncodingOptions encoding = encoding_options(options);
  data.max_length = encoding.max_length;
  data.train_texts = encode_table(*data.train, *data.labels, *data.tokenizer, encoding);
  data.valid_texts = encode_table(*data.valid, *data.labels, *data.tokenizer, encoding);
  if (data.test) data.test_texts = encode_table(*data.test, *data.labels, *data.tokenizer, encoding);
  data.fingerprint = rows_fingerprint(*data.train);
  return data;
}

EncodedTexts load_labelled(const Options& options, const std::string& path, const Tokenizer& tokenizer,
                           const LabelMap& labels) {
  TableOptions columns = table_options(options);
  for (Index id = 0; id < labels.size(); ++id) columns.known_labels.push_back(labels.name(id));
  return encode_table(read_data_set(path, columns), labels, tokenizer, encoding_options(options));
}

LabelMap load_labels(const RunFolder& folder) {
  const auto path = folder.file("labels.json");
  return LabelMap::from_json(read_json(path), path.string());
}

SavedClassifier::SavedClassifier(const RunFolder& folder, Device device)
    : options("train_classifier", ""), labels(load_labels(folder)) {
  add_classifier_options(options);
  folder.load_config(options);
  tokenizer = load_tokenizer(folder);
  const ClassifierOptions sizes = classifier_options(options, *tokenizer, labels.outputs());
  folder.check_model_size(least_parameters(sizes, sizes.max_length));
  Random random(0);
  model = std::make_unique<Classifier>(sizes, random, device);
  step = folder.load_best(model->parameters(), vocabulary_fingerprint(*tokenizer, labels));
}

}  // namespace flexformer
