// The only include and the only switch: with nvcc the CUDA toolkit, without it the emulation that runs the same kernels
// on the CPU (tests/emu). Both give the same names: __global__, threadIdx, __syncthreads, the cuda... functions of the
// runtime and the cublasLt... functions. What differs is behind SHARED, DYN_SHARED and launch_kernel.
#pragma once
#if defined(__CUDACC__)
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

// SHARED(T, name, [a][b]): an array that the threads of a block share; its elements start undefined.
#define SHARED(T, name, ...) __shared__ T name __VA_ARGS__
// DYN_SHARED(T, name): the shared memory whose size the launch gave, as an array of T.
#define DYN_SHARED(T, name)                                                \
  extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[]; \
  T* name = reinterpret_cast<T*>(dynamic_shared_memory)
#else
#include "cuda/emulation/emu.h"
#endif

#include "tensor/error.h"

namespace flexformer::cuda {

using bf16 = __nv_bfloat16;

// Throws Error "cuda: what failed: reason; how to mend it (file:line)" unless the status is success.
void check_cuda(CheckedOp what, cudaError_t status);

// What device::trouble() remembers.
std::string find_trouble();

// The one stream in which everything runs, in order.
cudaStream_t stream();

// How many blocks and threads, how many bytes of dynamic shared memory, and where the launch was written.
struct LaunchShape {
  dim3 grid, block;
  std::size_t smem;
  cudaStream_t stream;
  const char* file;
  int line;
  LaunchShape(dim3 grid, dim3 block, std::size_t smem = 0, cudaStream_t stream = cuda::stream(),
              const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : grid(grid), block(block), smem(smem), stream(stream), file(file), line(line) {}
};

// launch_kernel({blocks, threads}, kernel<T>, arguments...) runs kernel in blocks * threads threads. Returns at once;
// a launch that is refused throws Error, what goes wrong in the kernel shows at the next synchronisation.
template <class... Parameters, class... Given>
void launch_kernel(const LaunchShape& shape, void (*kernel)(Parameters...), const Given&... given) {
  constexpr std::size_t without_asking = 48 << 10;  // bytes of dynamic shared memory
  if (shape.smem > without_asking)
    check_cuda({"more shared memory", shape.file, shape.line},
               cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    int(shape.smem)));
#if defined(__CUDACC__)
  kernel<<<shape.grid, shape.block, shape.smem, shape.stream>>>(static_cast<Parameters>(given)...);
#else
  emu::launch({shape.grid, shape.block, shape.smem, {shape.file, shape.line}}, kernel, given...);
#endif
  check_cuda({"launch", shape.file, shape.line}, cudaGetLastError());
}

}  // namespace flexformer::cuda
