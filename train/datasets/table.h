// Tables of labelled texts: TSV, CSV, TREC question files and plain lines, with everything that was decided about a
// file (format, header, columns) kept for the trainer to print. Texts and labels are the file's bytes, also where those
// are not UTF-8. Other data sets become such tables too, see data_set.h.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/util/json_file.h"

namespace flexformer {

struct TableOptions {
  std::string format = "auto";     // auto, tsv, csv, trec, lines, jsonl, json, fasttext
  std::string separator = "auto";  // of tsv and csv: auto, tab, comma, semicolon, bar
  std::string header = "auto";     // auto, true, false
  // Columns by name (from the header) or by number from 1; "" is found by rule, see read_table().
  std::string text = {}, text2 = {}, label = {};
  bool empty_labels = false;  // a row may have none: labels that do not exclude each other
  bool need_label = true;     // false: a table without label column, or a row without label, is fine (prediction)
  std::vector<std::string> known_labels = {};  // a first line with one of these is no header
  bool skip_ragged = false;  // rows with another number of fields than the first are left out and counted
};

struct Row {
  std::string text, text2;
  std::optional<std::string> label;  // without spaces around it; of several columns, with tabs between them
  std::int64_t line = 0;             // where the row starts in its file, from 1; of other data sets, its number
};

struct Table {
  std::string source;  // the file, for messages
  std::string format;  // what it was read as
  std::vector<Row> rows;
  std::vector<std::string> columns;                         // names from the header; empty without one
  std::string header_reason;                                // "line 1 is a header: ..." or "no header: ..."
  int text_column = 0, text2_column = 0, label_column = 0;  // numbers from 1; 0: none
  std::vector<std::string> label_names;                     // of several label columns; else empty
  std::vector<int> label_columns;                           // their numbers
  std::int64_t empty_lines = 0;                             // skipped
  std::int64_t empty_texts = 0;                             // kept: rows whose texts hold nothing but white space
  std::vector<std::string> notes;                           // what else is worth knowing about how it was read
  std::vector<std::string> warnings;                        // what the user should look at, a line each

  bool has_labels() const { return label_column != 0; }
  // "train.tsv:7", for messages; "train/pos" of a folder of texts, "train.bin, picture 7" of pictures.
  std::string place(const Row& row) const;
  // "tsv, 4 rows, line 1 is a header: it names label and text; text: column 2 'text', label: column 1 'label'; ..."
  std::string description() const;
};

// idx, cifar10, pathfinder: rows are pictures, whose text is one byte a pixel.
bool is_picture_format(std::string_view format);

// Reads a file, or the bytes of one.
//
// Format `auto`: objects of JSON by what the file starts with; "__label__ham text" in every line -> fasttext; else
// fields between separators, or trec if every line starts "WORD:word ".
//  tsv, csv   Fields between separators. `auto` takes the separator of the first row that stands equally often in every
//             row; of several the one under which a column is most like labels, and never one that prose explains (a
//             blank behind it, or digits around it, in every row). None: tab for .tsv and .tab, comma for others. A
//             first line "sep=;" names it. csv quotes as RFC 4180: a field that starts with " ends at the next single
//             ", "" stands for one, and may span lines. tsv, separated by tabs, has quotes only where they cannot be
//             text.
//  trec       "LABEL:fine text": the label is what stands before ':', the text all after the first space.
//  fasttext   "__label__ham text", one label in a line.
//  jsonl, json  objects, one a line or in an array; a whole table as one object of columns, or with its rows under a
//  key.
//             Columns are the keys. A label or text that is itself an array or object is an error.
//  lines      each line is a text; no labels.
// Lines end at LF or CR LF, or at CR where there is no LF. Those without any character but blanks are skipped and
// counted. A row whose number of fields differs from the first row's is an error with its line, unless such rows are to
// be skipped.
//
// Header `auto`: line 1 is a header if it names a column that the options ask for by name, or if two of its fields are
// different usual names (label, class, ...; text, sentence, ...; id, index), or if some column holds numbers in every
// row but this one, or if its label occurs nowhere else while every other label occurs again. Otherwise it is data. The
// same header further down is left out and counted.
//
// Columns not given: by the usual names in a header (sentence1 and sentence2 etc. are a pair); of two columns, the one
// that is left. Columns of row numbers, and empty ones without a name, do not count. Of two without usual names the
// label is the one with fewer distinct values; among equals the one with fewer bytes in all; among equals the first. Of
// four as CoLA has them (source, 0 or 1, nothing or a mark such as "*", sentence), the second is the label and the last
// the text. Otherwise an error lists the columns there are.
//
// Throws Error with file and line; also for a file without rows and a row without label in a table that has labels.
Table read_table(const std::filesystem::path& path, const TableOptions& options);
Table parse_table(std::string_view bytes, const std::string& source, const TableOptions& options);

// What a model's outputs stand for.
//  classes  one of several: the distinct labels of the training rows, in numerical order if all are whole numbers, else
//           by bytes.
//  number   one number y, of which the model gives (y - mean) / deviation with the mean and standard deviation of the
//           training rows, whatever unit y has.
//  values   several such numbers, each with a name.
//  tags     several labels, each of which a text has or has not, whatever the others are.
class LabelMap {
 public:
  enum Kind { classes, number, values, tags };
  // A number of several.
  struct Value {
    double mean = 0, deviation = 1;
    bool operator==(const Value&) const = default;
  };

