// predict: labels texts or pictures with a trained classifier, one line of output for each line or picture of the
// input.
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <iostream>

#include "train/datasets/pictures.h"
#include "train/models/classifier_run.h"
#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// What the model says of one text, the same whatever it is asked together with: a probability for each class, or the
// number.
std::vector<double> answer(const SavedClassifier& saved, EncodedText text) {
  EncodedTexts one;
  one.rows.push_back(std::move(text));
  const Index index = 0;
  const std::vector<float> outputs = classify(*saved.model, one, std::span(&index, 1), {}).value().to_vector();
  if (saved.labels.is_regression()) return {saved.labels.mean() + saved.labels.deviation() * double(outputs[0])};
  const double largest = *std::max_element(outputs.begin(), outputs.end());
  std::vector<double> p;
  double sum = 0;
  for (float logit : outputs) sum += p.emplace_back(std::exp(double(logit) - largest));
  for (double& value : p) value /= sum;
  return p;
}

EncodedText encode(const SavedClassifier& saved, const Row& row) {
  return encode_row(row, *saved.tokenizer, encoding_options(saved.options));
}

void print(const std::vector<double>& p, const LabelMap& labels, bool json) {
  const auto best = std::max_element(p.begin(), p.end()) - p.begin();
  if (labels.is_regression()) {
    std::cout << (json ? dump_json({{"value", p[0]}}) : fixed(p[0], 4)) << "\n";
  } else if (json) {
    Json all = Json::object();
    for (std::size_t c = 0; c < p.size(); ++c) all[printable(labels.name(Index(c)))] = p[c];
    std::cout << dump_json(
                     {{"label", printable(labels.name(best))}, {"probability", p[std::size_t(best)]}, {"all", all}})
              << "\n";
  } else {
    std::cout << labels.name(best) << "\t" << fixed(p[std::size_t(best)], 4) << "\n";
  }
  std::cout.flush();
}

Row row_from(std::string line, bool pair, const std::string& source, Index number) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
  Row row;
  if (pair) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos)
      fail(source, ":", number, ": this model reads pairs; put a tab between the first and the second text");
    row.text2 = line.substr(tab + 1);
    line.resize(tab);
  }
  row.text = std::move(line);
  return row;
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
  std::ifstream file;
  if (!path.empty()) {
    if (std::filesystem::is_directory(path)) fail("file=", path, " is a folder; give a text file, one text a line");
    file.open(path, std::ios::binary);
    if (!file) fail("file=", path, " cannot be read; does it exist?");
  }
  std::istream& in = path.empty() ? std::cin : file;
  const std::string source = path.empty() ? "standard input" : path;
  const bool pair = encoding_options(saved.options).pair, listops = format == "listops";
  if (path.empty() && isatty(STDIN_FILENO))
    std::cerr << "reading texts from the keyboard, one a line" << (pair ? ", a tab between the two of a pair" : "")
              << "; Ctrl-D ends" << std::endl;
  Index number = 0, unknown = 0, first_unknown = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    Row row = row_from(line, pair, source, number);
    if (listops) row.text = without_parentheses(row.text);
    EncodedText encoded = encode(saved, row);
    const bool words = !trim(row.text + row.text2).empty();
    if (words && (saved.tokenizer->mostly_unknown(encoded.ids) || saved.tokenizer->mostly_unknown(encoded.ids2)))
      if (++unknown == 1) first_unknown = number;
    print(answer(saved, std::move(encoded)), saved.labels, options.flag("json"));
  }
  if (number == 0) fail(source, ": no text to label");
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
      "text file, one text a line; empty: standard input. Of a model for pictures: a PNG, IDX or CIFAR-10 file");
  options.add_flag("json", false, "print JSON lines with all probabilities");
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::predict);
}
