// Fields between separators. Which character separates them, and whether quotes do anything, is tried out: the reading
// under which all rows have equally many fields is the right one.
#include <array>
#include <optional>
#include <set>

#include "tensor/error.h"
#include "train/datasets/table_records.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

struct Separator {
  char mark;
  std::string_view name, plural;
};
constexpr std::array<Separator, 4> separators = {
    {{'\t', "tab", "tabs"}, {',', "comma", "commas"}, {';', "semicolon", "semicolons"}, {'|', "bar", "bars"}}};

std::string words_for(char mark) {
  for (const Separator& known : separators)
    if (known.mark == mark) return std::string(known.plural);
  return quote(std::string(1, mark));
}

// RFC 4180 with any separator: a field that starts with " ends at the next single ", "" stands for one, and may span
// lines.
class QuotedReader {
 public:
  QuotedReader(std::string_view bytes, std::int64_t lines_before, char separator, const std::string& source)
      : bytes_(bytes), source_(source), separator_(separator), line_(lines_before + 1) {}

  void read(Records& result) {
    while (at_ < bytes_.size()) {
      const std::size_t line_end = std::min(bytes_.find('\n', at_), bytes_.size());
      std::string_view line = bytes_.substr(at_, line_end - at_);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (is_blank(line)) {
        ++result.empty_lines;
        at_ = line_end + 1;
        ++line_;
        continue;
      }
      Record& record = result.records.emplace_back(Record{.fields = {}, .line = line_});
      do record.fields.push_back(bytes_.substr(at_).starts_with('"') ? quoted_field() : plain_field());
      while (take(separator_));
      take('\r');
      if (take('\n')) ++line_;
    }
  }

