// What Options says about itself, and the search for the key that was meant.
#include <algorithm>
#include <numeric>

#include "train/util/config.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr std::size_t help_width = 110;

// Levenshtein distance, two rows of the table at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitution = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitution, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::string section_of(const Key& key) {
  const std::size_t dot = key.name.find('.');
  return dot == std::string::npos ? "general" : key.name.substr(0, dot);
}

std::string placeholder(const Key& key) {
  switch (key.type) {
    case KeyType::boolean:
      return "true|false";
    case KeyType::integer:
      return "N";
    case KeyType::real:
      return "X";
    case KeyType::text:
      return "TEXT";
    case KeyType::choice:
      break;
  }
  std::string joined;
  for (const std::string& choice : key.choices) joined += (joined.empty() ? "" : "|") + choice;
  return joined;
}

// "[default 1000 steps; 0..1000000]"
std::string default_and_range(const Key& key) {
  const Limits& limits = key.limits;
  std::string shown = to_text(key.default_value);
  std::string result = "[default " + (shown.empty() ? "none" : shown);
  if (!limits.unit.empty()) result += " " + limits.unit;
  if (key.type == KeyType::integer || key.type == KeyType::real) {
    const auto number = [&](double limit) {
      return key.type == KeyType::integer ? to_text(static_cast<std::int64_t>(limit)) : to_text(limit);
    };
    result += std::string("; ") + (limits.above ? ">" : "") + number(limits.min) + ".." + (limits.below ? "<" : "") +
              number(limits.max);
  }
  return result + "]";
}

// Breaks `words` into lines of at most help_width, each behind `indent` spaces.
std::string wrapped(const std::string& words, std::size_t indent) {
  std::string result, line(indent, ' ');
  for (std::size_t start = 0; start < words.size();) {
    const std::size_t end = std::min(words.find(' ', start), words.size());
    const std::string word = words.substr(start, end - start);
    if (line.size() > indent && line.size() + 1 + word.size() > help_width) {
      result += line + "\n";
      line.assign(indent, ' ');
    }
    line += (line.size() > indent ? " " : "") + word;
    start = end + 1;
  }
  return result + line + "\n";
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t most = 100;  // bytes of a word that count: no candidate is near to a longer one
  const std::string wanted = lowercase(word.substr(0, most));
  std::string best;
  std::size_t best_distance = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const std::string name = lowercase(candidate);
    // A match of the last part alone costs one more, so that a plain misspelling comes first.
    const std::size_t distance =
        std::min(edit_distance(wanted, name), edit_distance(last_part(wanted), last_part(name)) + 1);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string Options::version() const { return program_ + " (flexformer) " + program_version; }

std::string Options::help() const {
  std::string result = program_ + ": " + summary_ + "\n\nusage: " + program_ + " [--config=FILE] [--key=value ...]";
  if (!positional_name_.empty()) result += " [" + positional_name_ + " ...]";
  result += "\n\n";
  result +=
      "  --config=FILE      JSON with these keys, as \"section.key\" or as nested objects; the command line wins\n";
  result += "  --print-config     prints the effective config and stops\n";
  result += "  --help, --version\n";
  std::vector<std::string> sections;
  for (const Key& key : keys_)
    if (std::ranges::find(sections, section_of(key)) == sections.end()) sections.push_back(section_of(key));
  for (const std::string& section : sections) {
    result += "\n" + section + "\n";
    for (const Key& key : keys_) {
      if (section_of(key) != section) continue;
      result += "  --" + key.name + "=" + placeholder(key) + "\n";
      result += wrapped(key.limits.help + (key.limits.help.empty() ? "" : " ") + default_and_range(key), 6);
    }
  }
  return result;
}

}  // namespace flexformer
