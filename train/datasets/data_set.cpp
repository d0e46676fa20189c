#include "train/datasets/data_set.h"

#include <algorithm>
#include <set>

#include "tensor/error.h"
#include "train/datasets/pictures.h"
#include "train/util/files.h"
#include "train/util/inflate.h"
#include "train/util/png.h"
#include "train/util/text_encoding.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListOpsHeader = "Source\tTarget";

// Names in a folder in order of their bytes: what the system gives has no order of its own.
std::vector<std::string> sorted_names(const fs::path& folder, bool (*wanted)(const fs::directory_entry&)) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (wanted(*at)) names.push_back(at->path().filename().string());
  if (error) fail("cannot read the folder ", quote(folder.string(), 400), ": ", error.message());
  std::ranges::sort(names);
  return names;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored) && !entry.path().filename().string().starts_with('.');
}
bool is_file(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_regular_file(ignored);
}
bool is_text_file(const fs::directory_entry& entry) {
  return entry.path().extension() == ".txt" && !entry.path().filename().string().starts_with('.');
}
// Some collections name their texts by numbers alone.
bool is_plain_file(const fs::directory_entry& entry) {
  return is_file(entry) && !entry.path().has_extension() && !entry.path().filename().string().starts_with('.');
}
std::vector<std::string> text_files(const fs::path& folder) {
  const std::vector<std::string> files = sorted_names(folder, is_text_file);
  return files.empty() ? sorted_names(folder, is_plain_file) : files;
}

// A folder of folders with .txt files is no class but a data set of its own, such as the train and test of aclImdb.
void check_is_class(const fs::path& folder) {
  for (const std::string& inner : sorted_names(folder, is_folder)) {
    if (text_files(folder / inner).empty()) continue;
    const fs::path whole = folder.parent_path();
    fail(quote(whole.string(), 400), " holds no folders of .txt files, but folders of such folders; give one of them: ",
         "--data.train=", (fs::is_directory(whole / "train") ? whole / "train" : folder).string());
  }
}

Table read_text_folder(const fs::path& path) {
  Table table;
  table.source = path.string();
  table.format = "folder";
  table.label_column = table.text_column = 1;
  const std::vector<std::string> folders = sorted_names(path, is_folder);
  std::string left_out, without_text;
  for (const std::string& label : folders) {
    if (label == "unsup") {
      table.notes.push_back("unsup, the texts without label, left out");
      continue;
    }
    check_is_class(path / label);
    const std::vector<std::string> files = text_files(path / label);
    if (files.empty()) without_text += (without_text.empty() ? "" : ", ") + quote(label);
    for (const std::string& file : files) {
      Row row{read_text_file(path / label / file), {}, label, Index(table.rows.size()) + 1};
      while (row.text.ends_with('\n') || row.text.ends_with('\r')) row.text.pop_back();
      table.empty_texts += trim(row.text).empty();
      table.rows.push_back(std::move(row));
    }
  }
  if (table.rows.empty()) {
    const std::vector<std::string> files = sorted_names(path, is_file);
    std::string found;
    for (std::size_t i = 0; i < std::min<std::size_t>(files.size(), 6); ++i) found += (i ? ", " : "") + files[i];
    fail(quote(path.string(), 400), " holds no folders of .txt files, one for each class",
         found.empty() ? "" : "; is one of its files meant: ", found, files.size() > 6 ? ", ..." : "");
  }
  if (!without_text.empty()) table.notes.push_back("folders without .txt files left out: " + without_text);
  return table;
}

Table read_listops(std::string_view bytes, const std::string& source, const TableOptions& options) {
  TableOptions tsv = options;
  tsv.format = "tsv";
  Table table = parse_table(bytes, source, tsv);
  table.format = "listops";
  for (Row& row : table.rows) row.text = without_parentheses(row.text);
  return table;
}

std::string format_of_folder(const fs::path& path) {
  if (fs::is_directory(path / "imgs") && fs::is_directory(path / "metadata")) return "pathfinder";
  return fs::exists(path / "data_batch_1.bin") ? "cifar10" : "folder";
}

bool is_listops(std::string_view text) { return text.substr(0, text.find_first_of("\r\n")) == kListOpsHeader; }

}  // namespace

const std::vector<std::string>& data_format_names() {
  static const std::vector<std::string> names = {"auto", "tsv",    "csv",     "jsonl",   "json",       "fasttext",
                                                 "trec", "folder", "listops", "cifar10", "pathfinder", "idx"};
  return names;
}

Table read_data_set(const fs::path& path, const TableOptions& options) {
  const std::string source = path.string();
  if (fs::is_directory(path)) {
    const std::string format = options.format == "auto" ? format_of_folder(path) : options.format;
    if (format == "folder") return read_text_folder(path);
    if (format == "pathfinder") return read_pathfinder(path);
    if (format == "cifar10") return read_cifar10_folder(path);
    fail(quote(source, 400), " is a folder, but data.format=", format, " is a file");
  }
  if (options.format == "folder" || options.format == "pathfinder")
    fail(quote(source, 400), " is ", fs::exists(path) ? "a file" : "not there", ", but data.format=", options.format,
         " is a folder");
  std::string bytes = read_unpacked(path);
  const bool any = options.format == "auto";
  if (options.format == "idx" || (any && looks_like_idx(bytes))) return read_idx(bytes, path);
  if (options.format == "cifar10" || (any && looks_like_cifar10(bytes))) return parse_cifar10(bytes, source);
  if (looks_like_png(bytes))
    fail(source, ": this is one picture; a data set of pictures is a folder or a file of many");
  const std::string text = decode_text(std::move(bytes), source);
  const bool listops = options.format == "listops" || (any && is_listops(text));
  return listops ? read_listops(text, source, options) : parse_table(text, source, options);
}

std::string without_parentheses(std::string_view expression) {
  std::string out;
  for (std::size_t end = 0, begin; (begin = expression.find_first_not_of(' ', end)) != std::string_view::npos;) {
    end = std::min(expression.find(' ', begin), expression.size());
    const std::string_view token = expression.substr(begin, end - begin);
    if (token == "(" || token == ")") continue;
    if (!out.empty()) out += ' ';
    out += token;
  }
  return out;
}

}  // namespace flexformer
