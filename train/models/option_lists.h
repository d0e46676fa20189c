// Options that are lists: words or whole numbers, separated by commas.
#pragma once
#include <string>
#include <vector>

#include "train/util/config.h"

namespace flexformer {

std::vector<std::string> split_blanks(const std::string& text);
std::vector<std::string> split_commas(std::string text);

// The words of a list option, each of which must be one of `allowed`; "all" stands for them all. Throws UsageError.
std::vector<std::string> chosen_words(const Options& options, const char* key, const std::vector<std::string>& allowed);
// Its whole numbers, from `least` on, in the order in which they are given; at least one. Throws UsageError.
std::vector<std::int64_t> whole_numbers(const Options& options, const char* key, std::int64_t least = 0);

}  // namespace flexformer
