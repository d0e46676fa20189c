// What stands in a column of labels: numbers, values that are missing, and spellings of one and the same label.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace flexformer {

struct Table;

// All of `field` as a number, without the blanks around it.
std::optional<std::int64_t> whole_number(std::string_view field);
std::optional<double> finite_number(std::string_view field);

// NA, NaN, null and the like: how programs write a value that is not there.
bool is_missing_value(std::string_view field);
// "4,91".
bool has_decimal_comma(std::string_view field);
// Labels that look alike have the same shape: without case, invisible characters, and differences between blanks.
std::string label_shape(std::string_view label);

// Prepares the labels of training rows; `task` is auto, classification or regression.
//  - Where nearly all labels are numbers with a fraction (or any numbers, for regression), all must be: throws Error
//  with
//    the line of the first that is missing, has a decimal comma or is a word, and with the cure.
//  - Where nearly all are whole numbers, a missing value is such an Error too.
//  - Where all are numbers, equal ones get one spelling, the shortest there is: "1.0" becomes "1" if "1" is there.
//  - Missing values among words, and labels that look alike, become warnings of the table.
void settle_labels(Table& table, const std::string& task);

}  // namespace flexformer
