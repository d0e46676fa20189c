// Matrix products of the shapes that transformers are made of, and those of the usual comparisons.
#pragma once
#include <span>
#include <string>

#include "tensor/kernels.h"
#include "tests/bench/bench_measure.h"
#include "train/util/json_file.h"
#include "train/util/log.h"

namespace flexformer::bench {

// NN: c = a b. NT: b is stored as its transpose [N,K]. TN: a is stored as its transpose [K,M].
enum class Layout { NN, NT, TN };
inline const char* name_of(Layout layout) { return layout == Layout::NN ? "NN" : layout == Layout::NT ? "NT" : "TN"; }

struct Product {
  Index M, N, K;
  Layout layout = Layout::NN;
  Index batch = 1;

  std::string name() const;  // "2048x512x512:NN:1", as in the name of its case
  double operations() const { return 2.0 * double(M * N * K) * double(batch); }
  bool is_large() const { return batch == 1 && N > 128; }  // the two groups that means are taken of
};

// Those of the table, the large ones first.
std::span<const Product> product_list();

struct ProductOperands {
  explicit ProductOperands(const Product& product);
  Gemm gemm(Precision precision = Precision::f32);  // into c

  Product product;
  Tensor a, b, c;  // [batch] matrices each, a and b as the layout says
};

Case product_case(const Product& product);

// The section "products": GFLOP/s of each, and how much that is of the multiply-add peak of the same moment.
Json products(Console& console);

}  // namespace flexformer::bench
