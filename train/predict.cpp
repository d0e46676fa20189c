// predict: labels texts with a trained classifier, one line of output for each line of input.
#include <cmath>
#include <fstream>
#include <iostream>

#include "train/classifier_run.h"
#include "train/program.h"
#include "train/utf8.h"

namespace flexformer {
namespace {

// Class probabilities of one text: the same whatever it is asked together with.
std::vector<double> probabilities(const SavedClassifier& saved, const Row& row) {
  EncodedTexts one;
  one.rows.push_back(encode_row(row, *saved.tokenizer, encoding_options(saved.options)));
  const Index index = 0;
  const std::vector<float> logits = classify(*saved.model, one, std::span(&index, 1), {}).value().to_vector();
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (float logit : logits) sum += p.emplace_back(std::exp(double(logit) - largest));
  for (double& value : p) value /= sum;
  return p;
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
  use_machine_options(options);
  const RunFolder folder = RunFolder::for_use(options.text("run"), "train_classifier");
  const SavedClassifier saved(folder);
  const std::string& path = options.text("file");
  std::ifstream file;
  if (!path.empty()) {
    if (std::filesystem::is_directory(path)) fail("file=", path, " is a folder; give a text file, one text a line");
    file.open(path, std::ios::binary);
    if (!file) fail("file=", path, " cannot be read; does it exist?");
  }
  std::istream& in = path.empty() ? std::cin : file;
  const std::string source = path.empty() ? "standard input" : path;
  const bool pair = encoding_options(saved.options).pair;
  Index number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    const std::vector<double> p = probabilities(saved, row_from(line, pair, source, number));
    const auto best = std::max_element(p.begin(), p.end()) - p.begin();
    const std::string& label = saved.labels.name(best);
    if (options.flag("json")) {
      Json all = Json::object();
      for (std::size_t c = 0; c < p.size(); ++c) all[printable(saved.labels.name(Index(c)))] = p[c];
      std::cout << dump_json({{"label", printable(label)}, {"probability", p[std::size_t(best)]}, {"all", all}})
                << "\n";
    } else {
      std::cout << label << "\t" << fixed(p[std::size_t(best)], 4) << "\n";
    }
    std::cout.flush();
  }
  if (number == 0) fail(source, ": no text to label");
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("predict", "Labels texts, one a line, with a trained classifier.");
  options.add_text("run", "", "run folder of train_classifier; empty: the newest under runs/");
  options.add_text("file", "", "text file, one text a line; empty: standard input");
  options.add_flag("json", false, "print JSON lines with all probabilities");
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::predict);
}
