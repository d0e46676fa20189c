// Softmax attention on tensor cores; fused_softmax.cu has the plan.
#pragma once
#include "cuda/kernel.h"

namespace flexformer::cuda {

// Run the problem if these kernels take it; false if they do not. delta_i = dout_i . out_i, [B,H,Nq].
bool run_fused_if_it_fits(const SoftmaxAttentionFwd& k);
bool run_fused_if_it_fits(const SoftmaxAttentionBwd& k, const float* delta);

}  // namespace flexformer::cuda
