// Matrix products and their gradients, which are matrix products again: for c = a b, da = dc b^T and db = a^T dc.
// Transposes cost nothing here: they are strides of the Gemm kernel.
#include "autograd/ops.h"

namespace flexformer {
namespace {

// One operand of a batched product: a matrix [rows, cols] per batch, batches [2] with stride 0 where broadcast.
struct Operand {
  Index rows, cols;            // after the transpose asked for
  Index row, col;              // strides
  Index batches[2], batch[2];  // sizes and strides
  Index count() const { return batches[0] * batches[1] * rows * cols; }
};

Operand operand(const Shape& shape, bool transposed) {
  check("matmul", shape.rank() >= 2, "needs matrices, got shape ", shape, "; reshape a vector to [1,n] or [n,1]");
  const Index last = shape[-1], before = shape[-2];
  Operand x{
      transposed ? last : before, transposed ? before : last, transposed ? 1 : last, transposed ? last : 1, {}, {}};
  x.batches[1] = shape.rank() >= 3 ? shape[-3] : 1;
  x.batches[0] = shape.rank() >= 4 ? shape[-4] : 1;
  x.batch[1] = last * before;
  x.batch[0] = x.batch[1] * x.batches[1];
  return x;
}

Operand swapped(Operand x) {
  std::swap(x.rows, x.cols);
  std::swap(x.row, x.col);
  return x;
}

void multiply(Device device, GradOut c, const Operand& to, const float* a, const Operand& x, const float* b,
              const Operand& y) {
  Gemm g{.c = c,
         .a = a,
         .b = b,
         .bias = nullptr,
         .M = x.rows,
         .N = y.cols,
         .K = x.cols,
         .a_row = x.row,
         .a_col = x.col,
         .b_row = y.row,
         .b_col = y.col,
         .c_row = to.row};
  for (int i = 0; i < 2; ++i) {
    g.batch[i] = to.batches[i];
    g.a_batch[i] = x.batches[i] == 1 ? 0 : x.batch[i];
    g.b_batch[i] = y.batches[i] == 1 ? 0 : y.batch[i];
    g.c_batch[i] = to.batch[i];
  }
  launch(device, g);
}

// dx for an operand x that is stored as `stored`: the product left * right over all batches of `full`, summed over the
// batches along which x was broadcast.
void gradient_of(Device device, GradOut dx, const Operand& stored, const Operand& full, const float* left,
                 const Operand& l, const float* right, const Operand& r) {
  if (!dx) return;
  Operand to = stored;
  to.row = stored.cols;  // dx has the layout of x: `stored` is x as it lies in memory
  bool broadcast = false;
  for (int i = 0; i < 2; ++i) broadcast = broadcast || stored.batches[i] != full.batches[i];
  if (!broadcast) return multiply(device, dx, to, left, l, right, r);
  const Index matrix = stored.rows * stored.cols;
  for (int i = 0; i < 2; ++i) to.batches[i] = full.batches[i];
  to.batch[1] = matrix;
  to.batch[0] = matrix * to.batches[1];
  Tensor each = Tensor::empty({to.batches[0], to.batches[1], matrix}, DType::f32, device);
  multiply(device, {each.data(), false}, to, left, l, right, r);
  const bool sum0 = stored.batches[0] != full.batches[0], sum1 = stored.batches[1] != full.batches[1];
  if (sum1 && (sum0 || full.batches[0] == 1)) {  // one sum over both
    launch(device, SumFwd{.y = dx,
                          .x = each.data(),
                          .outer = 1,
                          .n = full.batches[0] * full.batches[1],
                          .inner = matrix,
                          .scale = 1});
  } else if (sum1) {
    launch(
        device,
        SumFwd{.y = dx, .x = each.data(), .outer = full.batches[0], .n = full.batches[1], .inner = matrix, .scale = 1});
  } else {
    launch(device, SumFwd{.y = dx,
                          .x = each.data(),
                          .outer = 1,
                          .n = full.batches[0],
                          .inner = full.batches[1] * matrix,
                          .scale = 1});
  }
}

}  // namespace

Var matmul(const Var& a, const Var& b, bool transpose_a, bool transpose_b) {
  const Operand x = operand(a.shape(), transpose_a), y = operand(b.shape(), transpose_b);
  check("matmul", x.cols == y.rows, "inner sizes differ: a ", a.shape(), transpose_a ? " transposed" : "", ", b ",
        b.shape(), transpose_b ? " transposed" : "", "; transpose one?");
  Operand full{x.rows, y.cols, y.cols, 1, {}, {}};
  Shape shape;
  const int leading = std::max(a.shape().rank(), b.shape().rank()) - 2;
  for (int i = 2 - leading; i < 2; ++i) {
    check("matmul", x.batches[i] == y.batches[i] || x.batches[i] == 1 || y.batches[i] == 1,
          "leading sizes cannot be broadcast: a ", a.shape(), ", b ", b.shape());
    shape.append(x.batches[i] == 1 ? y.batches[i] : x.batches[i]);
  }
  for (int i = 0; i < 2; ++i) full.batches[i] = x.batches[i] == 1 ? y.batches[i] : x.batches[i];
  shape.append(full.rows);
  shape.append(full.cols);
  full.batch[1] = full.rows * full.cols;
  full.batch[0] = full.batch[1] * full.batches[1];

  Tensor c = Tensor::empty(shape, DType::f32, a.device());
  multiply(a.device(), {c.data(), false}, full, a.value().data(), x, b.value().data(), y);
  return record("matmul", c, {&a, &b}, [a, b, x, y, full, transpose_a, transpose_b](const Tensor& dc) {
    // The gradient lies in memory as its operand does, so a transposed operand gets the transposed product.
    const Device device = a.device();
    const float *pa = a.value().data(), *pb = b.value().data();
    if (transpose_a)
      gradient_of(device, a.gradient().out(), swapped(x), full, pb, y, dc.data(), swapped(full));
    else
      gradient_of(device, a.gradient().out(), x, full, dc.data(), full, pb, swapped(y));
    if (transpose_b)
      gradient_of(device, b.gradient().out(), swapped(y), full, dc.data(), swapped(full), pa, x);
    else
      gradient_of(device, b.gradient().out(), y, full, pa, swapped(x), dc.data(), full);
  });
}

Var linear(const Var& x, const Var& W, const Var& b) {
  check("linear", W.shape().rank() == 2, "W must be [outputs, inputs], got ", W.shape());
  check("linear", x.shape().rank() >= 1, "x must have at least one axis");
  const Index O = W.size(0), I = W.size(1);
  check("linear", x.shape().last() == I, "x ", x.shape(), " ends in ", x.shape().last(), ", but W ", W.shape(),
        " takes ", I, " inputs");
  check("linear", !b.defined() || b.shape() == Shape{O}, "bias ", b.defined() ? text(b.shape()) : "", " for ", O,
        " outputs");
  const Index R = x.shape().numel(0, x.shape().rank() - 1);
  Tensor y = Tensor::empty(x.shape().with(-1, O), DType::f32, x.device());
  launch(x.device(), Gemm{.c = {y.data(), false},
                          .a = x.value().data(),
                          .b = W.value().data(),
                          .bias = b.defined() ? b.value().data() : nullptr,
                          .M = R,
                          .N = O,
                          .K = I,
                          .a_row = I,
                          .a_col = 1,
                          .b_row = 1,
                          .b_col = I,
                          .c_row = O});
  return record("linear", y, {&x, &W, &b}, [x, W, db = b.gradient(), R, O, I](const Tensor& dy) {
    const Device device = x.device();
    if (const GradOut dx = x.gradient().out())  // dx = dy W
      launch(device, Gemm{.c = dx,
                          .a = dy.data(),
                          .b = W.value().data(),
                          .bias = nullptr,
                          .M = R,
                          .N = I,
                          .K = O,
                          .a_row = O,
                          .a_col = 1,
                          .b_row = I,
                          .b_col = 1,
                          .c_row = I});
    if (const GradOut dW = W.gradient().out())  // dW = dy^T x
      launch(device, Gemm{.c = dW,
                          .a = dy.data(),
                          .b = x.value().data(),
                          .bias = nullptr,
                          .M = O,
                          .N = I,
                          .K = R,
                          .a_row = 1,
                          .a_col = O,
                          .b_row = I,
                          .b_col = 1,
                          .c_row = I});
    if (const GradOut out = db.out())
      launch(device, SumFwd{.y = out, .x = dy.data(), .outer = 1, .n = R, .inner = O, .scale = 1});
  });
}

}  // namespace flexformer
