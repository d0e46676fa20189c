// What a file is written in, and the formats that are lines.
#include "train/datasets/table_records.h"

#include "tensor/error.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr std::string_view kFastText = "__label__";

// "WORD:word ", as question files have it.
bool looks_like_trec(std::string_view line) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  const auto first_end = std::find_if_not(line.begin(), line.end(), is_letter);
  if (first_end == line.begin() || first_end == line.end() || *first_end != ':') return false;
  const auto second_end = std::find_if_not(first_end + 1, line.end(), is_letter);
  return second_end != first_end + 1 && second_end != line.end() && *second_end == ' ';
}

// "__label__ham text".
bool looks_like_fasttext(std::string_view line) {
  if (!line.starts_with(kFastText)) return false;
  const std::string_view label = line.substr(kFastText.size(), line.find_first_of(" \t") - kFastText.size());
  return !label.empty() && label.find_first_of(",;|\"") == label.npos;
}

bool all_lines(std::string_view bytes, bool (*is_right)(std::string_view)) {
  LineReader lines(bytes);
  bool any = false;
  for (std::string_view line; lines.next(line); any = any || !is_blank(line))
    if (!is_blank(line) && !is_right(line)) return false;
  return any;
}

struct Ending {
  std::string_view ending, format;
};
constexpr Ending endings[] = {{".csv", "csv"},     {".tsv", "tsv"},   {".tab", "tsv"},
                              {".jsonl", "jsonl"}, {".json", "json"}, {".ndjson", "jsonl"}};

void add_trec(std::string_view line, const std::string& source, Record& record) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::size_t colon = line.substr(0, space).find(':');
  if (colon == std::string_view::npos)
    fail(source, ":", record.line, ": expected 'LABEL:fine text', found ", quote(line));
  record.fields.emplace_back(line.substr(0, colon));
  record.fields.emplace_back(line.substr(std::min(space + 1, line.size())));
}

// The label may stand anywhere in the line, as fastText allows; a line without one gets an empty label.
void add_fasttext(std::string_view line, const std::string& source, Record& record) {
  std::string label, rest;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (word.starts_with(kFastText)) {
      if (!label.empty())
        fail(source, ":", record.line, ": two labels, ", quote(label), " and ", quote(word.substr(kFastText.size())),
             ", but a text has one label here; keep one of them");
      label = word.substr(kFastText.size());
    } else {
      rest += word;
    }
    if (end < line.size() && !word.starts_with(kFastText)) rest += line[end];
    at = end + 1;
  }
  record.fields = {std::move(label), std::string(trim(rest))};
}

void read_lines(std::string_view bytes, const std::string& source, Records& result) {
  LineReader lines(bytes);
  for (std::string_view line; lines.next(line);) {
    if (is_blank(line)) {
      ++result.empty_lines;
      continue;
    }
    Record& record = result.records.emplace_back(Record{.fields = {}, .line = lines.number()});
    if (result.format == "trec") add_trec(line, source, record);
    if (result.format == "fasttext") add_fasttext(line, source, record);
    if (result.format == "lines") record.fields.emplace_back(line);
  }
}

// "" where fields lie between separators.
std::string detect_format(std::string_view bytes, const std::string& by_name) {
  const std::string_view first = first_line(bytes);
  if (by_name.starts_with("json") || looks_like_json_objects(bytes)) return "json";
  if (looks_like_fasttext(first) && all_lines(bytes, looks_like_fasttext)) return "fasttext";
  const bool separated = !by_name.empty() || first.find('\t') != first.npos;
  return !separated && all_lines(bytes, looks_like_trec) ? "trec" : "";
}

void check_field_counts(const Records& records, const std::string& source) {
  const Record& first = records.records.front();
  const std::size_t below = records.records.back().fields.size();
  const bool title = std::all_of(records.records.begin() + 1, records.records.end(),
                                 [&](const Record& record) { return record.fields.size() == below; });
  if (title && records.records.size() > 2 && first.fields.size() != below)
    fail(source, ":", first.line, ": ", first.fields.size(), first.fields.size() == 1 ? " field" : " fields",
         ", but all lines below have ", below,
         "; mend the header, or delete this line if it is a title above the table");
  for (const Record& record : records.records) {
    if (record.fields.size() == first.fields.size()) continue;
    fail(source, ":", record.line, ": ", record.fields.size(), record.fields.size() == 1 ? " field" : " fields",
         ", expected ", first.fields.size(), " as in line ", first.line,
         records.format == "csv" ? "; quote a text that contains " + records.separators : "; replace tabs inside texts",
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

std::string format_by_name(const std::string& source) {
  std::string name = lowercase(source);
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  for (const Ending& known : endings)
    if (name.ends_with(known.ending)) return std::string(known.format);
  return "";
}

std::string_view first_line(std::string_view bytes) {
  LineReader lines(bytes);
  std::string_view line;
  while (lines.next(line) && is_blank(line)) continue;
  return line;
}

Records read_records(std::string_view bytes, const std::string& source, const RecordOptions& options) {
  constexpr std::string_view known[] = {"auto", "tsv", "csv", "trec", "lines", "jsonl", "json", "fasttext"};
  if (std::ranges::find(known, options.format) == std::end(known))
    fail("unknown table format ", quote(options.format),
         "; there are auto, tsv, csv, trec, lines, jsonl, json and fasttext");
  const std::string by_name = format_by_name(source);
  const bool separator_given = options.separator != "auto";
  Records result;
  result.format = options.format != "auto" ? options.format : separator_given ? "" : detect_format(bytes, by_name);
  if (result.format == "jsonl" || result.format == "json")
    read_json_objects(bytes, source, result);
  else if (result.format == "trec" || result.format == "lines" || result.format == "fasttext")
    read_lines(bytes, source, result);
  else
    read_separated(bytes, source, options, result);
  if (result.records.size() <= (result.named ? 1 : 0)) fail(source, ": no rows in this file");
  if (options.skip_ragged) drop_ragged(result);
  check_field_counts(result, source);
  return result;
}

}  // namespace flexformer
