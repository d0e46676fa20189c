// Kinds of labels: how they are called, and their JSON.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "tensor/error.h"
#include "train/datasets/table.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// By LabelMap::Kind.
struct KindNames {
  const char *task, *problem, *words;
};
constexpr std::array<KindNames, 4> kind_names = {
    {{"classification", "single_label_classification", "classes: "},
     {"regression", "regression", "output: a number"},
     {"regression", "regression", "outputs, each a number: "},
     {"multilabel", "multi_label_classification", "labels, each for itself: "}}};

LabelMap::Value value_from(const Json& json, const std::string& source) {
  const LabelMap::Value value{number_from_json(json_member(json, "mean", source), source),
                              number_from_json(json_member(json, "deviation", source), source)};
  if (!std::isfinite(value.mean) || !std::isfinite(value.deviation) || value.deviation <= 0)
    fail(source, ": mean ", value.mean, " and deviation ", value.deviation, " cannot be those of training rows");
  return value;
}

std::vector<std::string_view> split(std::string_view cell, const char* separators) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0, end; at <= cell.size(); at = end + 1) {
    end = std::min(cell.find_first_of(separators, at), cell.size());
    parts.push_back(trim(cell.substr(at, end - at)));
  }
  return parts;
}

std::vector<std::string_view> tags_of(const Row& row) {
  std::vector<std::string_view> names = split(*row.label, ",;|");
  std::erase(names, "");
  return names;
}

std::optional<float> flag_of(std::string_view field) {
  if (field == "1" || field == "true" || field == "True" || field == "1.0") return 1.0f;
  if (field == "0" || field == "false" || field == "False" || field == "0.0") return 0.0f;
  return {};
}

std::optional<double> number_of(std::string_view field) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size() || !std::isfinite(value)) return {};
  return value;
}

[[noreturn]] void fail_field(const Table& table, const Row& row, std::size_t column, std::string_view field,
                             const char* wanted) {
  fail(table.place(row), ": column ", quote(table.label_names[column]), " holds ", quote(field), ", which is no ",
       wanted);
}

void check_names(const std::vector<std::string>& names) {
  if (names.empty()) fail("a model with several outputs needs names for them");
  std::set<std::string_view> seen;
  for (const std::string& name : names)
    if (!seen.insert(name).second) fail("two labels have the name ", quote(name));
}

}  // namespace

LabelMap LabelMap::of_tags(std::vector<std::string> names) {
  check_names(names);
  return {tags, std::move(names), {}};
}

LabelMap LabelMap::of_values(std::vector<std::string> names, std::vector<Value> given) {
  check_names(names);
  given.resize(names.size());
  return {values, std::move(names), std::move(given)};
}

LabelMap LabelMap::of_tags(const Table& table) {
  if (!table.label_names.empty()) return of_tags(table.label_names);
  std::set<std::string> names;
  for (const Row& row : table.rows)
    for (const std::string_view name : tags_of(row)) names.emplace(name);
  if (names.empty()) fail(table.source, ": no row has a label");
  return of_tags({names.begin(), names.end()});
}

LabelMap LabelMap::of_values(const Table& table) {
  std::vector<Value> values;
  for (std::size_t column = 0; column < table.label_names.size(); ++column) {
    double mean = 0, variance = 0;
    std::vector<double> numbers;
    for (const Row& row : table.rows) {
      const std::string_view field = split(*row.label, "\t")[column];
      const std::optional<double> number = number_of(field);
      if (!number) fail_field(table, row, column, field, "number");
      numbers.push_back(*number);
    }
    for (const double y : numbers) mean += y / double(numbers.size());
    for (const double y : numbers) variance += (y - mean) * (y - mean) / double(numbers.size());
    if (!(variance > 0) || !std::isfinite(variance))
      fail(table.source, ": the variance of column ", quote(table.label_names[column]), " is ", variance,
           "; is data.label right?");
    values.push_back({mean, std::sqrt(variance)});
  }
  return of_values(table.label_names, std::move(values));
}