 private:
  bool take(char wanted) {
    if (at_ >= bytes_.size() || bytes_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::string plain_field() {
    const char ends[] = {separator_, '\n'};
    const std::size_t end = std::min(bytes_.find_first_of(std::string_view(ends, 2), at_), bytes_.size());
    std::string_view field = bytes_.substr(at_, end - at_);
    at_ = end;
    const bool ends_record = end == bytes_.size() || bytes_[end] == '\n';
    if (ends_record && field.ends_with('\r')) field.remove_suffix(1);
    return std::string(field);
  }

  std::string quoted_field() {
    const std::int64_t first_line = line_;
    std::string field;
    ++at_;
    for (;;) {
      const std::size_t end = bytes_.find('"', at_);
      if (end == std::string_view::npos)
        fail(source_, ":", first_line,
             ": the quote that opens here is never closed; double a quote (\"\") that is text");
      const std::string_view part = bytes_.substr(at_, end - at_);
      line_ += std::count(part.begin(), part.end(), '\n');
      field += part;
      at_ = end + 1;
      if (!take('"')) break;
      field += '"';
    }
    const bool at_end = at_ >= bytes_.size() || bytes_[at_] == separator_ || bytes_[at_] == '\n' ||
                        bytes_.substr(at_).starts_with("\r\n");
    if (!at_end)
      fail(source_, ":", line_, ": after the closing quote a ", separator_ == ',' ? "comma" : "separator",
           " or the end of the line must follow, found ", quote(bytes_.substr(at_, 1)),
           "; double a quote (\"\") that is text");
    return field;
  }

  std::string_view bytes_;
  const std::string& source_;
  char separator_;
  std::size_t at_ = 0;
  std::int64_t line_;
};

void split(std::string_view line, char separator, std::vector<std::string>& fields) {
  for (std::size_t start = 0; start <= line.size();) {
    const std::size_t end = std::min(line.find(separator, start), line.size());
    fields.emplace_back(line.substr(start, end - start));
    start = end + 1;
  }
}

// The bytes of a file, and the lines before them that are no rows.
struct Body {
  std::string_view bytes;
  std::int64_t lines_before;
  const std::string& source;
};

Records read_plain(const Body& body, char separator) {
  Records result;
  LineReader lines(body.bytes, body.lines_before);
  for (std::string_view line; lines.next(line);) {
    if (is_blank(line)) {
      ++result.empty_lines;
      continue;
    }
    split(line, separator, result.records.emplace_back(Record{.fields = {}, .line = lines.number()}).fields);
  }
  return result;
}

Records read_quoted(const Body& body, char separator) {
  Records result;
  QuotedReader(body.bytes, body.lines_before, separator, body.source).read(result);
  return result;
}

// All rows have the same number of fields, two or more.
bool is_even(const Records& records) {
  if (records.records.empty() || records.records.front().fields.size() < 2) return false;
  return std::ranges::all_of(records.records, [&](const Record& record) {
    return record.fields.size() == records.records.front().fields.size();
  });
}

// Whether quotes belong to the writing, not to the texts: every field that starts with one ends with one and has none
// alone inside, and some could not have been written otherwise, or all of a column below the first row are so.
bool quotes_are_writing(const Records& plain) {
  bool needed = false;
  std::vector<std::size_t> quoted(plain.records.front().fields.size(), 0);
  for (std::size_t row = 0; row < plain.records.size(); ++row) {
    const std::vector<std::string>& fields = plain.records[row].fields;
    for (std::size_t column = 0; column < fields.size(); ++column) {
      const std::string& field = fields[column];
      if (!field.starts_with('"')) continue;
      if (field.size() < 2 || !field.ends_with('"')) return false;
      const std::string_view inside = std::string_view(field).substr(1, field.size() - 2);
      for (std::size_t at = 0; (at = inside.find('"', at)) != inside.npos; at += 2) {
        if (at + 1 == inside.size() || inside[at + 1] != '"') return false;
        needed = true;
      }
      if (row > 0 && column < quoted.size()) ++quoted[column];
    }
  }
  const std::size_t below = plain.records.size() - 1;
  return needed || (below >= 3 && std::ranges::find(quoted, below) != quoted.end());
}

// A header may be quoted although the rows are not.
void unquote_header(Records& records) {
  std::vector<std::string>& fields = records.records.front().fields;
  const auto is_quoted = [](const std::string& f) { return f.size() > 2 && f.starts_with('"') && f.ends_with('"'); };
  if (!std::ranges::all_of(fields, is_quoted)) return;
  for (std::string& field : fields) field = field.substr(1, field.size() - 2);
  records.notes.push_back("the quotes around the names in line " + std::to_string(records.records.front().line) +
                          " are dropped");
}

// tsv has no quotes, unless its rows say otherwise.
Records read_tabs(const Body& body) {
  Records plain = read_plain(body, '\t');
  if (plain.records.empty() || body.bytes.find('"') == std::string_view::npos) return plain;
  const bool even = is_even(plain);
  if (!even || quotes_are_writing(plain)) {
    try {
      Records quoted = read_quoted(body, '\t');
      if (is_even(quoted)) {
        quoted.notes.push_back("fields are quoted as in csv");
        return quoted;
      }
    } catch (const Error&) {  // these quotes are text
    }
  }
  unquote_header(plain);
  return plain;
}

Records read_with(const Body& body, char separator) {
  return separator == '\t' ? read_tabs(body) : read_quoted(body, separator);
}

// The separator of prose has a blank behind it, or digits around it, in every row.
bool is_of_prose(const Records& records) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto in_all = [&](auto&& holds) {
    return std::ranges::all_of(records.records, [&](const Record& record) {
      for (std::size_t i = 1; i < record.fields.size(); ++i)
        if (holds(record.fields[i - 1], record.fields[i])) return true;
      return false;
    });
  };
  return in_all([](const std::string&, const std::string& right) { return right.starts_with(' '); }) ||
         in_all([&](const std::string& left, const std::string& right) {
           return !left.empty() && !right.empty() && is_digit(left.back()) && is_digit(right.front());
         });
}

// How well one of the columns does as labels: few different ones, then short ones.
std::pair<std::size_t, std::size_t> label_cost(const Records& records) {
  std::pair<std::size_t, std::size_t> best(records.records.size() + 1, 0);
  for (std::size_t column = 0; column < records.records.front().fields.size(); ++column) {
    std::set<std::string_view> values;
    std::size_t bytes = 0;
    for (const Record& record : records.records) {
      values.insert(record.fields[column]);
      bytes += record.fields[column].size();
    }
    best = std::min(best, {values.size(), bytes});
  }
  return best;
}

struct Reading {
  char separator;
  Records records;
};

// "semicolons, which stand equally often in every row (line 1: 'a;b'); commas do too: --data.separator=comma".
std::string reason_for(const Reading& chosen, const std::vector<Reading>& even, const Body& body) {
  std::string reason =
      "fields are separated by " + words_for(chosen.separator) + ", which stand equally often in every row (line " +
      std::to_string(chosen.records.records.front().line) + ": " + quote(first_line(body.bytes), 40) + ")";
  for (const Reading& other : even)
    for (const Separator& known : separators)
      if (other.separator != chosen.separator && known.mark == other.separator)
        reason += text("; ", known.plural, " do too (--data.separator=", known.name, ")");
  return reason;
}

// Of the separators in the first row, the one under which all rows are even; `usual` if that is none or all are as
// good.
Reading try_separators(const Body& body, char usual) {
  const std::string_view first = first_line(body.bytes);
  std::vector<Reading> even;
  for (const Separator& known : separators) {
    if (first.find(known.mark) == first.npos) continue;
    try {
      Records records = read_with(body, known.mark);
      if (is_even(records)) even.push_back({known.mark, std::move(records)});
    } catch (const Error&) {  // broken quotes under this reading
    }
  }
  if (even.empty()) {
    if (first.find(usual) == first.npos)
      for (const Separator& known : separators)
        if (first.find(known.mark) != first.npos) return {known.mark, read_with(body, known.mark)};
    return {usual, read_with(body, usual)};
  }
  const auto is_usual = [&](const Reading& reading) { return reading.separator == usual; };
  std::vector<const Reading*> candidates;
  for (const Reading& reading : even)
    if (!is_of_prose(reading.records)) candidates.push_back(&reading);
  if (candidates.empty())
    for (const Reading& reading : even) candidates.push_back(&reading);
  const Reading* best = *std::ranges::min_element(candidates, [&](const Reading* a, const Reading* b) {
    const auto cost_a = label_cost(a->records), cost_b = label_cost(b->records);
    return cost_a != cost_b ? cost_a < cost_b : is_usual(*a) && !is_usual(*b);
  });
  Reading chosen = *best;
  if (even.size() > 1 || !is_usual(chosen)) chosen.records.notes.push_back(reason_for(chosen, even, body));
  return chosen;
}

// "sep=;" as Excel reads and writes it.
std::optional<char> separator_line(std::string_view line) {
  if (line.size() > 2 && line.starts_with('"') && line.ends_with('"')) line = line.substr(1, line.size() - 2);
  if (line.size() != 5 || lowercase(line.substr(0, 4)) != "sep=") return {};
  return line[4];
}

char mark_of(const std::string& name) {
  for (const Separator& known : separators)
    if (known.name == name) return known.mark;
  fail("data.separator = ", quote(name), " is not allowed; it takes auto, tab, comma, semicolon or bar");
}

// A single field in the first row means that something else separates the fields.
void check_columns(const Records& records, char separator, const std::string& source) {
  const Record& first = records.records.front();
  const auto has_tab = [](const Record& record) {
    return std::ranges::any_of(record.fields, [](const std::string& f) { return f.find('\t') != std::string::npos; });
  };
  const bool tabs_everywhere = separator != '\t' && std::ranges::all_of(records.records, has_tab);
  if (first.fields.size() > 1 && !tabs_everywhere) return;
  const std::string here = text(source, ":", first.line, ": ");
  for (const Separator& other : separators)
    if (other.mark != separator && first.fields.front().find(other.mark) != std::string::npos &&
        (other.mark == '\t' || !tabs_everywhere))
      fail(here, "read as ", records.format, ", but the fields seem to be separated by ", other.plural, "; give ",
           other.mark == '\t' ? "--data.format=tsv" : text("--data.format=csv --data.separator=", other.name));
  fail(here, "only one column, read as ", records.format, ": ", quote(first.fields.front()),
       "; a table of labelled texts needs at least two");
}

}  // namespace

