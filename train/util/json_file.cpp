// nlohmann/json's event parser with our own tree builder: the builder sees every key (so a second one is an error) and,
// through an iterator that remembers how far the lexer has read, knows where each event happened.
#include "train/util/json_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <unordered_set>
#include <vector>

#include "tensor/error.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr std::size_t max_depth = 200;  // deeper nesting is an attack or an accident, and recursion must end somewhere

struct TrackedIterator {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** furthest = nullptr;

  reference operator*() const { return *at; }
  TrackedIterator& operator++() {
    *furthest = ++at;
    return *this;
  }
  TrackedIterator operator++(int) {
    TrackedIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const TrackedIterator& other) const { return at == other.at; }
};

class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::string_view text, const std::string& source, std::int64_t first_line)
      : text_(text), source_(source), first_line_(first_line), furthest_(text.data()) {}

  TrackedIterator begin() { return {text_.data(), &furthest_}; }
  TrackedIterator end() { return {text_.data() + text_.size(), &furthest_}; }
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr), true; }
  bool boolean(bool value) override { return add(value), true; }
  bool number_integer(std::int64_t value) override { return add(value), true; }
  bool number_unsigned(std::uint64_t value) override { return add(value), true; }
  bool number_float(double value, const std::string&) override { return add(value), true; }
  bool string(std::string& value) override { return add(std::move(value)), true; }
  bool binary(Json::binary_t&) override { return false; }  // never in text
  bool start_object(std::size_t) override { return open(Json::object()), true; }
  bool start_array(std::size_t) override { return open(Json::array()), true; }
  bool end_object() override { return close(), true; }
  bool end_array() override { return close(), true; }

  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) fail_here("the key " + quote(name) + " is given twice");
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    if (trim(text_).empty()) fail(source_, ": the file is empty, JSON was expected");
    std::string what = error.what();  // "[json.exception.NAME.NUMBER] parse error at line 1, column 2: reason"
    what.erase(0, what.find("] ") + 2);
    if (what.starts_with("parse error at")) what.erase(0, what.find(": ") + 2);
    if (what.starts_with("syntax error ")) what.erase(0, std::string_view("syntax error ").size());
    if (const char closing = closes_after_comma())
      what = std::string("the comma before '") + closing + "' has nothing after it; remove it";
    constexpr std::size_t longest = 200;  // the reason quotes all that was read of a string
    if (what.size() > longest) what.replace(longest, std::string::npos, "...");
    fail_here(printable(what));
  }

 private:
  Json* add(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    // The key is new, so it need not be looked up, which takes a walk through all keys of an ordered object.
    return &parent.get_ref<Json::object_t&>().emplace_back(std::move(key_), std::move(value)).second;
  }

  void open(Json container) {
    if (open_.size() >= max_depth) fail_here(text("nested deeper than ", max_depth, " levels"));
    open_.push_back(add(std::move(container)));
    keys_.emplace_back();
  }

  void close() {
    open_.pop_back();
    keys_.pop_back();
  }

  std::string_view read_so_far() const { return text_.substr(0, static_cast<std::size_t>(furthest_ - text_.data())); }

  // The closing bracket just read, if a comma stands before it; else 0.
  char closes_after_comma() const {
    const std::string_view read = read_so_far();
    if (read.empty() || (read.back() != '}' && read.back() != ']')) return 0;
    return trim(read.substr(0, read.size() - 1)).ends_with(',') ? read.back() : char{0};
  }

  [[noreturn]] void fail_here(const std::string& what) const {
    const std::string_view before = read_so_far();
    const std::size_t line_start = before.empty() ? 0 : before.substr(0, before.size() - 1).rfind('\n') + 1;
    const auto line =
        first_line_ + std::count(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(line_start), '\n');
    std::size_t column = 0;
    for (std::size_t at = line_start; at < before.size(); at += next_code_point(before, at).length) ++column;
    fail(source_, ":", line, ":", std::max<std::size_t>(column, 1), ": ", what);
  }

  std::string_view text_;
  const std::string& source_;
  std::int64_t first_line_;
  const char* furthest_;
  Json root_;
  std::string key_;
  // Open containers, outermost first. A pointer stays valid: while a child is open its parents do not grow.
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open container, seen so far
};

void make_numbers_finite(Json& json) {
  if (json.is_number_float()) json = json_number(json.get<double>());
  if (!json.is_structured()) return;
  for (Json& element : json) make_numbers_finite(element);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source, std::int64_t first_line) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  TreeBuilder builder(text, source, first_line);
  constexpr bool strict = true, ignore_comments = true;
  Json::sax_parse(builder.begin(), builder.end(), &builder, Json::input_format_t::json, strict, ignore_comments);
  return builder.take();
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

std::string dump_json(const Json& json, int indent) {
  Json copy = json;
  make_numbers_finite(copy);
  return copy.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void write_json_atomic(const std::filesystem::path& path, const Json& json) {
  write_file_atomic(path, dump_json(json, 2) + "\n");
}

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double number_from_json(const Json& json, const std::string& source) {
  if (json.is_number()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  fail(source, ": expected a number, \"nan\", \"inf\" or \"-inf\", found ", quote(dump_json(json)));
}

Json json_bytes(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return bytes;
  Json values = Json::array();
  for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return values;
}

std::string bytes_from_json(const Json& json, const std::string& source) {
  if (json.is_string()) return json.get<std::string>();
  std::string bytes;
  for (const Json& value : json) {
    const bool is_byte = json.is_array() && value.is_number_unsigned() && value.get<std::uint64_t>() < 256;
    if (!is_byte) fail(source, ": expected text or an array of byte values, found ", quote(dump_json(json)));
    bytes.push_back(static_cast<char>(value.get<std::uint64_t>()));
  }
  if (!json.is_array()) fail(source, ": expected text or an array of byte values, found ", quote(dump_json(json)));
  return bytes;
}

const Json& json_member(const Json& object, const char* key, const std::string& source) {
  if (!object.is_object()) fail(source, ": expected an object {...}, found ", object.type_name());
  const auto found = object.find(key);
  if (found == object.end()) fail(source, ": the key '", key, "' is missing");
  return *found;
}

template <class T> T json_get(const Json& object, const char* key, const std::string& source) {
  const Json& value = json_member(object, key, source);
  bool matches = value.is_string();
  if constexpr (std::is_same_v<T, bool>) matches = value.is_boolean();
  if constexpr (std::is_same_v<T, std::int64_t>)  // beyond 2^63 a number would come out negative
    matches = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
  if (!matches) fail(source, ": the key '", key, "' has a value of the wrong type: ", quote(dump_json(value)));
  return value.get<T>();
}

template bool json_get<bool>(const Json&, const char*, const std::string&);
template std::int64_t json_get<std::int64_t>(const Json&, const char*, const std::string&);
template std::string json_get<std::string>(const Json&, const char*, const std::string&);

}  // namespace flexformer
