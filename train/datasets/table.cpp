// The second half of reading a table: records become rows, whose labels become classes or numbers.
#include "train/datasets/table.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "tensor/error.h"
#include "train/datasets/labels.h"
#include "train/datasets/table_columns.h"
#include "train/datasets/table_records.h"
#include "train/util/files.h"
#include "train/util/text_encoding.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// Several columns of labels, by name or number.
void take_label_columns(const std::vector<std::string>& names, Table& table) {
  if (table.columns.empty()) fail(table.source, ": data.label names several columns, but the table has no header");
  for (const std::string& name : names) {
    const auto found = std::ranges::find(table.columns, name);
    const auto number = whole_number(name);
    const std::int64_t column = found != table.columns.end() ? found - table.columns.begin() + 1 : number.value_or(0);
    if (column < 1 || column > std::ssize(table.columns))
      fail(table.source, ": there is no column ", quote(name), " for --data.label");
    if (column == table.text_column || column == table.text2_column)
      fail(table.source, ": column ", column, " cannot be a text and a label at once");
    table.label_columns.push_back(int(column));
    table.label_names.push_back(table.columns[std::size_t(column) - 1]);
  }
}

Row make_row(Record& record, const Table& table, bool need_label) {
  Row row;
  row.line = record.line;
  const auto field = [&](int column, const char* what) -> std::string& {
    const auto index = static_cast<std::size_t>(column) - 1;
    if (index < 64 && (record.nested >> index & 1))
      fail(table.place(row), ": the ", what, " is ", quote(record.fields[index], 40), ", but must be one ",
           "string or number");
    return record.fields[index];
  };
  if (!table.label_columns.empty()) {
    row.label = "";
    for (const int column : table.label_columns)
      row.label->append(column == table.label_columns[0] ? "" : "\t").append(trim(field(column, "label")));
  } else if (table.label_column) {
    row.label = std::string(trim(field(table.label_column, "label")));
    if (row.label->empty() && need_label)
      fail(table.place(row), ": the label is empty; give the row one or leave it out");
  }
  row.text = std::move(field(table.text_column, "text"));
  if (table.text2_column) row.text2 = std::move(field(table.text2_column, "second text"));
  return row;
}

// Files that were joined bring their headers along.
void drop_repeated_headers(Records& records, const Record& header, Table& table) {
  std::int64_t first = 0;
  const auto dropped = std::erase_if(records.records, [&](const Record& record) {
    const bool same = record.fields == header.fields;
    if (same && first == 0) first = record.line;
    return same;
  });
  if (dropped > 0)
    table.notes.push_back(text("the same header again, left out: ", dropped, " (the first in line ", first, ")"));
}

// Where bytes are not UTF-8 the reader of the notes may know what they are.
void note_other_encodings(Table& table) {
  std::int64_t count = 0, first = 0;
  for (const Row& row : table.rows) {
    if (is_valid_utf8(row.text) && is_valid_utf8(row.text2)) continue;
    if (count++ == 0) first = row.line;
  }
  if (count > 0)
    table.notes.push_back(text("rows with bytes that are not UTF-8, kept as they are: ", count, " (the first in line ",
                               first, "; if it is Latin-1: iconv -f LATIN1 -t UTF-8 OLD > NEW)"));
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
  std::string settled;
  if (ends_lines_with_cr(bytes)) {
    settled = bytes;
    settle_line_ends(settled);
    bytes = settled;
  }
  Records records =
      read_records(bytes, source, {options.format, options.separator, options.skip_ragged, !options.need_label});
  Table table;
  table.source = source;
  table.format = records.format;
  table.empty_lines = records.empty_lines;
  table.notes = records.notes;
  if (records.skipped)
    table.notes.push_back(text("rows skipped for their number of fields: ", records.skipped, " (the first in line ",
                               records.first_skipped, ")"));
  TableOptions wanted = options;
  const std::vector<std::string> several = asked_labels(options.label);
  wanted.label = several[0];
  const HeaderDecision decision = decide_header(records, wanted);
  table.header_reason = decision.reason;
  if (decision.header) {
    const Record header = std::move(records.records.front());
    for (const std::string& field : header.fields) table.columns.emplace_back(trim(field));
    records.records.erase(records.records.begin());
    if (!records.named) drop_repeated_headers(records, header, table);
    if (records.records.empty()) fail(source, ": no rows below the header (", decision.reason, ")");
  }
  if (table.format == "trec" || table.format == "fasttext") {
    table.label_column = 1;
    table.text_column = 2;
  } else {
    wanted.need_label = options.need_label && table.format != "lines";
    find_columns(table, records.records, wanted);
  }
  if (several.size() > 1 && table.has_labels()) take_label_columns(several, table);
  if (options.need_label && !table.has_labels()) fail(source, ": lines of plain text have no labels");
  table.rows.reserve(records.records.size());
  for (Record& record : records.records) {
    const Row& row = table.rows.emplace_back(make_row(record, table, options.need_label && !options.empty_labels));
    table.empty_texts += trim(row.text).empty() && trim(row.text2).empty() ? 1 : 0;
  }
  note_other_encodings(table);
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

std::vector<std::int32_t> label_ids(const Table& table, const LabelMap& labels) {
  std::unordered_map<std::string_view, std::int32_t> id_of;  // labels.id() goes through all names
  std::unordered_map<double, std::int32_t> id_of_number;
  for (std::int64_t id = 0; id < labels.size(); ++id) {
    id_of.emplace(labels.name(id), static_cast<std::int32_t>(id));
    if (const auto number = finite_number(labels.name(id)))
      id_of_number.emplace(*number, static_cast<std::int32_t>(id));
  }
  const bool all_numbers = std::ssize(id_of_number) == labels.size();
  std::vector<std::int32_t> ids;
  ids.reserve(table.rows.size());
  for (const Row& row : table.rows) {
    const auto found = row.label ? id_of.find(*row.label) : id_of.end();
    const auto number = all_numbers && row.label ? finite_number(*row.label) : std::nullopt;
    const auto equal = number ? id_of_number.find(*number) : id_of_number.end();
    if (found == id_of.end() && equal == id_of_number.end()) {
      std::string alike;
      for (std::int64_t id = 0; row.label && id < labels.size(); ++id)
        if (label_shape(labels.name(id)) == label_shape(*row.label)) alike = "; is it " + quote(labels.name(id)) + "?";
      fail(table.place(row), ": ", row.label ? "the label " + quote(*row.label) : "no label",
           " is not one of those in the training data: ", labels.list(), alike);
    }
    ids.push_back(found != id_of.end() ? found->second : equal->second);
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
