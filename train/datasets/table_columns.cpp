// Which row is the header, and which columns are texts and label.
#include "train/datasets/table_columns.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "tensor/error.h"
#include "train/datasets/labels.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

using Names = std::span<const std::string_view>;

// In order of preference where a header has several.
constexpr std::array<std::string_view, 17> label_names{
    "label",  "labels",       "class",   "category", "target",  "sentiment", "gold_label", "rating",           "topic",
    "intent", "is_duplicate", "quality", "score",    "emotion", "polarity",  "stars",      "airline_sentiment"};
constexpr std::array<std::string_view, 21> text_names{
    "text",    "sentence",  "sentence1", "text1",     "question1", "premise", "review",
    "content", "source",    "question",  "document",  "body",      "comment", "tweet",
    "title",   "#1 string", "message",   "utterance", "headline",  "sms",     "phrase"};
constexpr std::array<std::string_view, 6> id_names{"id", "index", "idx", "guid", "row", "pairid"};
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> pair_names{{{"sentence1", "sentence2"},
                                                                                   {"text1", "text2"},
                                                                                   {"question1", "question2"},
                                                                                   {"premise", "hypothesis"},
                                                                                   {"question", "sentence"},
                                                                                   {"#1 string", "#2 string"}}};

std::string normal_name(std::string_view field) { return lowercase(trim(field)); }

bool is_among(std::string_view field, Names names) {
  return std::ranges::find(names, normal_name(field)) != names.end();
}

// Some column that holds numbers in all rows but the first; 0 if there is none. Numbers from 1. Ratings may be missing
// in a few rows, which is for the labels' reader to say.
std::size_t numbers_below_a_word(const std::vector<Record>& records) {
  if (records.size() < 2) return 0;
  for (std::size_t column = 0; column < records[0].fields.size(); ++column) {
    const std::string& top = records[0].fields[column];
    if (finite_number(top) || is_missing_value(top) || has_decimal_comma(top)) continue;
    std::size_t others = 0;
    const bool numbers = std::all_of(records.begin() + 1, records.end(), [&](const Record& record) {
      const std::string& field = record.fields[column];
      if (finite_number(field) || record.fields == records[0].fields) return true;  // the same header again
      ++others;
      return is_missing_value(field) || has_decimal_comma(field);
    });
    const std::size_t below = records.size() - 1;
    const bool nearly_all = others == 0 || (below >= 10 && 10 * others <= below);
    if (numbers && nearly_all) return column + 1;
  }
  return 0;
}

// Of two columns without usual names the label is the one with fewer distinct values, then the one with fewer bytes.
int label_by_content(const std::vector<Record>& records, int first, int second) {
  std::set<std::string_view> values[2];
  std::size_t bytes[2] = {0, 0};
  const int columns[2] = {first, second};
  for (const Record& record : records) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string& field = record.fields[static_cast<std::size_t>(columns[i]) - 1];
      values[i].insert(trim(field));
      bytes[i] += field.size();
    }
  }
  if (values[0].size() != values[1].size()) return values[0].size() < values[1].size() ? first : second;
  return bytes[0] <= bytes[1] ? first : second;
}

// The different usual names among fields, as far as they are names.
std::vector<std::string> usual_names(const std::vector<std::string>& fields) {
  std::vector<std::string> usual;
  for (const std::string& field : fields)
    if ((is_among(field, label_names) || is_among(field, text_names) || is_among(field, id_names)) &&
        std::ranges::find(usual, normal_name(field)) == usual.end())
      usual.push_back(normal_name(field));
  return usual;
}

// How the first row's label stands to the others, if `column` holds the labels.
struct FirstLabel {
  bool alone = false;            // it occurs nowhere else
  std::size_t others_alone = 0;  // other labels of one row
  std::size_t others = 0;        // different other labels
};

FirstLabel first_label(const std::vector<Record>& records, int column) {
  std::unordered_map<std::string_view, std::size_t> counts;
  for (const Record& record : records)
    if (&record == &records.front() || record.fields != records.front().fields)  // the same header again
      ++counts[trim(record.fields[static_cast<std::size_t>(column) - 1])];
  FirstLabel found;
  const std::string_view first = trim(records.front().fields[static_cast<std::size_t>(column) - 1]);
  found.alone = counts.at(first) == 1 && !finite_number(first) && !is_missing_value(first);
  found.others = counts.size() - 1;
  for (const auto& [label, count] : counts) found.others_alone += count == 1 && label != first ? 1 : 0;
  return found;
}

