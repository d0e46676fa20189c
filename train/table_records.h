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
};

// `format` as in TableOptions. All records have equally many fields. Throws Error "source:line: ...".
Records read_records(std::string_view bytes, const std::string& source, const std::string& format);

}  // namespace flexformer
