#include "train/datasets/labels.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "tensor/error.h"
#include "train/datasets/table.h"
#include "train/tokenizers/text_folding.h"
#include "train/util/unicode.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr double kNearlyAll = 0.8;

template <class Number> std::optional<Number> number_in(std::string_view field) {
  field = trim(field);
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  Number value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size()) return {};
  return value;
}

// How often labels occur, and where first.
struct Seen {
  std::int64_t count = 0;
  const Row* first = nullptr;
};
using Labels = std::map<std::string, Seen>;

std::string rows_text(std::int64_t count) { return text(count, count == 1 ? " row" : " rows"); }

struct NumberCount {
  std::int64_t rows = 0, numbers = 0, commas = 0, fractions = 0, missing = 0;
  bool nearly_all() const { return double(numbers + commas) >= kNearlyAll * double(rows); }
};

NumberCount count_numbers(const Labels& labels) {
  NumberCount counts;
  for (const auto& [label, seen] : labels) {
    const std::optional<double> number = finite_number(label);
    counts.rows += seen.count;
    counts.numbers += number ? seen.count : 0;
    counts.fractions += number && *number != std::floor(*number) ? seen.count : 0;
    counts.commas += has_decimal_comma(label) ? seen.count : 0;
    counts.missing += is_missing_value(label) ? seen.count : 0;
  }
  return counts;
}

// The first row whose label is no number is the user's to mend.
[[noreturn]] void fail_at_first(const Table& table, const NumberCount& counts, bool missing_only) {
  for (const Row& row : table.rows) {
    const std::string& label = *row.label;
    if (finite_number(label) || (missing_only && !is_missing_value(label))) continue;
    const std::string what = text(table.place(row), ": the label ", quote(label));
    if (has_decimal_comma(label)) {
      std::string mended = label;
      std::ranges::replace(mended, ',', '.');
      fail(what, " has a decimal comma; write ", mended,
           ", or give --data.task=classification for classes of this name");
    }
    fail(what, is_missing_value(label) ? " is a missing value" : " is not a number", ", but ", counts.numbers, " of ",
         counts.rows, " labels are numbers; give the row a number or leave it out",
         missing_only ? ", or give --data.task=classification to make it a class"
                      : ", or give --data.task=classification for classes");
  }
  fail(table.source, ": not all labels are numbers");
}

void unite_equal_numbers(Table& table, const Labels& labels) {
  std::map<double, std::string> spelling;
  for (const auto& [label, seen] : labels) {
    std::string& best = spelling.emplace(*finite_number(label), label).first->second;
    if (label.size() < best.size()) best = label;
  }
  if (spelling.size() == labels.size()) return;
  std::string changed;
  for (const auto& [label, seen] : labels)
    if (const std::string& to = spelling.at(*finite_number(label)); to != label)
      changed += text(changed.empty() ? "" : ", ", quote(label), " (", rows_text(seen.count), ", the first in line ",
                      seen.first->line, ") is ", quote(to));
  table.notes.push_back("equal numbers are one label: " + changed);
  for (Row& row : table.rows) row.label = spelling.at(*finite_number(*row.label));
}

void warn_of_missing_values(Table& table, const Labels& labels) {
  for (const auto& [label, seen] : labels)
    if (is_missing_value(label))
      table.warnings.push_back(text(table.place(*seen.first), ": the label ", quote(label), " of ",
                                    rows_text(seen.count),
                                    " is a class like any other, though programs write a missing value so; leave such "
                                    "rows out if it is one"));
}

void warn_of_lookalikes(Table& table, const Labels& labels) {
  std::map<std::string, std::vector<const Labels::value_type*>> shapes;
  for (const auto& entry : labels) shapes[label_shape(entry.first)].push_back(&entry);
  for (const auto& [shape, alike] : shapes) {
    if (alike.size() < 2) continue;
    std::string list;
    for (const auto* entry : alike)
      list += text(list.empty() ? "" : ", ", quote(entry->first), " (", rows_text(entry->second.count),
                   ", the first in line ", entry->second.first->line, ")");
    table.warnings.push_back(text(table.source,
                                  ": labels that differ only in case, blanks or invisible characters are "
                                  "different classes: ",
                                  list));
  }
}

}  // namespace

std::optional<std::int64_t> whole_number(std::string_view field) { return number_in<std::int64_t>(field); }

std::optional<double> finite_number(std::string_view field) {
  const std::optional<double> value = number_in<double>(field);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

bool is_missing_value(std::string_view field) {
  static constexpr std::array<std::string_view, 14> words = {"",     "na",   "n/a",  "nan",  "null",    "none", "nil",
                                                             "#n/a", "<na>", "-nan", "n.a.", "missing", "?",    "-"};
  return std::ranges::find(words, lowercase(trim(field))) != words.end();
}

bool has_decimal_comma(std::string_view field) {
  field = trim(field);
  if (field.starts_with('-') || field.starts_with('+')) field.remove_prefix(1);
  const std::size_t comma = field.find(',');
  const auto digits = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  };
  return comma != field.npos && digits(field.substr(0, comma)) && digits(field.substr(comma + 1));
}

std::string label_shape(std::string_view label) {
  std::string shape;
  for (std::size_t at = 0; at < label.size();) {
    const CodePoint unit = next_code_point(label, at);
    const std::uint32_t c = unit.value;
    const bool invisible = c == 0xAD || (c >= 0x200B && c <= 0x200F) || c == 0x2060 || c == 0xFE0F || c == 0xFEFF;
    if (!unit.valid)
      shape += label[at];
    else if (is_space(unit) && !invisible)
      shape += ' ';
    else if (c >= 0xFF01 && c <= 0xFF5E)  // ASCII in full width
      shape += static_cast<char>(c - 0xFEE0);
    else if (!invisible)
      append_code_point(c, shape);
    at += unit.length;
    if (shape.ends_with("  ")) shape.pop_back();
  }
  return fold_case(normalized(trim(shape), NormalForm::nfc));
}

void settle_labels(Table& table, const std::string& task) {
  if (!table.has_labels()) return;
  Labels labels;
  for (const Row& row : table.rows) {
    Seen& seen = labels[row.label.value_or("")];
    if (seen.count++ == 0) seen.first = &row;
  }
  const NumberCount counts = count_numbers(labels);
  const bool all_numbers = counts.numbers == counts.rows;
  if (task != "classification" && counts.nearly_all() && !all_numbers) {
    if (counts.fractions + counts.commas > 0 || task == "regression") fail_at_first(table, counts, false);
    if (counts.missing > 0) fail_at_first(table, counts, true);
  }
  if (all_numbers) {
    if (task == "classification" || counts.fractions == 0) unite_equal_numbers(table, labels);
    return;
  }
  warn_of_missing_values(table, labels);
  warn_of_lookalikes(table, labels);
}

}  // namespace flexformer
