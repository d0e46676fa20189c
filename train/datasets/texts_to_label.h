// What predict reads: lines of text as they come, or a table whose text columns are those of the run.
#pragma once
#include <functional>

#include "train/datasets/table.h"
#include "train/util/text_encoding.h"

namespace flexformer {

struct LabelReading {
  // As the run has them: the names of its text columns decide whether a first line is a header. format: auto, lines, or
  // one of read_table().
  TableOptions table = {};
  bool pair = false;     // lines hold two texts with a tab between
  bool waits = false;    // somebody types: lines are answered one by one
  bool listops = false;  // parentheses are dropped
};

// Hands each text in `bytes` to take(). Under `auto` the file is a table if its name ends like one, if it holds objects
// of JSON, or if its first line names columns: the run's, or two usual ones. `say` hears what was decided about a
// table. Throws Error with place and cure: no text at all, a pair without a tab, what read_table() and decode_text()
// refuse.
void read_texts_to_label(const ByteSource& bytes, const std::string& source, const LabelReading& reading,
                         const std::function<void(Row)>& take, const std::function<void(const std::string&)>& say);

}  // namespace flexformer
