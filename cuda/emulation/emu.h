// CUDA on the CPU, for tests without a GPU: what cuda/device.h takes instead of NVIDIA's headers. Kernels are compiled
// as ordinary C++; every CUDA thread is a fiber, and one thread of the system runs them all, in an order that a test
// chooses. It checks what a GPU would silently accept: races, barriers not reached by all, memory touched outside its
// allocation or on the wrong side. It cannot show speed, bank conflicts, tensor-core rounding or weak memory order.
//
//   types.h       dim3, float4, bf16
//   threads.h     threadIdx, barriers, warp functions, atomics, shared memory: what kernels call
//   scheduler.*   runs the threads of a block as fibers (fiber.*) and finds those that wait in vain
//   mma.*         tensor cores: fragments, their product
//   memory.*      device memory: poisoned, fenced, out of the host's reach
//   runtime.*     the part of the CUDA runtime that cuda/ uses, and kernel launches
//   cublaslt.*    the part of cuBLASLt that cuda/gemm.cu uses
#pragma once
#include "cuda/emulation/cublaslt.h"
#include "cuda/emulation/mma.h"
#include "cuda/emulation/runtime.h"
#include "cuda/emulation/threads.h"
#include "cuda/emulation/types.h"
