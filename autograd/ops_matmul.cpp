// Matrix products and their gradients, which are matrix products again: for c = a b, da = dc b^T and db = a^T dc.
// Transposes cost nothing here: they are strides of the Gemm kernel.
#include "autograd/op_util.h"

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

void multiply(Device device, GradOut c, const Operand& to, ValuesIn a, const Operand& x, ValuesIn b, const Operand& y) {
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
         .c_row = to.row,
         .bf16 = precision() == Precision::bf16};
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
void gradient_of(Device device, GradOut dx, const Operand& stored, const Operand& full, ValuesIn left, const Operand& l,
                 ValuesIn right, const Operand& r) {
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
  multiply(device, {each.values(), false}, to, left, l, right, r);
  const bool sum0 = stored.batches[0] != full.batches[0], sum1 = stored.batches[1] != full.batches[1];
  if (sum1 && (sum0 || full.batches[0] == 1)) {  // one sum over both
    launch(device, SumFwd{.y = dx,
                          .x = each.values(),
                          .outer = 1,
                          .n = full.batches[0] * full.batches[1],
                          .inner = matrix,
                          .scale = 1});
  } else if (sum1) {
    launch(
        device,
        SumFwd{
            .y = dx, .x = each.values(), .outer = full.batches[0], .n = full.batches[1], .inner = matrix, .scale = 1});
  } else {
    launch(device, SumFwd{.y = dx,
                          .x = each.values(),
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

  Tensor c = Tensor::empty(shape, common_dtype(a, b), a.device());
  multiply(a.device(), {c.values(), false}, full, a.value().values(), x, b.value().values(), y);
  return record("matmul", c, {&a, &b}, [a, b, x, y, full, transpose_a, transpose_b](const Tensor& dc) {
    // The gradient lies in memory as its operand does, so a transposed operand gets the transposed product.
    const Device device = a.device();
    const ValuesIn pa = a.value().values(), pb = b.value().values();
    if (transpose_a)
      gradient_of(device, a.gradient().out(), swapped(x), full, pb, y, dc.values(), swapped(full));
    else
      gradient_of(device, a.gradient().out(), x, full, dc.values(), full, pb, swapped(y));
    if (transpose_b)
      gradient_of(device, b.gradient().out(), swapped(y), full, dc.values(), swapped(full), pa, x);
    else
      gradient_of(device, b.gradient().out(), y, full, pa, swapped(x), dc.values(), full);
  });
}

Gemm product(GradOut c, ValuesIn a, bool a_transposed, ValuesIn b, bool b_transposed, Index M, Index N, Index K) {
  return {.c = c,
          .a = a,
          .b = b,
          .bias = nullptr,
          .M = M,
          .N = N,
          .K = K,
          .a_row = a_transposed ? 1 : K,
          .a_col = a_transposed ? M : 1,
          .b_row = b_transposed ? 1 : N,
          .b_col = b_transposed ? K : 1,
          .c_row = N,
          .bf16 = precision() == Precision::bf16};
}

LinearSizes linear_sizes(CheckedOp op, const Var& x, const Var& W, const Var& b) {
  check_input(op, "x", x);
  check_input(op, "W", W);
  check(op, W.shape().rank() == 2, "W must be [outputs, inputs], got ", W.shape());
  check(op, x.shape().rank() >= 1, "x must have at least one axis");
  const Index O = W.size(0), I = W.size(1);
  check(op, x.shape().last() == I, "x ", x.shape(), " ends in ", x.shape().last(), ", but W ", W.shape(), " takes ", I,
        " inputs");
  check(op, !b.defined() || b.shape() == Shape{O}, "bias ", b.defined() ? text(b.shape()) : "", " for ", O, " outputs");
  return {x.shape().numel(0, x.shape().rank() - 1), O, I};
}

namespace {

// The residual, in the result's format.
Var fitting(CheckedOp op, const Var& residual, const Tensor& y) {
  if (!residual.defined()) return residual;
  check(op, residual.shape() == y.shape(), "the residual is ", residual.shape(), ", the result ", y.shape());
  return cast(residual, y.dtype());
}

void sum_rows(Device device, GradOut db, ValuesIn dy, Index R, Index O) {
  if (db) launch(device, SumFwd{.y = db, .x = dy, .outer = 1, .n = R, .inner = O, .scale = 1});
}

// Gradients of y = x W^T + b for x [R,I], W [O,I].
void linear_bwd(ValuesIn dy, ValuesIn x, const Var& W, GradOut dx, GradOut dW, GradOut db, Index R, Index O, Index I) {
  const Device device = W.device();
  if (dx) launch(device, product(dx, dy, false, W.value().values(), false, R, I, O));  // dx = dy W
  if (dW) launch(device, product(dW, dy, true, x, false, O, I, R));                    // dW = dy^T x
  sum_rows(device, db, dy, R, O);
}

}  // namespace

Var linear(const Var& x, const Var& W, const Var& b, const Var& given_residual) {
  const auto [R, O, I] = linear_sizes("linear", x, W, b);
  Tensor y = Tensor::empty(x.shape().with(-1, O), x.dtype(), x.device());
  const Var residual = fitting("linear", given_residual, y);
  Gemm g = product({y.values()}, x.value().values(), false, W.value().values(), true, R, O, I);
  g.bias = data_or_null(b);
  g.residual = values_or_null(residual);
  launch(x.device(), g);
  return record("linear", y, {&x, &W, &b, &residual},
                [x, W, db = b.gradient(), dr = residual.gradient(), R = R, O = O, I = I](const Tensor& dy) {
                  if (const GradOut out = dr.out()) pass_gradient(dy.device(), out, dy.values(), R * O);
                  const GradOut dx = x.gradient().out(), dW = W.gradient().out();
                  linear_bwd(dy.values(), x.value().values(), W, dx, dW, db.out(), R, O, I);
                });
}

Var mlp(const Var& x, const Var& W1, const Var& b1, const Var& W2, const Var& b2, const Var& given_residual) {
  const auto [R, F, I] = linear_sizes("mlp", x, W1, b1);
  Tensor saved = Tensor::empty({R, F}, x.dtype(), x.device()), a = Tensor::empty({R, F}, x.dtype(), x.device());
  const Index O = linear_sizes("mlp", Var(a), W2, b2).O;
  Tensor y = Tensor::empty(x.shape().with(-1, O), x.dtype(), x.device());
  const Var residual = fitting("mlp", given_residual, y);
  Gemm up = product({a.values()}, x.value().values(), false, W1.value().values(), true, R, F, I);
  up.bias = data_or_null(b1);
  up.epilogue = Epilogue::gelu;
  up.saved = saved.values();
  launch(x.device(), up);
  Gemm down = product({y.values()}, a.values(), false, W2.value().values(), true, R, O, F);
  down.bias = data_or_null(b2);
  down.residual = values_or_null(residual);
  launch(x.device(), down);
  return record("mlp", y, {&x, &W1, &b1, &W2, &b2, &residual},
                [x, W1, db1 = b1.gradient(), W2, db2 = b2.gradient(), dr = residual.gradient(), saved, R = R, F = F,
                 I = I, O](const Tensor& dy) {
                  const Device device = dy.device();
                  if (const GradOut out = dr.out()) pass_gradient(device, out, dy.values(), R * O);
                  Tensor du = Tensor::empty({R, F}, x.dtype(), device), hidden = saved;
                  Gemm down = product({du.values()}, dy.values(), false, W2.value().values(), false, R, F, O);
                  down.epilogue = Epilogue::gelu_bwd;
                  down.saved = hidden.values();  // from here on it holds gelu's values
                  launch(device, down);
                  if (const GradOut dW2 = W2.gradient().out())
                    launch(device, product(dW2, dy.values(), true, hidden.values(), false, O, F, R));
                  sum_rows(device, db2.out(), dy.values(), R, O);
                  const GradOut dx = x.gradient().out(), dW1 = W1.gradient().out();
                  linear_bwd(du.values(), x.value().values(), W1, dx, dW1, db1.out(), R, F, I);
                });
}

}  // namespace flexformer