// The columns that may be the label of a table without usual names.
std::vector<int> label_columns(const std::vector<Record>& records, const TableOptions& options) {
  const auto count = static_cast<int>(records.front().fields.size());
  if (const auto number = whole_number(options.label); number && *number >= 1 && *number <= count)
    return {static_cast<int>(*number)};
  if (!options.label.empty() || !options.need_label) return {};
  if (count == 2) return {label_by_content(records, 1, 2)};
  std::vector<int> columns;
  for (int column = 1; column <= count; ++column) columns.push_back(column);
  return columns;
}

class ColumnFinder {
 public:
  ColumnFinder(const Table& table, const std::vector<Record>& records, const TableOptions& options)
      : table_(table), records_(records), options_(options), count_(static_cast<int>(records.front().fields.size())) {}

  void find(int& text_column, int& text2_column, int& label_column) const {
    text_column = asked(options_.text, "data.text", true);
    text2_column = asked(options_.text2, "data.text2", true);
    label_column = asked(options_.label, "data.label", options_.need_label);
    const bool look_for_label = options_.label.empty();
    if (!text_column && !options_.text2.empty()) text_column = usual(text_names, {text2_column, label_column});
    for (const auto& [first, second] : pair_names) {
      if (text_column || text2_column || !usual({&first, 1}, {}) || !usual({&second, 1}, {})) continue;
      text_column = usual({&first, 1}, {});
      text2_column = usual({&second, 1}, {});
    }
    if (!text_column) text_column = usual(text_names, {label_column, text2_column});
    if (!label_column && look_for_label) label_column = usual(label_names, {text_column, text2_column});
    const std::vector<int> open = open_columns();
    if (open.size() == 1 && !text_column && open[0] != label_column) text_column = open[0];
    if (open.size() == 2 && !text2_column) fill_in_second(open, text_column, label_column, look_for_label);
    if (!text_column && !label_column && look_for_label && looks_like_cola()) text_column = 4, label_column = 2;
    if (!text_column) fail_to_find("text", "data.text");
    if (!label_column && options_.need_label) fail_to_find("label", "data.label");
    if (text_column == label_column || text_column == text2_column || (text2_column && text2_column == label_column))
      fail(table_.source, ": column ", text_column == label_column ? text_column : text2_column,
           " cannot be two things at once; ", list());
  }

 private:
  // The column an option asks for; 0 if it asks for none, or if it is not there and need not be.
  int asked(const std::string& wanted, const char* option, bool needed) const {
    if (wanted.empty()) return 0;
    for (int column = 1; column <= std::ssize(table_.columns); ++column)
      if (name(column) == wanted) return column;
    const auto number = whole_number(wanted);
    if (number && *number >= 1 && *number <= count_) return static_cast<int>(*number);
    if (!needed) return 0;
    fail(table_.source, ": there is no column ", quote(wanted), " for --", option, "; ", list());
  }

  int usual(Names names, std::initializer_list<int> taken) const {
    for (const std::string_view wanted : names)
      for (int column = 1; column <= std::ssize(table_.columns); ++column)
        if (normal_name(name(column)) == wanted && std::ranges::find(taken, column) == taken.end()) return column;
    return 0;
  }

  // The columns that texts and labels may be in: not those with numbers of rows, nor empty ones without a name.
  std::vector<int> open_columns() const {
    std::vector<int> open;
    for (int column = 1; column <= count_; ++column)
      if (table_.columns.empty() || !(is_among(name(column), id_names) || is_row_number(column) || is_filler(column)))
        open.push_back(column);
    return open;
  }
  bool has_no_name(int column) const { return name(column).empty() || name(column).starts_with("Unnamed: "); }
  bool is_row_number(int column) const {
    return has_no_name(column) && std::ranges::all_of(records_, [&](const Record& record) {
             return whole_number(record.fields[static_cast<std::size_t>(column) - 1]).has_value();
           });
  }
  bool is_filler(int column) const {
    const auto empty = std::ranges::count_if(records_, [&](const Record& record) {
      return trim(record.fields[static_cast<std::size_t>(column) - 1]).empty();
    });
    return has_no_name(column) && 10 * empty >= 9 * std::ssize(records_);
  }

