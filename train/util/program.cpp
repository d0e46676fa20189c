#include "train/util/program.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>

#include "tensor/device_memory.h"
#include "tensor/parallel.h"
#include "tensor/precision.h"
#include "tensor/profile.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// A program built for a newer processor would die of an illegal instruction. This runs before anything else can.
[[gnu::constructor(101)]] void check_processor() {
#if defined(__x86_64__)
  const char* missing = nullptr;
  __builtin_cpu_init();  // constructors may run before the compiler's own
#if defined(__AVX2__)
  if (!__builtin_cpu_supports("avx2")) missing = "AVX2";
#endif
#if defined(__FMA__)
  if (!__builtin_cpu_supports("fma")) missing = "FMA";
#endif
#if defined(__AVX512F__)
  if (!__builtin_cpu_supports("avx512f")) missing = "AVX-512";
#endif
#if defined(__AVX512BF16__)
  if (!__builtin_cpu_supports("avx512bf16")) missing = "AVX-512 BF16";
#endif
  if (!missing) return;
  const char *before = "error: this program was built for a processor with ",
             *after = ", which this one lacks; rebuild here with 'make', or anywhere with 'make ARCH=x86-64-v2'\n";
  for (const char* part : {before, missing, after})
    if (write(STDERR_FILENO, part, std::char_traits<char>::length(part)) < 0) break;
  _exit(1);
#endif
}

volatile std::sig_atomic_t received_signal = 0, insisted = 0;

// Who asks once more by Ctrl-C or SIGTERM will not wait. The others come twice unmeant: a closed terminal and its shell
// both send SIGHUP, SIGXCPU comes every second, and a batch system's SIGTERM follows its warning.
void on_stop_signal(int signal) {
  if (!received_signal) received_signal = signal;
  if (signal != SIGINT && signal != SIGTERM) return;
  if (insisted) _exit(128 + signal);
  insisted = 1;
}

// One line, whatever was quoted of a file.
int report(const std::string& message, int status) {
  std::cout.flush();
  std::cerr << "error: " << printable(message) << std::endl;
  return status;
}

}  // namespace

int run_program(Options& options, int argc, char** argv, const std::function<int(Options&)>& body) {
  int status = 0;
  try {
    options.add_flag(
        "profile", false,
        "at the end, on stderr: time, calls, bytes and operations of every op and kernel; trainers keep them "
        "in summary.json; turns cuda_graph off");
    switch (options.parse(argc, argv)) {
      case Request::help:
        std::cout << options.help();
        break;
      case Request::version:
        std::cout << options.version() << "\n";
        break;
      case Request::print_config:
        std::cout << dump_json(options.effective(), 2) << "\n";
        break;
      case Request::run:
        if (options.flag("profile")) profile::start();
        status = body(options);
    }
    std::cout.flush();
    if (profile::on) std::cerr << "\n" << profile::table() << std::flush;
    return std::cout || status ? status : report("standard output could not be written", 1);
  } catch (const UsageError& error) {
    return report(error.what(), 2);
  } catch (const std::bad_alloc&) {
    return report("out of memory; lower train.batch, train.block (or data.max_length), model.dim or model.layers", 1);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(text(error.path1().string(), ": ", error.code().message()), 1);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}

void watch_stop_signals() {
  struct sigaction action = {}, before = {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE}) {
    sigaction(signal, nullptr, &before);
    // nohup ignores SIGHUP, and that stays. A shell without job control ignores Ctrl-C for `program &`, and kill -INT
    // should work all the same.
    const bool ignored = before.sa_handler == SIG_IGN && signal != SIGINT && signal != SIGTERM;
    if (!ignored) sigaction(signal, &action, nullptr);
  }
}

int stop_signal() { return received_signal; }

// The kernel's own count begins with this program; getrusage's goes on from the program that started it.
Index peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (Index kilobytes = 0; word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Index(usage.ru_maxrss) * 1024;
}

void add_machine_options(Options& options) {
  options.add_integer("threads", 0,
                      {.max = 1024, .unit = "threads", .help = "0: all it may use; results do not depend on it"});
  options.add_choice("device", "auto", {"auto", "cpu", "cuda"}, "where to compute; auto takes a GPU if there is one");
  options.add_choice("precision", "f32", {"f32", "bf16"}, "number format of products; on a GPU of activations too");
  options.add_flag(
      "cuda_graph", false,
      "on a GPU, repeat training steps of one shape as a CUDA graph, with the same results; false until it "
      "has been timed there; without effect on the CPU and with model.adaptive");
}

Device use_machine_options(const Options& options) {
  set_threads(int(options.integer("threads")));
  set_precision(options.text("precision") == "bf16" ? Precision::bf16 : Precision::f32);
  const std::string& device = options.text("device");
  if (device == "cpu") return Device::cpu;
  if (device::trouble().empty()) return Device::cuda;
  if (device == "cuda") fail("device=cuda: ", device::trouble(), "; device=cpu always works");
  return Device::cpu;
}

std::string why_on_cpu(const Options& options) {
  return options.text("device") != "auto" || device::trouble().empty() ? "" : "on the CPU: " + device::trouble();
}

}  // namespace flexformer
