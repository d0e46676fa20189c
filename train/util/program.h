// What every program's main does alike: options, help, errors as one line, and stopping when asked to.
#pragma once
#include <functional>

#include "tensor/allocator.h"
#include "train/util/config.h"

namespace flexformer {

// Parses the options, answers --help, --version and --print-config, then runs `body` and returns its status. Every
// failure becomes one line "error: ..." on stderr and status 1; a mistake in the options becomes status 2.
int run_program(Options& options, int argc, char** argv, const std::function<int(Options&)>& body);

// From here on these signals only set stop_signal(): SIGINT, SIGTERM, SIGHUP (a closed terminal), SIGUSR1, SIGUSR2 and
// SIGXCPU (batch systems), SIGPIPE (nobody reads the output any more). One that is ignored, as SIGHUP under nohup,
// stays ignored. A second SIGINT or SIGTERM leaves at once with 130 or 143.
void watch_stop_signals();
// The signal that asked to stop, or 0. 128 + signal is the status to leave with.
int stop_signal();

// Largest resident memory of this process since it started.
Index peak_rss_bytes();

// Keys that mean the same in every program.
void add_machine_options(Options& options);  // threads, device, precision, cuda_graph
// Applies them: sets the number of threads and the precision, and refuses a device that cannot be used. Returns the
// device to build models for.
Device use_machine_options(const Options& options);
// Why device=auto stays on the CPU, as one line; "" where it does not, or where the device was chosen by name.
std::string why_on_cpu(const Options& options);

}  // namespace flexformer
