// import_model: turns a published model into a run folder, which generate, predict and --init take.
#include <iostream>

#include "train/models/pretrained.h"
#include "train/util/program.h"

namespace flexformer {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    parts.push_back(list.substr(at, end - at));
    if (parts.back().empty()) throw UsageError("labels=" + list + ": a label is empty");
    at = end + 1;
  }
  return parts;
}

int import(Options& options) {
  use_machine_options(options);
  const std::string& from = options.text("from");
  if (from.empty()) throw UsageError("no model is given: from=DIR, a folder with config.json and model.safetensors");
  const ImportOptions import{options.text("tokenizer"), split(options.text("labels")), options.flag("pairs"),
                             options.flag("parse_specials")};
  const RunFolder folder = RunFolder::for_training(options.text("out"), "import", false);
  if (folder.has_best()) fail(folder.path().string(), " already holds a model; choose another out=DIR");
  for (const std::string& line : import_model(from, folder, import)) std::cout << line << "\n";
  folder.keep();
  std::cout << "run folder: " << folder.path().string() << std::endl;
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options(
      "import_model", "Turns a published GPT-2, Llama, llama2.c, BERT, RoBERTa or DistilBERT model into a run folder.");
  options.add_path("from", "",
                   "folder with config.json, model.safetensors and the tokenizer's files; or llama2.c's .bin");
  options.add_path("out", "", "run folder to make; empty: runs/import-1, 2, ...");
  options.add_path("tokenizer", "", "file or folder with the tokenizer; empty: it lies beside the model");
  options.add_text("labels", "",
                   "names of an encoder's classes, separated by commas, in the order of its outputs; empty: those of "
                   "config.json");
  options.add_flag("pairs", false, "an encoder reads pairs of texts");
  options.add_flag("parse_specials", false,
                   "names of special tokens in a text, as <|endoftext|> or <s> between documents, become those "
                   "tokens");
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::import);
}
