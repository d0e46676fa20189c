// The device itself: finding it, its stream, its memory, and what its errors mean.
#include "cuda/kernel.h"

namespace flexformer {
namespace cuda {
namespace {

const char* remedy(cudaError_t status) {
  switch (status) {
    case cudaErrorNoKernelImageForDevice:
      return "; this program holds no code for this GPU, rebuild on this machine with 'make CUDA=1'";
    case cudaErrorMemoryAllocation:
      return "; lower train.batch, train.block (or data.max_length), model.dim or model.layers";
    case cudaErrorInsufficientDriver:
      return "; update the NVIDIA driver, or use device=cpu";
    default:
      return "";
  }
}

__global__ void do_nothing() {}
__global__ void fill(float* to, float value, Index n) {
  for (Index i = thread_number(); i < n; i += thread_count()) to[i] = value;
}

std::string version_text(int version) { return text(version / 1000, ".", version % 1000 / 10); }

}  // namespace

std::string find_trouble() {
  int driver = 0, count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaDriverGetVersion(&driver);
  cudaGetLastError();  // forgotten: it has been answered
  if (driver == 0) return "there is no NVIDIA driver here";
  if (status == cudaErrorInsufficientDriver)
    return text("the NVIDIA driver knows CUDA up to ", version_text(driver), " only; update the driver");
  if (status != cudaSuccess || count == 0)
    return text("no GPU can be used (", cudaGetErrorString(status), "); is CUDA_VISIBLE_DEVICES set?");
  try {
    launch_kernel({1, 1}, do_nothing);
    check_cuda("the first kernel", cudaStreamSynchronize(stream()));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void check_cuda(CheckedOp what, cudaError_t status) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // so that it is told once
  fail("cuda: ", what.name, " failed: ", cudaGetErrorString(status), remedy(status), " (", what.file, ":", what.line,
       ")");
}

cudaStream_t stream() {
  static const cudaStream_t only = [] {
    cudaStream_t made;
    check_cuda("a stream", cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return only;
}

}  // namespace cuda

namespace device {

using cuda::check_cuda, cuda::stream;

namespace {

bool recording = false;

// In a recording these would be an error of the device, or happen once and never again.
void refuse_in_recording(const char* what) {
  check("cuda", !recording, "a captured step must not ", what,
        ": that would not happen again when it is repeated; use cuda_graph=false");
}

}  // namespace

const std::string& trouble() {
  static const std::string said = cuda::find_trouble();
  return said;
}

void* allocate(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda("memory", status);
  return block;
}
void release(void* block) noexcept { cudaFree(block); }

void copy_to_device(void* to, const void* from, std::size_t bytes) {
  refuse_in_recording("copy from the host");
  check_cuda("copy to the GPU", cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()));
}
void copy_to_host(void* to, const void* from, std::size_t bytes) {
  refuse_in_recording("copy to the host");
  check_cuda("copy from the GPU", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()));
  synchronize();
}
void copy_within(void* to, const void* from, std::size_t bytes) {
  check_cuda("copy on the GPU", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()));
}
void fill(void* to, int byte, std::size_t bytes) { check_cuda("fill", cudaMemsetAsync(to, byte, bytes, stream())); }
void fill_floats(float* to, float value, Index n) {
  cuda::launch_kernel(cuda::for_elements(n), cuda::fill, to, value, n);
}
void synchronize() {
  refuse_in_recording("wait for the GPU");
  check_cuda("work on the GPU", cudaStreamSynchronize(stream()));
}

Moment::Moment() {
  cudaEvent_t event;
  check_cuda("an event", cudaEventCreate(&event));
  event_ = event;
  check_cuda("an event", cudaEventRecord(event, stream()));
}
Moment::~Moment() {
  if (event_) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}
double Moment::seconds_since(const Moment& earlier) const {
  const auto from = static_cast<cudaEvent_t>(earlier.event_), to = static_cast<cudaEvent_t>(event_);
  check_cuda("an event", cudaEventSynchronize(to));
  float milliseconds = 0;
  check_cuda("an event", cudaEventElapsedTime(&milliseconds, from, to));
  return 1e-3 * double(milliseconds);
}

// Relaxed: blocks that the pool does not have yet may be taken from the system meanwhile.
Graph::Graph(const std::function<void()>& work) {
  check_cuda("a recording", cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
  cudaGraph_t graph = nullptr;
  recording = true;
  try {
    work();
  } catch (...) {
    recording = false;
    cudaStreamEndCapture(stream(), &graph);
    cudaGraphDestroy(graph);
    cudaGetLastError();  // forgotten: what was thrown says more
    throw;
  }
  recording = false;
  check_cuda("a recording", cudaStreamEndCapture(stream(), &graph));
  cudaGraphExec_t ready = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda("a graph", status);
  recorded_ = ready;
}
Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recorded_)); }
void Graph::launch() const {
  check_cuda("a graph", cudaGraphLaunch(static_cast<cudaGraphExec_t>(recorded_), stream()));
}

}  // namespace device
}  // namespace flexformer
