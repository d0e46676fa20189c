// A build without CUDA: there is no device, and nothing but trouble() can be called.
#include "tensor/device_memory.h"

#if !defined(FLEXFORMER_CUDA)
#include <unistd.h>

#include "tensor/error.h"

namespace flexformer::device {
namespace {
constexpr const char* kNoCuda = "this build has no CUDA; rebuild with 'make CUDA=1'";
[[noreturn]] void refuse() { fail("cuda: ", kNoCuda); }

// On Linux, and on Windows' Linux.
bool has_driver() {
  for (const char* file : {"/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1"})
    if (access(file, F_OK) == 0) return true;
  return false;
}
}  // namespace

// Where there is no GPU, another build would not help.
const std::string& trouble() {
  static const std::string said = has_driver() ? kNoCuda : "there is no NVIDIA GPU here";
  return said;
}

void* allocate(std::size_t) { refuse(); }
void release(void*) noexcept {}
void copy_to_device(void*, const void*, std::size_t) { refuse(); }
void copy_to_host(void*, const void*, std::size_t) { refuse(); }
void copy_within(void*, const void*, std::size_t) { refuse(); }
void fill(void*, int, std::size_t) { refuse(); }
void fill_floats(float*, float, Index) { refuse(); }
void synchronize() {}
Moment::Moment() { refuse(); }
Moment::~Moment() = default;
double Moment::seconds_since(const Moment&) const { refuse(); }
Graph::Graph(const std::function<void()>&) { refuse(); }
Graph::~Graph() = default;
void Graph::launch() const {}

}  // namespace flexformer::device
#endif
