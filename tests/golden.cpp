// golden [DIR]: compares the engine with the reference values of a folder, tests/golden if none is given. Ends with
// status 1 when a case failed.
#include <exception>
#include <iostream>

#include "tests/golden_runner.h"

int main(int argc, char** argv) {
  try {
    if (argc > 2) flexformer::fail("usage: golden [DIR]");
    const auto totals = flexformer::golden::run_folder(argc == 2 ? argv[1] : "tests/golden", std::cout);
    return totals.failed > 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
