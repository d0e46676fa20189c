// Kernels that CUDA does not have yet. Each says so, with its name, when it is used; this file lists them all.
#include "tensor/kernels.h"

namespace flexformer::cuda {

#define FLEXFORMER_MISSING(Kernel) \
  void run(const Kernel&) { fail(#Kernel ": there is no CUDA kernel for this yet; use device=cpu"); }
FLEXFORMER_MISSING(LinearAttentionBwd)
#undef FLEXFORMER_MISSING

}  // namespace flexformer::cuda
