// Rows of a table. The gradient has a block for each row of the batch, but only the first one with its id works: it
// looks through all later ids and adds up their rows in that order. So nothing is sorted, no two blocks write the same
// row, and the sums are those of the CPU.
#include "cuda/kernel.h"

namespace flexformer::cuda {
namespace {

__global__ void embedding_fwd(EmbeddingFwd k) {
  for (Index i = thread_number(); i < k.R * k.C; i += thread_count())
    write(k.y, i, read(k.table, Index(k.ids[i / k.C]) * k.C + i % k.C));
}

// Whether an id equal to ids[r] comes before r; the same answer for all threads.
__device__ bool occurs_before(const std::int32_t* ids, Index r) {
  for (Index from = 0; from < r; from += blockDim.x) {
    const Index i = from + threadIdx.x;
    if (block_sum(i < r && ids[i] == ids[r] ? 1 : 0) > 0) return true;
  }
  return false;
}

__global__ void embedding_bwd(EmbeddingBwd k) {
  SHARED(unsigned, hits, [kThreads / kWarp]);  // which ids of a window are this row's, a bit for each
  for (Index r = blockIdx.x; r < k.R; r += gridDim.x) {
    const std::int32_t id = k.ids[r];
    if (id == k.padding || occurs_before(k.ids, r)) continue;
    const ValuesOut row = k.dtable.p.from(Index(id) * k.C);
    for (Index from = r; from < k.R; from += blockDim.x) {
      const Index i = from + threadIdx.x;
      const unsigned own = __ballot_sync(kAllLanes, i < k.R && k.ids[i] == id);
      if (threadIdx.x % kWarp == 0) hits[threadIdx.x / kWarp] = own;
      __syncthreads();
      unsigned any = 0;
      for (const unsigned of_warp : hits) any |= of_warp;
      for (Index c = threadIdx.x; any != 0 && c < k.C; c += blockDim.x) {
        float sum = read(row, c);
        for (int w = 0; w < kThreads / kWarp; ++w)
          for (unsigned left = hits[w], bit = 0; left != 0; left >>= 1, ++bit)
            if (left & 1) sum += read(k.dy, (from + kWarp * w + bit) * k.C + c);
        write(row, c, sum);
      }
      __syncthreads();  // before the next window is looked at
    }
  }
}

}  // namespace

void run(const EmbeddingFwd& k) { launch_kernel(for_elements(k.R * k.C), embedding_fwd, k); }

void run(const EmbeddingBwd& k) {
  if (!k.dtable) return;
  if (!k.dtable.add) run(SumFwd{.y = k.dtable, .x = nullptr, .outer = k.V * k.C, .n = 0, .inner = 1, .scale = 1});
  launch_kernel({blocks_for(k.R), kThreads}, embedding_bwd, k);
}

}  // namespace flexformer::cuda
