// JSON objects are cut out of the bytes one by one, so that a file of any size needs the memory of its rows alone, and
// every error has its line.
#include <map>

#include "tensor/error.h"
#include "train/datasets/table_records.h"
#include "train/util/json_file.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\x1e";

// Hands out the objects that stand in a row, with or without an array and commas around them.
class ObjectReader {
 public:
  ObjectReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  bool next(std::string_view& object) {
    for (; at_ < bytes_.size(); step()) {
      const char c = bytes_[at_];
      if (c == '{') return cut(object), true;
      if (c == '[' && !in_array_ && first_)
        in_array_ = true, array_line_ = line_;
      else if (c == ']' && in_array_)
        in_array_ = false;
      else if (kBlanks.find(c) == kBlanks.npos && !(c == ',' && !first_))
        fail(source_, ":", line_, ": expected an object {\"text\": ..., \"label\": ...}, found ",
             quote(first_line(bytes_.substr(at_)), 40));
    }
    if (in_array_) fail(source_, ":", array_line_, ": the array that opens here is not closed; is the file complete?");
    return false;
  }
  std::int64_t line() const { return object_line_; }  // where the object starts

 private:
  void step() { line_ += bytes_[at_++] == '\n'; }

  void cut(std::string_view& object) {
    const std::size_t start = at_;
    object_line_ = line_;
    first_ = false;
    bool in_string = false;
    for (std::size_t depth = 0; at_ < bytes_.size(); step()) {
      const char c = bytes_[at_];
      if (in_string && c == '\\' && at_ + 1 < bytes_.size())
        step();
      else if (c == '"')
        in_string = !in_string;
      else if (!in_string && (c == '{' || c == '['))
        ++depth;
      else if (!in_string && (c == '}' || c == ']') && --depth == 0) {
        step();
        object = bytes_.substr(start, at_ - start);
        return;
      }
    }
    fail(source_, ":", object_line_, ": the object that starts here is not closed; is the file complete?");
  }

  std::string_view bytes_;
  const std::string& source_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1, object_line_ = 1, array_line_ = 1;
  bool in_array_ = false, first_ = true;
};

bool is_nested(const Json& value) { return value.is_array() || value.is_object(); }

// What a field of text holds for a value; nothing for null.
std::string field_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "" : dump_json(value);
}

// Rows of named fields, in the order in which the names came up.
class RowsByName {
 public:
  explicit RowsByName(Records& result) : result_(result) {
    result_.named = true;
    result_.records.push_back({});
  }
  void add(const Json& object, std::int64_t line) {
    Record& record = result_.records.emplace_back(Record{.fields = {}, .line = line});
    for (const auto& [name, value] : object.items()) {
      const auto [known, is_new] = columns_.emplace(name, columns_.size());
      if (is_new) result_.records.front().fields.push_back(name);
      const std::size_t column = known->second;
      if (record.fields.size() <= column) record.fields.resize(column + 1);
      record.fields[column] = field_of(value);
      if (is_nested(value) && column < 64) record.nested |= std::uint64_t(1) << column;
    }
  }
  void finish() {
    for (Record& record : result_.records) record.fields.resize(columns_.size());
  }

 private:
  Records& result_;
  std::map<std::string, std::size_t> columns_;
};

bool is_array_of_objects(const Json& value) { return value.is_array() && !value.empty() && value.front().is_object(); }

// A whole table as one object: its rows under some key, or each column under its name as an array or by row numbers.
bool add_whole_table(const Json& object, const std::string& source, RowsByName& rows) {
  for (const auto& [name, value] : object.items()) {
    if (!is_array_of_objects(value)) continue;
    for (const Json& row : value) {
      if (!row.is_object()) fail(source, ": under ", quote(name), " stand objects and other things");
      rows.add(row, 1);
    }
    return true;
  }
  const auto is_column = [&](const Json& value) {
    return is_nested(value) && value.type() == object.front().type() && value.size() == object.front().size() &&
           std::ranges::none_of(value, is_nested);
  };
  if (object.empty() || object.front().empty() || !std::ranges::all_of(object, is_column)) return false;
  for (std::size_t i = 0; i < object.front().size(); ++i) {
    Json row = Json::object();
    for (const auto& [name, column] : object.items()) row[name] = *std::next(column.begin(), std::ptrdiff_t(i));
    rows.add(row, 1);
  }
  return true;
}

}  // namespace

bool looks_like_json_objects(std::string_view bytes) {
  const std::size_t start = bytes.find_first_not_of(kBlanks);
  if (start == bytes.npos) return false;
  if (bytes[start] == '[') {
    const std::size_t inside = bytes.find_first_not_of(kBlanks, start + 1);
    return inside != bytes.npos && bytes[inside] == '{';
  }
  const std::size_t key = bytes[start] == '{' ? bytes.find_first_not_of(kBlanks, start + 1) : bytes.npos;
  if (key == bytes.npos || bytes[key] != '"') return false;
  const std::size_t name_end = bytes.find('"', key + 1);
  const std::size_t colon = name_end == bytes.npos ? name_end : bytes.find_first_not_of(kBlanks, name_end + 1);
  return colon != bytes.npos && bytes[colon] == ':';
}

void read_json_objects(std::string_view bytes, const std::string& source, Records& result) {
  ObjectReader objects(bytes, source);
  RowsByName rows(result);
  std::string_view object, more;
  const bool any = objects.next(object);
  const std::int64_t line = objects.line();
  const bool in_array = trim(bytes).starts_with('[');
  bool several = any && objects.next(more);
  result.format = in_array ? "json" : "jsonl";
  if (any) {
    const Json first = parse_json(object, source, line);
    const bool whole = !several && !in_array && add_whole_table(first, source, rows);
    if (whole) result.format = "json";
    if (!whole) rows.add(first, line);
  }
  for (; several; several = objects.next(more)) rows.add(parse_json(more, source, objects.line()), objects.line());
  rows.finish();
}

}  // namespace flexformer