std::vector<std::vector<float>> label_values(const Table& table, const LabelMap& labels) {
  const auto outputs = std::size_t(labels.outputs());
  const bool tags = labels.kind() == LabelMap::tags;
  std::vector<std::size_t> output_of;  // by column
  for (const std::string& name : table.label_names) {
    if (labels.id(name) < 0)
      fail(table.source, ": the column ", quote(name), " is no output of the model: ", labels.list());
    output_of.push_back(std::size_t(labels.id(name)));
  }
  if (output_of.size() != outputs && !(tags && output_of.empty()))
    fail(table.source, ": data.label must name a column for each of ", labels.list(), ", with commas between them");
  std::vector<std::vector<float>> all;
  for (const Row& row : table.rows) {
    std::vector<float>& values = all.emplace_back(outputs, 0.0f);
    if (output_of.empty())
      for (const std::string_view name : tags_of(row)) {
        const std::int32_t id = labels.id(name);
        if (id < 0)
          fail(table.place(row), ": the label ", quote(name),
               " is not one of those in the training data: ", labels.list());
        values[std::size_t(id)] = 1;
      }
    const std::vector<std::string_view> fields = split(*row.label, "\t");
    for (std::size_t column = 0; column < output_of.size(); ++column) {
      const std::size_t output = output_of[column];
      const std::optional<double> number = number_of(fields[column]);
      const std::optional<float> flag = flag_of(fields[column]);
      if (tags ? !flag : !number)
        fail_field(table, row, column, fields[column], tags ? "0, 1, true or false" : "number");
      values[output] = tags ? *flag
                            : float((*number - labels.value(std::int64_t(output)).mean) /
                                    labels.value(std::int64_t(output)).deviation);
    }
  }
  return all;
}

std::vector<std::string> asked_labels(const std::string& label) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(label, ",")) parts.emplace_back(part);
  return parts;
}

bool has_flags(const Table& table) {
  return std::ranges::all_of(table.rows, [](const Row& row) {
    return std::ranges::all_of(split(*row.label, "\t"),
                               [](std::string_view field) { return flag_of(field).has_value(); });
  });
}

std::string LabelMap::description() const { return kind_names[kind_].words + list(); }
std::string LabelMap::task() const { return kind_names[kind_].task; }
std::string LabelMap::problem_type() const { return kind_names[kind_].problem; }

Json LabelMap::to_json() const {
  if (kind_ == number) return {{"mean", mean()}, {"deviation", deviation()}};
  Json names = Json::array();
  for (std::size_t i = 0; i < names_.size(); ++i)
    names.push_back(
        kind_ == values
            ? Json{{"name", json_bytes(names_[i])}, {"mean", values_[i].mean}, {"deviation", values_[i].deviation}}
            : json_bytes(names_[i]));
  return kind_ == classes ? names : kind_ == tags ? Json{{"tags", names}} : Json{{"values", names}};
}

LabelMap LabelMap::from_json(const Json& json, const std::string& source) {
  const bool has_tags = json.is_object() && json.contains("tags"),
             has_values = json.is_object() && json.contains("values");
  const Json& list = has_tags ? json["tags"] : has_values ? json["values"] : json;
  if (json.is_object() && !has_tags && !has_values) {
    const Value value = value_from(json, source);
    return LabelMap(value.mean, value.deviation);
  }
  if (!list.is_array() || list.empty()) fail(source, ": expected a list of labels, found ", quote(dump_json(list)));
  std::vector<std::string> names;
  std::vector<Value> numbers;
  for (const Json& element : list) {
    names.push_back(bytes_from_json(has_values ? json_member(element, "name", source) : element, source));
    if (has_values) numbers.push_back(value_from(element, source));
  }
  if (has_values) return of_values(std::move(names), std::move(numbers));
  if (has_tags) return of_tags(std::move(names));
  LabelMap map(names);
  // The order is the meaning of the classifier's outputs, so a file in another order is not ours to repair.
  if (map.names_ != names) fail(source, ": the labels are not in order or one stands there twice: ", map.list());
  return map;
}

}  // namespace flexformer
