// Splitting into records. Three formats are lines; csv is not, because a quoted field may hold line breaks.
#include "train/datasets/table_records.h"

#include <algorithm>

#include "tensor/error.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// Goes through `bytes` line by line; a line ends at LF or CR LF.
class LineReader {
 public:
  explicit LineReader(std::string_view bytes) : bytes_(bytes) {}

  bool next(std::string_view& line) {
    if (at_ >= bytes_.size()) return false;
    const std::size_t end = std::min(bytes_.find('\n', at_), bytes_.size());
    line = bytes_.substr(at_, end - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at_ = end + 1;
    ++number_;
    return true;
  }
  std::int64_t number() const { return number_; }  // of the line read last, from 1

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(' ') == std::string_view::npos; }

std::string_view first_line(std::string_view bytes) {
  LineReader lines(bytes);
  std::string_view line;
  while (lines.next(line) && is_blank(line)) continue;
  return line;
}

// "WORD:word ", as question files have it.
bool looks_like_trec(std::string_view line) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  const auto first_end = std::find_if_not(line.begin(), line.end(), is_letter);
  if (first_end == line.begin() || first_end == line.end() || *first_end != ':') return false;
  const auto second_end = std::find_if_not(first_end + 1, line.end(), is_letter);
  return second_end != first_end + 1 && second_end != line.end() && *second_end == ' ';
}

bool all_lines_look_like_trec(std::string_view bytes) {
  LineReader lines(bytes);
  std::string_view line;
  bool any = false;
  while (lines.next(line)) {
    if (is_blank(line)) continue;
    if (!looks_like_trec(line)) return false;
    any = true;
  }
  return any;
}

std::string detect_format(std::string_view bytes, const std::string& source) {
  std::string name = lowercase(source);
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (name.ends_with(".csv")) return "csv";
  if (name.ends_with(".tsv") || name.ends_with(".tab")) return "tsv";
  if (first_line(bytes).find('\t') != std::string_view::npos) return "tsv";
  return all_lines_look_like_trec(bytes) ? "trec" : "csv";
}

void add_tsv(std::string_view line, Record& record) {
  for (std::size_t start = 0; start <= line.size();) {
    const std::size_t end = std::min(line.find('\t', start), line.size());
    record.fields.emplace_back(line.substr(start, end - start));
    start = end + 1;
  }
}

void add_trec(std::string_view line, const std::string& source, Record& record) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::size_t colon = line.substr(0, space).find(':');
  if (colon == std::string_view::npos)
    fail(source, ":", record.line, ": expected 'LABEL:fine text', found ", quote(line));
  record.fields.emplace_back(line.substr(0, colon));
  record.fields.emplace_back(line.substr(std::min(space + 1, line.size())));
}

void read_lines(std::string_view bytes, const std::string& source, Records& result) {
  LineReader lines(bytes);
  for (std::string_view line; lines.next(line);) {
    if (is_blank(line)) {
      ++result.empty_lines;
      continue;
    }
    Record& record = result.records.emplace_back(Record{{}, lines.number()});
    if (result.format == "tsv") add_tsv(line, record);
    if (result.format == "trec") add_trec(line, source, record);
    if (result.format == "lines") record.fields.emplace_back(line);
  }
}

// Reads one csv field from `at`, which then stands behind its comma or at the end of its record.
class CsvReader {
 public:
  CsvReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

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
      Record& record = result.records.emplace_back(Record{{}, line_});
      do record.fields.push_back(bytes_.substr(at_).starts_with('"') ? quoted_field() : plain_field());
      while (take(','));
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
    const std::size_t end = std::min(bytes_.find_first_of(",\n", at_), bytes_.size());
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
    const bool at_end =
        at_ >= bytes_.size() || bytes_[at_] == ',' || bytes_[at_] == '\n' || bytes_.substr(at_).starts_with("\r\n");
    if (!at_end)
      fail(source_, ":", line_, ": after the closing quote a comma or the end of the line must follow, found ",
           quote(bytes_.substr(at_, 1)), "; double a quote (\"\") that is text");
    return field;
  }

  std::string_view bytes_;
  const std::string& source_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

// A single field in the first row, or a tab in every row of a csv, means that something else separates the fields.
void check_delimiter(const Records& records, const std::string& source) {
  const auto has_tab = [](const Record& record) {
    return std::ranges::any_of(record.fields, [](const std::string& f) { return f.find('\t') != std::string::npos; });
  };
  const bool tabs_everywhere = records.format == "csv" && std::ranges::all_of(records.records, has_tab);
  if (records.records.front().fields.size() > 1 && !tabs_everywhere) return;
  const std::string& field = records.records.front().fields.front();
  const bool is_tsv = records.format == "tsv";
  const std::string here = text(source, ":", records.records.front().line, ": ");
  if (tabs_everywhere || field.find(is_tsv ? ',' : '\t') != std::string::npos)
    fail(here, "read as ", records.format, ", but the fields seem to be separated by ", is_tsv ? "commas" : "tabs",
         "; give --data.format=", is_tsv ? "csv" : "tsv");
  fail(here, "only one column, read as ", records.format, ": ", quote(field),
       "; a table of labelled texts needs at least two", field.find(';') != std::string::npos ? " (not ';')" : "");
}

void check_field_counts(const Records& records, const std::string& source) {
  const Record& first = records.records.front();
  for (const Record& record : records.records) {
    if (record.fields.size() == first.fields.size()) continue;
    fail(source, ":", record.line, ": ", record.fields.size(), record.fields.size() == 1 ? " field" : " fields",
         ", expected ", first.fields.size(), " as in line ", first.line,
         records.format == "csv" ? "; quote a text that contains commas" : "; replace tabs inside texts",
         ", or leave such rows out: --data.ragged=skip");
  }
}

void drop_ragged(Records& records) {
  const std::size_t fields = records.records.front().fields.size();
  std::erase_if(records.records, [&](const Record& record) {
    if (record.fields.size() == fields) return false;
    if (records.skipped++ == 0) records.first_skipped = record.line;
    return true;
  });
}

}  // namespace

Records read_records(std::string_view bytes, const std::string& source, const std::string& format, bool skip_ragged) {
  Records result;
  result.format = format == "auto" ? detect_format(bytes, source) : format;
  if (result.format == "csv") {
    CsvReader(bytes, source).read(result);
  } else if (result.format == "tsv" || result.format == "trec" || result.format == "lines") {
    read_lines(bytes, source, result);
  } else {
    fail("unknown table format ", quote(format), "; there are auto, tsv, csv, trec and lines");
  }
  if (result.records.empty()) fail(source, ": no rows in this file");
  if (result.format == "tsv" || result.format == "csv") check_delimiter(result, source);
  if (skip_ragged) drop_ragged(result);
  check_field_counts(result, source);
  return result;
}

}  // namespace flexformer