  explicit LabelMap(std::vector<std::string> labels);  // classes: sorts, drops repeats
  LabelMap(double mean, double deviation) : kind_(number), values_{{mean, deviation}} {}
  // In the order of the outputs. Throws Error for a name that comes twice.
  static LabelMap of_tags(std::vector<std::string> names);
  static LabelMap of_values(std::vector<std::string> names, std::vector<Value> values = {});
  static LabelMap of(const Table& table);
  // Throws Error with the line for a label that is no number, and where all are the same.
  static LabelMap of_numbers(const Table& table);
  // Of several label columns, or of cells that hold several labels; see label_values().
  static LabelMap of_values(const Table& table);
  static LabelMap of_tags(const Table& table);

  Kind kind() const { return kind_; }
  bool is_regression() const { return kind_ == number || kind_ == values; }
  bool has_classes() const { return kind_ == classes; }
  bool has_several() const { return kind_ == values || kind_ == tags; }
  std::int64_t outputs() const { return kind_ == number ? 1 : size(); }
  const Value& value(std::int64_t output) const { return values_.at(static_cast<std::size_t>(output)); }
  double mean() const { return values_.at(0).mean; }
  double deviation() const { return values_.at(0).deviation; }
  std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }  // names
  const std::string& name(std::int64_t id) const { return names_.at(static_cast<std::size_t>(id)); }
  std::int32_t id(std::string_view label) const;  // -1: unknown
  std::string list() const;                       // "'neg', 'pos'", for messages
  std::string description() const;                // "classes: 'neg', 'pos'"
  std::string task() const;                       // as data.task calls it
  std::string problem_type() const;               // as Hugging Face's config.json calls it
  bool operator==(const LabelMap&) const = default;

  // classes: an array in order of ids; else {"mean": .., "deviation": ..}, {"values": [{"name": ..} ..]}, {"tags":
  // [..]}
  Json to_json() const;
  static LabelMap from_json(const Json& json, const std::string& source);

 private:
  LabelMap(Kind kind, std::vector<std::string> names, std::vector<Value> values)
      : kind_(kind), names_(std::move(names)), values_(std::move(values)) {}

  Kind kind_ = classes;
  std::vector<std::string> names_;
  std::vector<Value> values_;
};

// The class of each row. Where all classes are numbers, an equal number is the same label. Throws Error with line,
// label and the known labels for one that training did not have.
std::vector<std::int32_t> label_ids(const Table& table, const LabelMap& labels);
// The number each row has as its label. Throws Error with the line of one that is none.
std::vector<double> label_numbers(const Table& table);
// What each row says of each output of `labels`, values or tags: in a column for each output (a number; 1, 0, true or
// false), or for tags in one column that names those that apply, with a comma, semicolon or bar between them; an empty
// one names none. Throws Error with the line.
std::vector<std::vector<float>> label_values(const Table& table, const LabelMap& labels);
// The parts of data.label where it names several columns, as "toxic,insult"; else it alone.
std::vector<std::string> asked_labels(const std::string& label);
// Whether all fields of several label columns are 0, 1, true or false.
bool has_flags(const Table& table);
// Whether all labels are numbers, and at least one not a whole one: ratings and scores, not numbered classes.
bool has_fractional_labels(const Table& table);

// How many rows of `other` have both texts equal to those of some row of `table`.
std::int64_t count_shared_rows(const Table& table, const Table& other);

}  // namespace flexformer
