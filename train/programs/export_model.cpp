// export_model: writes a run's model as config.json and model.safetensors under the names of a published format.
#include <iostream>

#include "train/models/pretrained.h"
#include "train/util/program.h"

namespace flexformer {
namespace {

int export_run(Options& options) {
  use_machine_options(options);
  const std::string &run = options.text("run"), &to = options.text("to"), &as = options.text("as");
  if (run.empty() || to.empty()) throw UsageError("give run=DIR, the model to write, and to=DIR, where");
  if (std::filesystem::exists(std::filesystem::path(to) / "model.safetensors"))
    fail("to=", to, " already holds a model.safetensors; choose another folder");
  const std::filesystem::path config = std::filesystem::path(run) / "config.json";
  const auto program = json_get<std::string>(read_json(config), "program", config.string());
  const RunFolder folder = RunFolder::for_use(run, program);
  for (const std::string& line : export_model(folder, to, as == "auto" ? "" : as)) std::cout << line << "\n";
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("export_model", "Writes a run's model in a published format.");
  options.add_path("run", "", "run folder of train_lm, train_classifier or import_model");
  options.add_path("to", "", "folder to write config.json, model.safetensors and the tokenizer's files into");
  options.add_choice("as", "auto", {"auto", "gpt2", "llama", "llama2c", "bert", "roberta", "distilbert"},
                     "the format; auto: the one the run was imported from, or the one that fits");
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::export_run);
}
