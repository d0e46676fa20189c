// The part of the CUDA runtime that cuda/ uses, under its own names, and kernel launches. There is one device.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>

#include "cuda/emulation/scheduler.h"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct EmulatedStream;
using cudaStream_t = EmulatedStream*;
constexpr unsigned cudaStreamNonBlocking = 1;
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
struct EmulatedGraph;
using cudaGraph_t = EmulatedGraph*;
struct EmulatedGraphExec;
using cudaGraphExec_t = EmulatedGraphExec*;
struct EmulatedEvent;
using cudaEvent_t = EmulatedEvent*;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaMalloc(void** p, std::size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGetLastError();
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

namespace flexformer::emu {

// Work of a stream runs only when the host waits for it, as late as a device might: what reads a result without having
// waited finds old values.
void set_deferred(bool on);
// What cudaGetDeviceCount and the next launch answer, to test what is said then.
void pretend(cudaError_t device, int driver_version, cudaError_t launch = cudaSuccess);
// How many grids have run.
long grids_run();

// Checks the sizes and the arguments' addresses, and runs the grid (or keeps it for later). The body is what a thread
// does.
struct Arguments {
  const void* p;
  std::size_t bytes;
};
void launch(const Grid& grid, const void* kernel, std::initializer_list<Arguments> arguments,
            std::function<void()> body);
// Runs work on device memory now, or keeps it for later. While the stream is captured it is kept for the graph, and
// runs when that is launched.
void submit(std::function<void()> work);

// Bytes between the members of a struct hold anything, which may look like an address.
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
constexpr bool kPaddingIsClear = true;
template <class T> void clear_padding(T& value) {
  if constexpr (std::is_class_v<T>) __builtin_clear_padding(&value);
}
#else
constexpr bool kPaddingIsClear = false;  // then only device addresses are checked
template <class T> void clear_padding(T&) {}
#endif

template <class... Parameters, class... Given>
void launch(const Grid& grid, void (*kernel)(Parameters...), Given&&... given) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel takes its arguments as bytes");
  std::tuple<Parameters...> arguments(static_cast<Parameters>(given)...);
  std::apply([](auto&... each) { (clear_padding(each), ...); }, arguments);
  std::apply(
      [&](const auto&... each) {
        launch(grid, reinterpret_cast<const void*>(kernel), {Arguments{&each, sizeof each}...},
               [kernel, arguments] { std::apply(kernel, arguments); });
      },
      arguments);
}

}  // namespace flexformer::emu
