// The meaning of a table's records: which one is the header, which columns are texts and label. See read_table().
#pragma once
#include "train/datasets/table.h"
#include "train/datasets/table_records.h"

namespace flexformer {

struct HeaderDecision {
  bool header = false;
  std::string reason;  // with the line that led to it
};
// Whether two of these are different usual names of columns.
bool holds_usual_names(const std::vector<std::string>& fields);
HeaderDecision decide_header(const Records& records, const TableOptions& options);

// Fills in the columns of `table`, whose header is known. `records`: the rows below it.
void find_columns(Table& table, const std::vector<Record>& records, const TableOptions& options);

}  // namespace flexformer
