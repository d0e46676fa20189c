// Runs golden cases through the public ops, models and optimisers and compares.
#pragma once
#include <filesystem>
#include <ostream>

#include "tests/golden/golden_case.h"

namespace flexformer::golden {

struct Totals {
  Index passed = 0, failed = 0, skipped = 0;
};

// All *.json files of a folder, computed on `device`, in the order of their names. Writes one line per case: "ok NAME
// error", "FAIL NAME error limit (what)" or, where the op is not known, "skip NAME"; then "N passed, M failed" and,
// where there are any, ", K skipped". A file or a case that cannot be read is a failure of its name, with the reason.
// Throws Error if there is no such folder, or no file in it.
Totals run_folder(const std::filesystem::path& folder, std::ostream& out, Device device = Device::cpu);

// A way to run one kind of case: fills in the verdict.
using Runner = void (*)(const Case&, Verdict&);

// The runner of an op, or null.
Runner find_runner(const std::string& op);
Runner find_tensor_op(const std::string& op);  // golden_ops.cpp
Runner find_attention(const std::string& op);  // golden_attention.cpp

// What most runners are: forward, and backward from grad_out (1 for a scalar), compared with outputs.out and grads.
// `op` gets the case's floating inputs as variables; those with an entry in grads want a gradient. A limit is asked for
// by gradient name; "" is the output's.
using Inputs = std::map<std::string, Var>;
void compare_op(const Case& golden, Verdict& verdict, Var (*op)(const Case&, const Inputs&),
                double (*limit)(const Case&, const std::string&));

void run_optimizer(const Case& golden, Verdict& verdict);   // golden_training.cpp
void run_schedules(const Case& golden, Verdict& verdict);   // golden_training.cpp
void run_trajectory(const Case& golden, Verdict& verdict);  // golden_model.cpp

}  // namespace flexformer::golden
