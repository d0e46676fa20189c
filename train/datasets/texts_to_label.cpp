#include "train/datasets/texts_to_label.h"

#include <algorithm>

#include "tensor/error.h"
#include "train/datasets/data_set.h"
#include "train/datasets/labels.h"
#include "train/datasets/table_columns.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// Takes the text in pieces. Once the first line is there it is known whether the rest may be answered line by line.
class TextTaker {
 public:
  TextTaker(const std::string& source, const LabelReading& reading, const std::function<void(Row)>& take,
            const std::function<void(const std::string&)>& say)
      : source_(source), reading_(reading), take_(take), say_(say) {}

  void add(std::string_view piece) {
    held_ += piece;
    if (kind_ == unknown && held_.find('\n') != held_.npos) decide();
    if (kind_ == lines) take_lines();
  }
  void finish() {
    if (kind_ == unknown) {
      settle_line_ends(held_);
      decide();
    }
    if (kind_ == table) {
      take_table();
    } else {
      take_lines();
      if (!held_.empty()) take_line(held_);
    }
    if (taken_ == 0) fail(source_, ": no text to label");
  }

 private:
  enum Kind { unknown, lines, table };

  void decide() {
    const std::string& format = reading_.table.format;
    const std::string_view first = std::string_view(held_).substr(0, held_.find('\n'));
    if (format != "auto")
      kind_ = format == "lines" ? lines : table;
    else
      kind_ =
          !format_by_name(source_).empty() || looks_like_json_objects(first) || names_columns(first) ? table : lines;
    const std::string& column = reading_.table.text;
    if (kind_ == lines && !column.empty() && trim(first) == column) {
      say_(source_ + ": line 1 is not labelled: it is the name of the text's column, " + quote(column));
      skip_first_ = true;
    }
  }

  bool names_columns(std::string_view first) const {
    for (const char separator : {'\t', ',', ';', '|'}) {
      std::vector<std::string> names;
      for (std::size_t at = 0; at <= first.size();) {
        const std::size_t end = std::min(first.find(separator, at), first.size());
        std::string_view name = trim(first.substr(at, end - at));
        if (name.size() > 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
        names.emplace_back(name);
        at = end + 1;
      }
      if (names.size() < 2) continue;
      const auto has = [&](const std::string& wanted) { return std::ranges::find(names, wanted) != names.end(); };
      const std::string &text = reading_.table.text, &text2 = reading_.table.text2;
      const bool named = !text.empty() && !whole_number(text) && has(text) && (text2.empty() || has(text2));
      if (named || holds_usual_names(names)) return true;
    }
    return false;
  }

  void take_lines() {
    std::size_t at = 0;
    for (std::size_t end; (end = held_.find('\n', at)) != held_.npos; at = end + 1)
      take_line(std::string_view(held_).substr(at, end - at));
    held_.erase(0, at);
  }

  void take_line(std::string_view line) {
    ++line_;
    if (std::exchange(skip_first_, false)) return;
    if (line.ends_with('\r')) line.remove_suffix(1);
    Row row;
    row.line = line_;
    if (line.starts_with("__label__")) {  // a line of fastText's, with the label it has
      row.text = parse_table(line, source_, {.format = "fasttext", .need_label = false}).rows.front().text;
    } else if (reading_.pair) {
      const std::size_t tab = line.find('\t');
      if (tab == line.npos)
        fail(source_, ":", line_, ": this model reads pairs; put a tab between the first and the second text");
      row.text = line.substr(0, tab);
      row.text2 = line.substr(tab + 1);
    } else {
      row.text = line;
    }
    hand_on(std::move(row));
  }

  void take_table() {
    TableOptions options = reading_.table;
    options.need_label = false;
    Table read;
    try {
      read = parse_table(held_, source_, options);
    } catch (const Error&) {
      // The run's columns may not be there, or have other numbers: a text's column is then found by rule.
      if (options.text.empty() && options.text2.empty()) throw;
      options.text = options.text2 = "";
      read = parse_table(held_, source_, options);
    }
    if (reading_.pair && !read.text2_column)
      fail(source_, ": this model reads pairs, but the table has one text's column (", read.description(),
           "); give the others by --text and --text2, or lines with a tab between the two texts by --format=lines");
    say_(source_ + " is read as a table (" + read.description() + "); --format=lines takes each line as a text");
    for (Row& row : read.rows) hand_on(std::move(row));
  }

  void hand_on(Row row) {
    if (reading_.listops) row.text = without_parentheses(row.text);
    ++taken_;
    take_(std::move(row));
  }

  const std::string& source_;
  const LabelReading& reading_;
  const std::function<void(Row)>& take_;
  const std::function<void(const std::string&)>& say_;
  Kind kind_ = unknown;
  bool skip_first_ = false;
  std::string held_;
  std::int64_t line_ = 0, taken_ = 0;
};

}  // namespace

void read_texts_to_label(const ByteSource& bytes, const std::string& source, const LabelReading& reading,
                         const std::function<void(Row)>& take, const std::function<void(const std::string&)>& say) {
  TextTaker taker(source, reading, take, say);
  decode_text(
      bytes, source, [&](std::string_view piece) { taker.add(piece); }, !reading.waits);
  taker.finish();
}

}  // namespace flexformer
