// The first half of reading a table: bytes -> records of fields, before anything is known about their meaning.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flexformer {

struct Record {
  std::vector<std::string> fields;
  std::int64_t line = 0;  // where it starts
};

struct Records {
  std::string format;  // tsv, csv, trec or lines
  std::vector<Record> records;
  std::int64_t empty_lines = 0;
  std::int64_t skipped = 0, first_skipped = 0;  // records with too many or too few fields; the line of the first
};

// `format` as in TableOptions. All records have equally many fields: as many as the first; others are an error, or
// skipped if `skip_ragged`. Throws Error "source:line: ...".
Records read_records(std::string_view bytes, const std::string& source, const std::string& format,
                     bool skip_ragged = false);

}  // namespace flexformer
