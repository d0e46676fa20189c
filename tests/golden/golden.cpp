// golden [DIR] [--device=cuda]: compares the engine with the reference values of a folder, tests/golden if none is
// given. Ends with status 1 when a case failed.
#include <exception>
#include <iostream>

#include "tensor/device_memory.h"
#include "tests/golden/golden_runner.h"

int main(int argc, char** argv) {
  using namespace flexformer;
  try {
    std::string folder;
    Device device = Device::cpu;
    for (const std::string& word : std::vector<std::string>(argv + 1, argv + argc)) {
      if (word == "--device=cpu" || word == "--device=cuda")
        device = word == "--device=cpu" ? Device::cpu : Device::cuda;
      else if (word.starts_with("-") || !folder.empty())
        fail("'", word, "': usage: golden [DIR] [--device=cpu|cuda]");
      else
        folder = word;
    }
    if (device == Device::cuda && !device::trouble().empty()) fail("--device=cuda: ", device::trouble());
    const auto totals = golden::run_folder(folder.empty() ? "tests/golden" : folder, std::cout, device);
    return totals.failed > 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
