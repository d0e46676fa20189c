// predict: labels texts or pictures with a trained classifier, one line of output for each line or picture of the
// input.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iostream>
#include <system_error>

#include "train/datasets/pictures.h"
#include "train/datasets/texts_to_label.h"
#include "train/models/classifier_answer.h"
#include "train/models/classifier_run.h"
#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// What the model says of one text, the same whatever it is asked together with.
std::vector<double> answer(const SavedClassifier& saved, EncodedText text) {
  EncodedTexts one;
  one.rows.push_back(std::move(text));
  const Index index = 0;
  return answer_of(classify(*saved.model, one, std::span(&index, 1), {}).value().to_vector(), saved.labels);
}

EncodedText encode(const SavedClassifier& saved, const Row& row) {
  return encode_row(row, *saved.tokenizer, encoding_options(saved.options));
}

void print(const std::vector<double>& values, const LabelMap& labels, bool json) {
  std::cout << answer_line(values, labels, json) << std::endl;
}

// The bytes of a file, or of standard input as they come.
class Input {
 public:
  explicit Input(const std::string& path) {
    if (path.empty()) return;
    if (std::filesystem::is_directory(path)) fail("file=", path, " is a folder; give a text file, one text a line");
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("file=", path, " cannot be read; does it exist?");
  }
  ~Input() {
    if (descriptor_ != STDIN_FILENO) close(descriptor_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::string_view next() {
    ssize_t count = -1;
    do count = read(descriptor_, block_.data(), block_.size());
    while (count < 0 && errno == EINTR);
    if (count < 0) fail("the input cannot be read: ", std::generic_category().message(errno));
    return {block_.data(), std::size_t(count)};
  }

 private:
  int descriptor_ = STDIN_FILENO;
  std::array<char, 1 << 16> block_;
};

// How the run's own data were read, unless the options say otherwise.
LabelReading label_reading(const Options& options, const Options& run) {
  const std::string& text = options.text("text");
  return {.table = {.format = options.text("format"),
                    .separator = options.text("separator"),
                    .text = text.empty() ? run.text("data.text") : text,
                    .text2 = text.empty() ? run.text("data.text2") : options.text("text2")},
          .pair = encoding_options(run).pair,
          .waits = options.text("file").empty(),
          .listops = run.text("data.format") == "listops"};
}

int predict(Options& options) {
  const Device device = use_machine_options(options);
  const RunFolder folder = RunFolder::for_use(options.text("run"), "train_classifier");
  const SavedClassifier saved(folder, device);
  const std::string &path = options.text("file"), &format = saved.options.text("data.format");
  if (is_picture_format(format)) {
    if (path.empty()) throw UsageError("this model reads pictures; give file=FILE, a PNG, IDX or CIFAR-10 file");
    for (std::string& picture : read_pictures(path))
      print(answer(saved, encode(saved, {std::move(picture), {}, {}, 0})), saved.labels, options.flag("json"));
    return 0;
  }
  const std::string source = path.empty() ? "standard input" : path;
  const LabelReading reading = label_reading(options, saved.options);
  if (path.empty() && isatty(STDIN_FILENO))
    std::cerr << "reading texts from the keyboard, one a line"
              << (reading.pair ? ", a tab between the two of a pair" : "") << "; Ctrl-D ends" << std::endl;
  Index number = 0, unknown = 0, first_unknown = 0;
  const auto take = [&](const Row& row) {
    ++number;
    EncodedText encoded = encode(saved, row);
    const bool words = !trim(row.text + row.text2).empty();
    if (words && (saved.tokenizer->mostly_unknown(encoded.ids) || saved.tokenizer->mostly_unknown(encoded.ids2)))
      if (++unknown == 1) first_unknown = row.line;
    print(answer(saved, std::move(encoded)), saved.labels, options.flag("json"));
  };
  Input input(path);
  read_texts_to_label([&] { return input.next(); }, source, reading, take,
                      [](const std::string& line) { std::cerr << printable(line) << std::endl; });
  if (unknown)
    std::cerr << text("warning: ", unknown, " of ", number, " texts (the first: ", printable(source), ":",
                      first_unknown, ") are mostly words unknown to this model, so its answers mean little there")
              << std::endl;
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("predict", "Labels texts, one a line, or pictures with a trained classifier.");
  options.add_path("run", "", "run folder of train_classifier; empty: the newest under runs/");
  options.add_path(
      "file", "",
      "text file, one text a line, or a table with the columns of the run; empty: standard input. Of a model for "
      "pictures: a PNG, IDX or CIFAR-10 file");
  options.add_choice("format", "auto", {"auto", "lines", "tsv", "csv", "jsonl", "json", "fasttext"},
                     "how the file is written; auto: a table if its name or first line says so, else lines");
  options.add_text("text", "", "of a table: the text's column, by name or number; empty: as in the run, or by rule");
  options.add_text("text2", "", "the same of the second text of pairs");
  options.add_choice("separator", "auto", {"auto", "tab", "comma", "semicolon", "bar"},
                     "what stands between the fields of a table");
  options.add_flag("json", false, "print JSON lines with all probabilities");
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::predict);
}