  void fill_in_second(const std::vector<int>& open, int& text_column, int& label_column, bool look_for_label) const {
    if (!text_column && !label_column && look_for_label) label_column = label_by_content(records_, open[0], open[1]);
    const auto other = [&](int column) { return column == open[0] ? open[1] : column == open[1] ? open[0] : 0; };
    if (!text_column && label_column) text_column = other(label_column);
    if (text_column && !label_column && look_for_label) label_column = other(text_column);
  }

  bool looks_like_cola() const {
    return table_.columns.empty() && count_ == 4 && std::ranges::all_of(records_, [](const Record& record) {
             const std::string& label = record.fields[1];
             const std::string_view mark = trim(record.fields[2]);
             return (label == "0" || label == "1") && mark.find_first_not_of("*?#") == std::string_view::npos;
           });
  }

  std::string_view name(int column) const { return table_.columns[static_cast<std::size_t>(column) - 1]; }

  std::string list() const {
    constexpr int most = 30;
    std::string result = "the columns are";
    for (int column = 1; column <= std::min(count_, most); ++column) {
      const std::string& first = records_.front().fields[static_cast<std::size_t>(column) - 1];
      const std::string shown = table_.columns.empty() ? quote(first, 30) : quote(name(column), 30);
      result += text(column > 1 ? ", " : " ", column, " ", shown);
    }
    if (count_ > most) result += text(" and ", count_ - most, " more");
    return result + (table_.columns.empty() ? text(" in line ", records_.front().line) : "");
  }

  [[noreturn]] void fail_to_find(const char* what, const char* option) const {
    fail(table_.source, ": which column is the ", what, "? Give its name or number, --", option, "=N; ", list());
  }

  const Table& table_;
  const std::vector<Record>& records_;
  const TableOptions& options_;
  int count_;
};

}  // namespace

bool holds_usual_names(const std::vector<std::string>& fields) { return usual_names(fields).size() >= 2; }

HeaderDecision decide_header(const Records& records, const TableOptions& options) {
  if (records.named) return {true, "columns are named by the objects' keys"};
  if (records.format == "trec" || records.format == "lines" || records.format == "fasttext")
    return {false, "no header: the format has none"};
  if (options.header != "auto") {
    const bool header = options.header == "true";
    return {header, header ? "line 1 is a header, as asked" : "no header, as asked"};
  }
  const std::vector<std::string>& first = records.records.front().fields;
  const std::string line = text("line ", records.records.front().line);
  for (const std::string* asked : {&options.text, &options.text2, &options.label})
    for (const std::string& field : first)
      if (!asked->empty() && trim(field) == *asked && !whole_number(*asked))
        return {true, line + " is a header: it holds the asked name " + quote(*asked)};
  if (const std::vector<std::string> usual = usual_names(first); usual.size() >= 2)
    return {true, line + " is a header: it names " + usual[0] + " and " + usual[1]};
  if (const std::size_t column = numbers_below_a_word(records.records))
    return {true, text(line, " is a header: column ", column, " holds numbers in every row but this one")};
  const auto is_known = [&](const std::string& field) {
    return std::ranges::find(options.known_labels, trim(field)) != options.known_labels.end();
  };
  if (std::ranges::any_of(first, is_known))
    return {false, "no header: " + line + " holds a label of the training data"};
  std::string doubt;
  for (const int column : label_columns(records.records, options)) {
    const FirstLabel label = first_label(records.records, column);
    const std::string shown = quote(trim(first[static_cast<std::size_t>(column) - 1]), 30);
    if (!label.alone || label.others == 0) continue;
    const bool enough = label.others >= 2 || records.records.size() > 10;
    if (label.others_alone == 0 && enough)
      return {true, text(line, " is a header: ", shown, " occurs nowhere else in column ", column,
                         ", where all else occurs again (--data.header=false makes it data)")};
    if (2 * label.others_alone < label.others && doubt.empty())
      doubt = text("; its ", shown, " occurs nowhere else in column ", column, ", so it may be a header");
  }
  return {false, text("no header: ", line, " looks like data", doubt, " (--data.header=true makes it one)")};
}

void find_columns(Table& table, const std::vector<Record>& records, const TableOptions& options) {
  ColumnFinder(table, records, options).find(table.text_column, table.text2_column, table.label_column);
}

}  // namespace flexformer
