// The first half of reading a table: bytes -> records of fields, before anything is known about their meaning.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flexformer {

struct Record {
  std::vector<std::string> fields;
  std::int64_t line = 0;     // where it starts
  std::uint64_t nested = 0;  // of JSON: bit i is set if field i is an array or an object, up to 64 fields
};

struct RecordOptions {
  std::string format = "auto";     // as in TableOptions
  std::string separator = "auto";  // auto, tab, comma, semicolon, bar
  bool skip_ragged = false;
  bool one_column = false;  // a table may have a single column
};

struct Records {
  std::string format;  // tsv, csv, trec, lines, jsonl, json or fasttext
  std::vector<Record> records;
  bool named = false;  // the first record holds the columns' names, which are in no line of the file
  std::int64_t empty_lines = 0;
  std::int64_t skipped = 0, first_skipped = 0;  // records with too many or too few fields; the line of the first
  std::string separators = "commas";            // in words
  std::vector<std::string> notes;               // what was decided, with the line that led to it
};

// All records have equally many fields: as many as the first; others are an error, or skipped if asked for. Throws
// Error "source:line: ...".
Records read_records(std::string_view bytes, const std::string& source, const RecordOptions& options = {});

// The parts of it, each in a file of its own.

// Goes through `bytes` line by line; a line ends at LF or CR LF.
class LineReader {
 public:
  explicit LineReader(std::string_view bytes, std::int64_t lines_before = 0) : bytes_(bytes), number_(lines_before) {}

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
  std::int64_t number_;
};

inline bool is_blank(std::string_view line) { return line.find_first_not_of(' ') == std::string_view::npos; }
std::string_view first_line(std::string_view bytes);  // that is not blank

// What a file's ending says: tsv, csv, json or jsonl, or nothing.
std::string format_by_name(const std::string& source);

// Fields between separators. `result.format` is tsv or csv, or empty to be found out.
void read_separated(std::string_view bytes, const std::string& source, const RecordOptions& options, Records& result);

// Objects of JSON: one a line, or in an array, or as columns. The keys are the columns.
void read_json_objects(std::string_view bytes, const std::string& source, Records& result);
// Whether the first line is an object, or the bytes begin with an array of objects.
bool looks_like_json_objects(std::string_view bytes);

}  // namespace flexformer
