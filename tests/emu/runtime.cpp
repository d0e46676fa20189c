#include "tests/emu/runtime.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tests/emu/memory.h"
#include "tests/emu/shared_memory.h"

namespace flexformer::emu {
namespace {

bool deferred = false;
std::vector<std::function<void()>> waiting;
cudaError_t device_state = cudaSuccess, launch_state = cudaSuccess, last_error = cudaSuccess;
int driver = 13000;
long grids = 0;
std::map<const void*, int> dynamic_shared_limits;

void run_waiting() {
  const DeviceAccess access;
  for (auto& work : std::exchange(waiting, {})) work();
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
  if (deferred) {
    waiting.push_back(std::move(work));
    return;
  }
  const DeviceAccess access;
  work();
}

void launch(const Grid& grid, const void* kernel, std::initializer_list<Arguments> arguments,
            std::function<void()> body) {
  if (launch_state != cudaSuccess || (last_error = configuration_error(grid, kernel)) != cudaSuccess) {
    if (launch_state != cudaSuccess) last_error = std::exchange(launch_state, cudaSuccess);
    return;
  }
  int number = 0;
  for (const Arguments& argument : arguments) {
    for (std::size_t at = 0; at + 8 <= argument.bytes; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, static_cast<const char*>(argument.p) + at, sizeof word);
      const std::string wrong = argument_error(word, kPaddingIsClear);
      if (!wrong.empty())
        fail("emulation: argument ", number, " (byte ", at, ") of the kernel launched at ", grid.place.file, ":",
             grid.place.line, ": ", wrong);
    }
    ++number;
  }
  submit([grid, body = std::move(body)] {
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
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
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
  run_waiting();
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
// Memory stays until the work that was submitted before has run, as it does in a pool that knows its stream.
cudaError_t cudaFree(void* p) {
  if (!range_error(p, 0).empty()) return cudaErrorInvalidValue;
  submit([p] {
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
