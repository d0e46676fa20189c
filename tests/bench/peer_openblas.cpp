// peer_openblas: our matrix products and OpenBLAS's in one process, in turns, on the same operands. One line of JSON
// per product, after one that says which OpenBLAS it is. The library is opened at run time, so that building this needs
// nothing of it. Used by tests/bench/bench_peers.py, which says by OPENBLAS_CORETYPE which of its kernels to run.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "tensor/parallel.h"
#include "tests/bench/bench_products.h"
#include "train/util/program.h"

namespace flexformer::bench {
namespace {

struct OpenBlas {
  // CBLAS, row-major: order, transposes of a and b, M N K, alpha, a, lda, b, ldb, beta, c, ldc.
  void (*sgemm)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  void (*set_threads)(int);
  const char* (*core)();
  const char* (*config)();
};

template <class Function> void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (!function) fail("libopenblas.so.0 has no ", name);
}

// All null where there is none.
OpenBlas open_openblas() {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  OpenBlas blas{};
  if (!library) return blas;
  find(library, "cblas_sgemm", blas.sgemm);
  find(library, "openblas_set_num_threads", blas.set_threads);
  find(library, "openblas_get_corename", blas.core);
  find(library, "openblas_get_config", blas.config);
  return blas;
}

// The product by OpenBLAS into `c`. It knows no batches: its threads share a matrix, or matrices are shared among ours.
Call openblas_call(const OpenBlas& blas, const ProductOperands& operands, Tensor& c) {
  constexpr int row_major = 101, plain = 111, transposed = 112;
  blas.set_threads(operands.product.batch == 1 ? threads() : 1);
  return [p = operands.product, sgemm = blas.sgemm, a = operands.a.data(), b = operands.b.data(), y = c.data()] {
    const Index M = p.M, N = p.N, K = p.K;
    const bool at = p.layout == Layout::TN, bt = p.layout == Layout::NT;
    parallel_for(p.batch, 1, [&](Index i, Index) {
      sgemm(row_major, at ? transposed : plain, bt ? transposed : plain, int(M), int(N), int(K), 1, a + i * M * K,
            int(at ? M : K), b + i * K * N, int(bt ? K : N), 0, y + i * M * N, int(N));
    });
  };
}

double largest_difference(const Tensor& x, const Tensor& y) {
  double largest = 0;
  for (Index i = 0; i < x.numel(); ++i) {
    const double difference = std::fabs(double(x.data()[i]) - double(y.data()[i]));
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

Json compare(const OpenBlas& blas, const Product& product, int rounds) {
  ProductOperands operands(product);
  Tensor theirs = Tensor::empty(operands.c.shape());
  const std::vector<double> seconds = medians_in_turns(
      rounds, 0.02, {[&] { launch(Device::cpu, operands.gemm()); }, openblas_call(blas, operands, theirs)});
  // Operands are N(0, 1): a sum of K products is about sqrt(K) large, and some 1e-6 of that is lost in floats.
  const double difference = largest_difference(operands.c, theirs), limit = 4e-5 * std::sqrt(double(product.K));
  if (!(difference <= limit))
    fail("product:", product.name(), ": ours and OpenBLAS's differ by ", difference, ", more than ", limit);
  const double operations = 1e-9 * product.operations();
  return {{"case", "product:" + product.name()},
          {"group", product.is_large() ? "large" : "small or batched"},
          {"ours_gflops", operations / seconds[0]},
          {"openblas_gflops", operations / seconds[1]},
          {"largest_difference", difference}};
}

int run(Options& options) {
  use_machine_options(options);
  const OpenBlas blas = open_openblas();
  if (!blas.sgemm) {
    std::cerr << "error: OpenBLAS (libopenblas.so.0) is missing; on Debian: apt-get install libopenblas-dev"
              << std::endl;
    return 77;  // as checks do that this machine cannot make
  }
  std::cout << dump_json({{"config", blas.config()}, {"core", blas.core()}, {"threads", threads()}}) << std::endl;
  for (const Product& product : product_list())
    std::cout << dump_json(compare(blas, product, int(options.integer("rounds")))) << std::endl;
  return 0;
}

}  // namespace
}  // namespace flexformer::bench

int main(int argc, char** argv) {
  using namespace flexformer;
  Options options("peer_openblas", "Compares our matrix products with OpenBLAS's.");
  options.add_integer("rounds", 15, {.min = 9, .max = 1000, .help = "of at least 20 ms each, for ours and for theirs"});
  add_machine_options(options);
  options.set("threads", std::int64_t(1));
  return run_program(options, argc, argv, bench::run);
}