void read_separated(std::string_view bytes, const std::string& source, const RecordOptions& options, Records& result) {
  const std::string& separator = options.separator;
  Body body{bytes, 0, source};
  const std::string format = result.format;
  std::optional<char> asked;
  if (separator != "auto") asked = mark_of(separator);
  if (asked && !format.empty() && (format == "tsv") != (*asked == '\t'))
    fail("data.separator=", separator, " contradicts data.format=", format, "; leave one of them out");
  std::string note;
  LineReader lines(bytes);
  std::string_view first;
  if (lines.next(first) && separator_line(first)) {
    if (!asked) asked = separator_line(first);
    note = "line 1, " + quote(first) + ", is no row: it names the separator";
    body.bytes = bytes.substr(std::min(bytes.find('\n') + 1, bytes.size()));
    body.lines_before = 1;
  }
  const std::string by_name = format_by_name(source);
  const bool has_tab = first_line(body.bytes).find('\t') != std::string_view::npos;
  Reading reading{asked.value_or('\t'), {}};
  if (asked)
    reading.records = read_with(body, *asked);
  else if (format == "tsv")
    reading.records = read_tabs(body);
  else if (format.empty() && (by_name == "tsv" || (by_name != "csv" && has_tab)))
    reading = try_separators(body, '\t');
  else
    reading = try_separators(body, ',');
  if (reading.records.records.empty()) fail(source, ": no rows in this file");
  result = std::move(reading.records);
  result.format = reading.separator == '\t' ? "tsv" : "csv";
  result.separators = words_for(reading.separator);
  if (!note.empty()) result.notes.insert(result.notes.begin(), note);
  if (!options.one_column || result.records.front().fields.size() > 1) check_columns(result, reading.separator, source);
}

}  // namespace flexformer
