// The loop over files and cases. Whatever goes wrong in one case is that case's failure; the others still run.
#include "tests/golden/golden_runner.h"

#include <algorithm>
#include <cmath>

namespace flexformer::golden {
namespace {

std::vector<std::filesystem::path> json_files(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) fail("there is no folder ", folder.string());
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  if (files.empty()) fail("there is no golden file (*.json) in ", folder.string());
  std::sort(files.begin(), files.end());
  return files;
}

// As a name is asked for in the output: it must stay one word.
std::string one_word(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c <= ' '; }, '_');
  return name.empty() ? "unnamed" : name;
}

void run_case(const Case& golden, Totals& totals, std::ostream& out) {
  const std::string name = one_word(golden.name);
  const Runner runner = find_runner(golden.op);
  if (!runner) {
    ++totals.skipped;
    out << "skip " << name << "\n";
    return;
  }
  Verdict verdict;
  runner(golden, verdict);
  if (verdict.passed()) {
    ++totals.passed;
    out << text("ok ", name, " ", verdict.error(), "\n");
  } else {
    ++totals.failed;
    out << text("FAIL ", name, " ", verdict.error(), " ", verdict.limit(), " (", verdict.what(), ")\n");
  }
}

void run_file(const std::filesystem::path& path, Device device, Totals& totals, std::ostream& out) {
  const std::string file = path.filename().string();
  const auto failed = [&](const std::string& name, const std::exception& error) {
    ++totals.failed;
    out << text("FAIL ", one_word(name), " (", error.what(), ")\n");
  };
  try {
    const Json json = read_json(path);
    const Json& cases = json_member(json, "cases", file);
    if (!cases.is_array() || cases.empty()) fail(file, ": 'cases' is no list of cases");
    for (const Json& entry : cases) {
      std::string name = file;
      try {
        if (entry.is_object() && entry.contains("name") && entry.at("name").is_string()) name = entry.at("name");
        Case golden(entry, file);
        golden.device = device;
        run_case(golden, totals, out);
      } catch (const std::exception& error) {
        failed(name, error);
      }
    }
  } catch (const std::exception& error) {
    failed(file, error);
  }
}

}  // namespace

Totals run_folder(const std::filesystem::path& folder, std::ostream& out, Device device) {
  Totals totals;
  for (const auto& file : json_files(folder)) run_file(file, device, totals, out);
  out << totals.passed << " passed, " << totals.failed << " failed";
  if (totals.skipped > 0) out << ", " << totals.skipped << " skipped";
  out << "\n";
  return totals;
}

Runner find_runner(const std::string& op) {
  if (op == "optimiser") return run_optimizer;
  if (op == "lr_schedule") return run_schedules;
  if (op == "train_trajectory") return run_trajectory;
  if (const Runner runner = find_tensor_op(op)) return runner;
  return find_attention(op);
}

void compare_op(const Case& golden, Verdict& verdict, Var (*op)(const Case&, const Inputs&),
                double (*limit)(const Case&, const std::string&)) {
  Inputs inputs;
  for (const auto& [name, values] : golden.inputs)
    if (!values.whole && name != "grad_out")
      inputs.emplace(name, Var(values.floats(golden.device), golden.grads.count(name) > 0));
  for (const auto& [name, values] : golden.grads)
    if (!inputs.count(name)) fail("there is a gradient but no input '", name, "'");

  Tape tape;
  const Var out = op(golden, inputs);
  const bool scalar = !golden.has_input("grad_out");
  const double least = std::max(1e-3, 1e-3 * (scalar ? 1.0 : golden.input("grad_out").norm()));
  verdict.compare("out", out.value(), golden.output("out"), limit(golden, ""), least);
  if (golden.grads.empty()) return;
  tape.backward(out,
                scalar ? Tensor::full(out.shape(), 1, golden.device) : golden.input("grad_out").floats(golden.device));
  for (const auto& [name, reference] : golden.grads)
    if (const double most = limit(golden, name); most > 0)
      verdict.compare("gradient of " + name, inputs.at(name).grad(), reference, most, least);
}

}  // namespace flexformer::golden
