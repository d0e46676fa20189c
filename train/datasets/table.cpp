// The second half of reading a table: which record is the header, which columns are texts and label.
#include "train/datasets/table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tensor/error.h"
#include "train/datasets/table_records.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

using Names = std::span<const std::string_view>;

// In order of preference where a header has several.
constexpr std::array<std::string_view, 13> label_names{"label",        "labels",     "class",  "category", "target",
                                                       "sentiment",    "gold_label", "rating", "topic",    "intent",
                                                       "is_duplicate", "quality",    "score"};
constexpr std::array<std::string_view, 16> text_names{
    "text",   "sentence", "sentence1", "text1", "question1", "premise", "review", "content",
    "source", "question", "document",  "body",  "comment",   "tweet",   "title",  "#1 string"};
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

// All of `field` as a number, without the blanks around it.
template <class Number> std::optional<Number> number_in(std::string_view field) {
  field = trim(field);
  Number value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size()) return {};
  return value;
}

std::optional<std::int64_t> whole_number(std::string_view field) { return number_in<std::int64_t>(field); }

std::optional<double> finite_number(std::string_view field) {
  const std::optional<double> value = number_in<double>(field);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

struct Decision {
  bool header = false;
  std::string reason;
};

// Some column that holds whole numbers in all rows but the first; 0 if there is none. Numbers from 1.
std::size_t numbers_below_a_word(const std::vector<Record>& records) {
  if (records.size() < 2) return 0;
  for (std::size_t column = 0; column < records[0].fields.size(); ++column) {
    if (whole_number(records[0].fields[column])) continue;
    const bool numbers = std::all_of(records.begin() + 1, records.end(),
                                     [&](const Record& record) { return whole_number(record.fields[column]); });
    if (numbers) return column + 1;
  }
  return 0;
}

Decision decide_header(const Records& records, const TableOptions& options) {
  if (records.format == "trec" || records.format == "lines") return {false, "no header: the format has none"};
  if (options.header != "auto") {
    const bool header = options.header == "true";
    return {header, header ? "line 1 is a header, as asked" : "no header, as asked"};
  }
  const std::vector<std::string>& first = records.records.front().fields;
  for (const std::string* asked : {&options.text, &options.text2, &options.label})
    for (const std::string& field : first)
      if (!asked->empty() && trim(field) == *asked && !whole_number(*asked))
        return {true, "line 1 is a header: it holds the asked name " + quote(*asked)};
  std::vector<std::string> usual;
  for (const std::string& field : first)
    if (is_among(field, label_names) || is_among(field, text_names) || is_among(field, id_names))
      usual.push_back(normal_name(field));
  if (usual.size() >= 2 && std::set(usual.begin(), usual.end()).size() == usual.size())
    return {true, "line 1 is a header: it names " + usual[0] + " and " + usual[1]};
  if (const std::size_t column = numbers_below_a_word(records.records))
    return {true, text("line 1 is a header: column ", column, " holds numbers in every row but this one")};
  return {false, "no header: line 1 looks like data (--data.header=true makes it one)"};
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
    if (count_ == 1 && !text_column) text_column = 1;
    if (count_ == 2 && !text2_column) fill_in_second(text_column, label_column, look_for_label);
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

  void fill_in_second(int& text_column, int& label_column, bool look_for_label) const {
    const auto is_id = [&](int column) { return !table_.columns.empty() && is_among(name(column), id_names); };
    if (!text_column && !label_column && table_.columns.empty() && look_for_label) label_column = label_by_content();
    if (!text_column && label_column) text_column = 3 - label_column;
    const int other = 3 - text_column;
    if (text_column && !label_column && look_for_label && !is_id(other)) label_column = other;
  }

  bool looks_like_cola() const {
    return table_.columns.empty() && count_ == 4 && std::ranges::all_of(records_, [](const Record& record) {
             const std::string& label = record.fields[1];
             const std::string_view mark = trim(record.fields[2]);
             return (label == "0" || label == "1") && mark.find_first_not_of("*?#") == std::string_view::npos;
           });
  }

  int label_by_content() const {
    std::set<std::string_view> values[2];
    std::size_t bytes[2] = {0, 0};
    for (const Record& record : records_) {
      for (std::size_t column = 0; column < 2; ++column) {
        values[column].insert(trim(record.fields[column]));
        bytes[column] += record.fields[column].size();
      }
    }
    if (values[0].size() != values[1].size()) return values[0].size() < values[1].size() ? 1 : 2;
    return bytes[0] <= bytes[1] ? 1 : 2;
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

Row make_row(Record& record, const Table& table) {
  Row row;
  row.line = record.line;
  const auto field = [&](int column) -> std::string& { return record.fields[static_cast<std::size_t>(column) - 1]; };
  if (table.label_column) {
    row.label = std::string(trim(field(table.label_column)));
    if (row.label->empty()) fail(table.place(row), ": the label is empty");
  }
  row.text = std::move(field(table.text_column));
  if (table.text2_column) row.text2 = std::move(field(table.text2_column));
  return row;
}

}  // namespace

bool is_picture_format(std::string_view format) {
  return format == "idx" || format == "cifar10" || format == "pathfinder";
}

Table read_table(const std::filesystem::path& path, const TableOptions& options) {
  return parse_table(read_text_file(path), path.string(), options);
}

Table parse_table(std::string_view bytes, const std::string& source, const TableOptions& options) {
  if (options.header != "auto" && options.header != "true" && options.header != "false")
    fail("data.header = ", quote(options.header), " is not allowed; it takes auto, true or false");
  Records records = read_records(bytes, source, options.format, options.skip_ragged);
  Table table;
  table.source = source;
  table.format = records.format;
  table.empty_lines = records.empty_lines;
  if (records.skipped)
    table.notes.push_back(text("rows skipped for their number of fields: ", records.skipped, " (the first in line ",
                               records.first_skipped, ")"));
  const Decision decision = decide_header(records, options);
  table.header_reason = decision.reason;
  if (decision.header) {
    for (const std::string& field : records.records.front().fields) table.columns.emplace_back(trim(field));
    records.records.erase(records.records.begin());
    if (records.records.empty()) fail(source, ": no rows below the header (", decision.reason, ")");
  }
  if (table.format == "trec") {
    table.label_column = 1;
    table.text_column = 2;
  } else {
    TableOptions wanted = options;
    wanted.need_label = options.need_label && table.format != "lines";
    ColumnFinder(table, records.records, wanted).find(table.text_column, table.text2_column, table.label_column);
  }
  if (options.need_label && !table.has_labels()) fail(source, ": lines of plain text have no labels");
  table.rows.reserve(records.records.size());
  for (Record& record : records.records) {
    const Row& row = table.rows.emplace_back(make_row(record, table));
    table.empty_texts += trim(row.text).empty() && trim(row.text2).empty() ? 1 : 0;
  }
  return table;
}

std::string Table::place(const Row& row) const {
  if (format == "folder") return source + "/" + row.label.value_or("");
  if (is_picture_format(format)) return text(source, ", picture ", row.line);
  return text(source, ":", row.line);
}

std::string Table::description() const {
  const auto column = [&](const char* what, int number) {
    if (number == 0) return std::string();
    const std::string named = columns.empty() ? "" : text(" ", quote(columns[static_cast<std::size_t>(number) - 1]));
    return text("; ", what, ": column ", number, named);
  };
  std::string result = text(format, ", ", rows.size(), rows.size() == 1 ? " row" : " rows");
  if (!header_reason.empty())
    result += "; " + header_reason + column("text", text_column) + column("second text", text2_column) +
              column("label", label_column);
  if (empty_lines > 0) result += text("; empty lines skipped: ", empty_lines);
  if (empty_texts > 0) result += text("; empty texts kept: ", empty_texts);
  for (const std::string& note : notes) result += "; " + note;
  return result;
}

LabelMap::LabelMap(std::vector<std::string> labels) : names_(std::move(labels)) {
  std::ranges::sort(names_);
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  if (std::ranges::all_of(names_, [](const std::string& name) { return whole_number(name).has_value(); }))
    std::ranges::stable_sort(names_, {}, [](const std::string& name) { return *whole_number(name); });
}

LabelMap LabelMap::of(const Table& table) {
  std::vector<std::string> labels;
  for (const Row& row : table.rows)
    if (row.label) labels.push_back(*row.label);
  if (labels.empty()) fail(table.source, ": no row has a label");
  return LabelMap(std::move(labels));
}

LabelMap LabelMap::of_numbers(const Table& table) {
  const std::vector<double> numbers = label_numbers(table);
  double mean = 0, variance = 0;
  for (double y : numbers) mean += y / double(numbers.size());
  for (double y : numbers) variance += (y - mean) * (y - mean) / double(numbers.size());
  if (!(variance > 0) || !std::isfinite(variance))
    fail(table.source, ": the labels' variance is ", variance, "; is data.label the right column?");
  return LabelMap(mean, std::sqrt(variance));
}

std::int32_t LabelMap::id(std::string_view label) const {
  const auto found = std::ranges::find(names_, label);
  return found == names_.end() ? -1 : static_cast<std::int32_t>(found - names_.begin());
}

std::string LabelMap::list() const {
  constexpr std::size_t most = 30;
  std::string result;
  for (std::size_t id = 0; id < std::min(names_.size(), most); ++id) result += (id ? ", " : "") + quote(names_[id]);
  return names_.size() > most ? text(result, " and ", names_.size() - most, " more") : result;
}

Json LabelMap::to_json() const {
  if (is_regression()) return {{"mean", mean_}, {"deviation", deviation_}};
  Json json = Json::array();
  for (const std::string& name : names_) json.push_back(json_bytes(name));
  return json;
}

LabelMap LabelMap::from_json(const Json& json, const std::string& source) {
  if (json.is_object()) {
    const double mean = number_from_json(json_member(json, "mean", source), source);
    const double deviation = number_from_json(json_member(json, "deviation", source), source);
    if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0)
      fail(source, ": mean ", mean, " and deviation ", deviation, " cannot be those of training rows");
    return LabelMap(mean, deviation);
  }
  if (!json.is_array() || json.empty()) fail(source, ": expected a list of labels, found ", quote(dump_json(json)));
  std::vector<std::string> names;
  for (const Json& element : json) names.push_back(bytes_from_json(element, source));
  LabelMap map(names);
  // The order is the meaning of the classifier's outputs, so a file in another order is not ours to repair.
  if (map.names_ != names) fail(source, ": the labels are not in order or one stands there twice: ", map.list());
  return map;
}

std::vector<std::int32_t> label_ids(const Table& table, const LabelMap& labels) {
  std::unordered_map<std::string_view, std::int32_t> id_of;  // labels.id() goes through all names
  for (std::int64_t id = 0; id < labels.size(); ++id) id_of.emplace(labels.name(id), static_cast<std::int32_t>(id));
  std::vector<std::int32_t> ids;
  ids.reserve(table.rows.size());
  for (const Row& row : table.rows) {
    const auto found = row.label ? id_of.find(*row.label) : id_of.end();
    if (found == id_of.end())
      fail(table.place(row), ": ", row.label ? "the label " + quote(*row.label) : "no label",
           " is not one of those in the training data: ", labels.list());
    ids.push_back(found->second);
  }
  return ids;
}

std::vector<double> label_numbers(const Table& table) {
  std::vector<double> numbers;
  numbers.reserve(table.rows.size());
  for (const Row& row : table.rows) {
    const std::optional<double> number = finite_number(row.label.value_or(""));
    if (!number)
      fail(table.place(row), ": the label ", quote(row.label.value_or("")),
           " is not a number; for classes give --data.task=classification");
    numbers.push_back(*number);
  }
  return numbers;
}

bool has_fractional_labels(const Table& table) {
  bool any = false;
  for (const Row& row : table.rows) {
    const std::optional<double> number = finite_number(row.label.value_or(""));
    if (!number) return false;
    any = any || *number != std::floor(*number);
  }
  return any;
}

std::int64_t count_shared_rows(const Table& table, const Table& other) {
  // A byte no text has at this place would be needed to join the two texts safely; their lengths do instead.
  const auto key = [](const Row& row) { return text(row.text.size(), ' ') + row.text + row.text2; };
  std::unordered_set<std::string> seen;
  for (const Row& row : table.rows) seen.insert(key(row));
  return std::ranges::count_if(other.rows, [&](const Row& row) { return seen.contains(key(row)); });
}

}  // namespace flexformer
