// The rows of a table as tests compare them.
#pragma once
#include <string>
#include <vector>

#include "train/datasets/table.h"

namespace flexformer::tests {

using Rows = std::vector<std::string>;

// "label: text" or "label: text + text2" a row, in order.
inline Rows shown(const Table& table) {
  Rows rows;
  for (const Row& row : table.rows)
    rows.push_back(row.label.value_or("-") + ": " + row.text + (row.text2.empty() ? "" : " + " + row.text2));
  return rows;
}

}  // namespace flexformer::tests
