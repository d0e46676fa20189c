#include "train/models/option_lists.h"

#include <algorithm>
#include <sstream>

namespace flexformer {

std::vector<std::string> split_blanks(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> split_commas(std::string text) {
  std::ranges::replace(text, ',', ' ');
  return split_blanks(text);
}

std::vector<std::string> chosen_words(const Options& options, const char* key,
                                      const std::vector<std::string>& allowed) {
  if (options.text(key) == "all") return allowed;
  const std::vector<std::string> words = split_commas(options.text(key));
  if (words.empty()) throw UsageError(text(key, " is empty; give names, or all"));
  for (const std::string& word : words)
    if (std::ranges::find(allowed, word) == allowed.end())
      throw UsageError(text(key, ": there is no '", word, "'; the nearest is ", nearest(word, allowed)));
  return words;
}

std::vector<std::int64_t> whole_numbers(const Options& options, const char* key, std::int64_t least) {
  std::vector<std::int64_t> numbers;
  for (const std::string& word : split_commas(options.text(key))) {
    const bool digits = word.find_first_not_of("0123456789") == std::string::npos && word.size() <= 15;
    if (!digits || std::stoll(word) < least)
      throw UsageError(text(key, ": '", word, "' is not a whole number from ", least, " on; give them as in ", key, "=",
                            least + 1, ",", least + 2));
    numbers.push_back(std::stoll(word));
  }
  if (numbers.empty()) throw UsageError(text(key, " is empty; give some, as in ", key, "=", least + 1, ",", least + 2));
  return numbers;
}

}  // namespace flexformer
