#include "tests/bench/bench_products.h"

#include <memory>

#include "tests/bench/bench_machine.h"

namespace flexformer::bench {

std::string Product::name() const { return text(M, "x", N, "x", K, ":", name_of(layout), ":", batch); }

std::span<const Product> product_list() {
  static const Product list[] = {{2048, 512, 512},
                                 {2048, 2048, 512, Layout::NT},
                                 {2048, 512, 2048},
                                 {2048, 1536, 512, Layout::NT},
                                 {8192, 2048, 512},
                                 {2048, 512, 2048, Layout::TN},
                                 {1024, 1024, 1024},
                                 {2048, 2048, 2048},
                                 {64, 64, 512, Layout::NN, 256},
                                 {512, 512, 64, Layout::NT, 32},
                                 {512, 64, 512, Layout::NN, 32},
                                 {4096, 128, 128}};
  return list;
}

ProductOperands::ProductOperands(const Product& p)
    : product(p),
      a(random_tensor({p.batch, p.M, p.K}, 1)),
      b(random_tensor({p.batch, p.K, p.N}, 2)),
      c(Tensor::empty({p.batch, p.M, p.N}, DType::f32, target)) {}

Gemm ProductOperands::gemm(Precision precision) {
  const auto [M, N, K, layout, batch] = product;
  const bool at = layout == Layout::TN, bt = layout == Layout::NT;
  return {.c = {c.data(), false},
          .a = a.data(),
          .b = b.data(),
          .bias = nullptr,
          .M = M,
          .N = N,
          .K = K,
          .a_row = at ? 1 : K,
          .a_col = at ? M : 1,
          .b_row = bt ? 1 : N,
          .b_col = bt ? K : 1,
          .c_row = N,
          .batch = {1, batch},
          .a_batch = {0, M * K},
          .b_batch = {0, K * N},
          .c_batch = {0, M * N},
          .bf16 = precision == Precision::bf16};
}

Case product_case(const Product& product) {
  const auto prepare = [product]() -> Call {
    const auto operands = std::make_shared<ProductOperands>(product);
    return [operands] { launch(target, operands->gemm(precision())); };
  };
  return {"product:" + product.name(), product.operations(), 5, 0.02, prepare};
}

Json products(Console& console) {
  console.say("\nmatrix products      M      N      K  batch         GFLOP/s  of the peak    bf16  to f32");
  Json rows = Json::array();
  for (const Product& p : product_list()) {
    ProductOperands operands(p);
    const auto run = [&](Precision precision) {
      return Call([&, precision] { launch(Device::cpu, operands.gemm(precision)); });
    };
    const std::vector<double> seconds =
        medians_in_turns(5, 0.02, {Call(multiply_add_loop), run(Precision::f32), run(Precision::bf16)});
    const double peak = 1e-9 * multiply_add_loop() / seconds[0];
    const double rate = 1e-9 * p.operations() / seconds[1], bf16 = 1e-9 * p.operations() / seconds[2];
    console.say(cell(p.M, 22) + cell(p.N, 7) + cell(p.K, 7) + cell(p.batch, 7) + cell(name_of(p.layout), 5) +
                cell(rate, 1, 11) + cell(100 * rate / peak, 1, 12) + " %" + cell(bf16, 1, 8) + cell(bf16 / rate, 2, 8));
    rows.push_back({{"M", p.M},
                    {"N", p.N},
                    {"K", p.K},
                    {"batch", p.batch},
                    {"layout", name_of(p.layout)},
                    {"gflops", rate},
                    {"bf16_gflops", bf16},
                    {"peak_gflops", peak}});
  }
  return rows;
}

}  // namespace flexformer::bench
