#include "cuda/emulation/runtime.h"

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/emulation/memory.h"
#include "cuda/emulation/shared_memory.h"
#include "tensor/error.h"

using Works = std::vector<std::function<void()>>;
struct EmulatedGraph {
  Works works;
};
struct EmulatedGraphExec {
  std::shared_ptr<const Works> works;
};

namespace flexformer::emu {
namespace {

bool deferred = false;
Works waiting;
std::unique_ptr<EmulatedGraph> captured;  // while the stream is captured
bool capture_is_valid = true;
cudaError_t device_state = cudaSuccess, launch_state = cudaSuccess, last_error = cudaSuccess;
int driver = 13000;
long grids = 0;
std::map<const void*, int> dynamic_shared_limits;

void run_waiting() {
  const DeviceAccess access;
  for (auto& work : std::exchange(waiting, {})) work();
}

void run_or_wait(std::function<void()> work) {
  if (deferred) {
    waiting.push_back(std::move(work));
    return;
  }
  const DeviceAccess access;
  work();
}

cudaError_t configuration_error(const Grid& grid, const void* kernel) {
  const auto [x, y, z] = grid.threads;
  if (x == 0 || y == 0 || z == 0 || std::uint64_t(x) * y * z > 1024 || z > 64) return cudaErrorInvalidConfiguration;
  if (grid.blocks.x == 0 || grid.blocks.x > 0x7FFFFFFF) return cudaErrorInvalidConfiguration;
  for (unsigned size : {grid.blocks.y, grid.blocks.z})
    if (size == 0 || size > 65535) return cudaErrorInvalidConfiguration;
  const auto limit = dynamic_shared_limits.find(kernel);
  if (grid.dynamic_shared > (limit == dynamic_shared_limits.end() ? kSharedLimit : std::size_t(limit->second)))
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

void check_arguments(const Grid& grid, const std::vector<std::string>& arguments) {
  for (std::size_t number = 0; number < arguments.size(); ++number)
    for (std::size_t at = 0; at + 8 <= arguments[number].size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, arguments[number].data() + at, sizeof word);
      const std::string wrong = argument_error(word, kPaddingIsClear);
      if (!wrong.empty())
        fail("emulation: argument ", number, " (byte ", at, ") of the kernel launched at ", grid.place.file, ":",
             grid.place.line, ": ", wrong);
    }
}

}  // namespace

void set_deferred(bool on) {
  run_waiting();
  deferred = on;
}
void pretend(cudaError_t device, int driver_version, cudaError_t launch) {
  device_state = device;
  driver = driver_version;
  launch_state = launch;
}
long grids_run() { return grids; }

void submit(std::function<void()> work) {
  if (captured)
    captured->works.push_back(std::move(work));
  else
    run_or_wait(std::move(work));
}

void launch(const Grid& grid, const void* kernel, std::initializer_list<Arguments> arguments,
            std::function<void()> body) {
  if (launch_state != cudaSuccess || (last_error = configuration_error(grid, kernel)) != cudaSuccess) {
    if (launch_state != cudaSuccess) last_error = std::exchange(launch_state, cudaSuccess);
    return;
  }
  std::vector<std::string> bytes;
  for (const Arguments& argument : arguments) bytes.emplace_back(static_cast<const char*>(argument.p), argument.bytes);
  check_arguments(grid, bytes);
  submit([grid, body = std::move(body), bytes = captured ? bytes : std::vector<std::string>()] {
    check_arguments(grid, bytes);  // in a graph: memory may have been given back since
    ++grids;
    run_grid(grid, {[](const void* self) { (*static_cast<const std::function<void()>*>(self))(); }, &body});
    const std::string wrong = fence_error();
    if (!wrong.empty()) fail("emulation: the kernel launched at ", grid.place.file, ":", grid.place.line, " ", wrong);
  });
}

}  // namespace flexformer::emu

using namespace flexformer::emu;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
  }
  return "unknown error";
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (device_state == cudaSuccess) *count = 1;
  return device_state;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount            ? 2
           : attribute == cudaDevAttrComputeCapabilityMajor       ? 9
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? int(kSharedOptInLimit)
                                                                  : 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = free_bytes();
  *total = capacity();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (captured) {
    capture_is_valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  run_waiting();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  captured = std::make_unique<EmulatedGraph>();
  capture_is_valid = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  const auto ended = std::move(captured);
  *graph = capture_is_valid ? new EmulatedGraph(*ended) : nullptr;
  return capture_is_valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraphExec{std::make_shared<const Works>(graph->works)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  submit([works = exec->works] {
    for (const auto& work : *works) work();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

// Its time is the clock's when the stream comes to it; it is shared with work that may outlive the event.
struct EmulatedEvent {
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<Clock::time_point> time = std::make_shared<Clock::time_point>();
};
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  submit([time = event->time] { *time = EmulatedEvent::Clock::now(); });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaStreamSynchronize(nullptr); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(*to->time - *from->time).count();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  if (value < 0 || std::size_t(value) > kSharedOptInLimit) return cudaErrorInvalidValue;
  dynamic_shared_limits[kernel] = value;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  *p = allocate(bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
// Memory stays until the work that was submitted before has run, as it does in a pool that knows its stream. A capture
// does not record it.
cudaError_t cudaFree(void* p) {
  if (!range_error(p, 0).empty()) return cudaErrorInvalidValue;
  run_or_wait([p] {
    if (!release(p)) flexformer::fail("emulation: cudaFree of ", p, ", which is not the start of an allocation");
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  for (const void* p : {static_cast<const void*>(kind != cudaMemcpyDeviceToHost ? to : nullptr),
                        kind != cudaMemcpyHostToDevice ? from : nullptr})
    if (const std::string wrong = p ? range_error(p, bytes) : ""; !wrong.empty())
      flexformer::fail("emulation: a copy touches ", wrong);
  if (kind != cudaMemcpyHostToDevice) {
    submit([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
  }
  if (captured) {  // a graph reads the source when it is launched
    submit([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
  }
  // Pageable memory has been read when the call returns.
  std::vector<char> staged(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  submit([to, staged = std::move(staged)] { std::memcpy(to, staged.data(), staged.size()); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t) {
  if (const std::string wrong = range_error(p, bytes); !wrong.empty())
    flexformer::fail("emulation: cudaMemset touches ", wrong);
  submit([=] { std::memset(p, value, bytes); });
  return cudaSuccess;
}
