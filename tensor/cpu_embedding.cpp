// Rows of a table. The gradient is cut by columns, not by rows of the batch: a piece of work owns its columns of the
// whole table and takes the ids in order, so repeated ids neither collide nor change the order of the sums.
#include <cstring>

#include "tensor/cpu_loops.h"

namespace flexformer::cpu {

void run(const EmbeddingFwd& k) {
  parallel_for(k.R, grain_for(k.C), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r)
      std::memcpy(k.y + r * k.C, k.table + k.ids[r] * k.C, std::size_t(k.C) * sizeof(float));
  });
}

void run(const EmbeddingBwd& k) {
  if (!k.dtable) return;
  if (!k.dtable.add)
    parallel_for(k.V * k.C, 1 << 16, [&](Index begin, Index end) {
      std::memset(k.dtable.p + begin, 0, std::size_t(end - begin) * sizeof(float));
    });
  constexpr Index strip = 32;
  const Index strips = (k.C + strip - 1) / strip;
  parallel_for(strips, grain_for(k.R * strip), [&](Index begin, Index end) {
    const Index from = begin * strip, width = std::min(end * strip, k.C) - from;
    for (Index r = 0; r < k.R; ++r) {
      const Index id = k.ids[r];
      if (id == k.padding) continue;
      const GradOut row{k.dtable.p + id * k.C + from, true};
      for_lanes(width, [&](Index i, Index m) { put(row, i, load_up_to(k.dy + r * k.C + from + i, m), m); });
    }
  });
}

}  // namespace flexformer::cpu
