#include "tensor/parallel.h"

namespace flexformer {
namespace {

int processors() {
#if defined(_OPENMP)
  return omp_get_num_procs();
#else
  return 1;
#endif
}

int& thread_count() {
  static int count = processors();
  return count;
}

}  // namespace

void set_threads(int count) {
  check("threads", count >= 0 && count <= 1024, count, " is not in 0 .. 1024");
#if defined(_OPENMP)
  thread_count() = count == 0 ? processors() : count;
#endif
}

int threads() { return thread_count(); }

}  // namespace flexformer
