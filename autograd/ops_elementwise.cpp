// Elementwise ops. An op whose derivative is constant (add, sub, scale, shift) saves no values for the backward pass.
#include "autograd/op_util.h"

namespace flexformer {
namespace {

Var unary(const char* op, Unary kind, const Var& x, float a = 0) {
  check_input(op, "x", x);
  const Index n = x.shape().numel();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  launch(x.device(), UnaryFwd{.y = y.values(), .x = x.value().values(), .n = n, .op = kind, .a = a});
  const bool constant_slope = kind == Unary::scale || kind == Unary::shift;
  return record(
      op, y, {&x}, [dx = x.gradient(), saved = constant_slope ? Tensor() : x.value(), n, kind, a](const Tensor& dy) {
        launch(dy.device(),
               UnaryBwd{.dx = dx.out(), .dy = dy.values(), .x = values_or_null(saved), .n = n, .op = kind, .a = a});
      });
}

Var binary(const char* op, Binary kind, const Var& a, const Var& b) {
  check_input(op, "a", a);
  check_input(op, "b", b);
  check_same_device(op, a.device(), b.device());
  Tensor y = Tensor::empty(broadcast_shape(op, a.shape(), b.shape()), common_dtype(a, b), a.device());
  const Broadcast box = broadcast_box(y.shape(), a.shape(), b.shape());
  launch(a.device(),
         BinaryFwd{.y = y.values(), .a = a.value().values(), .b = b.value().values(), .shape = box, .op = kind});
  const bool constant_slope = kind == Binary::add || kind == Binary::sub;
  return record(op, y, {&a, &b},
                [da = a.gradient(), db = b.gradient(), a = constant_slope ? Tensor() : a.value(),
                 b = constant_slope ? Tensor() : b.value(), box, kind](const Tensor& dy) {
                  launch(dy.device(), BinaryBwd{.da = da.out(),
                                                .db = db.out(),
                                                .dy = dy.values(),
                                                .a = values_or_null(a),
                                                .b = values_or_null(b),
                                                .shape = box,
                                                .op = kind});
                });
}

void check_condition(const char* op, const Tensor& condition, const Shape& shape, Device device) {
  check_ints(op, "the condition", condition);
  check(op, condition.shape() == shape, "the condition is ", condition.shape(), ", the values are ", shape);
  check_same_device(op, condition.device(), device);
}

}  // namespace

Shape broadcast_shape(CheckedOp op, const Shape& a, const Shape& b) {
  Shape out;
  const int rank = std::max(a.rank(), b.rank());
  for (int i = -rank; i < 0; ++i) {
    const Index x = -i <= a.rank() ? a[i] : 1, y = -i <= b.rank() ? b[i] : 1;
    check(op, x == y || x == 1 || y == 1, "shapes ", a, " and ", b, " do not broadcast: sizes ", x, " and ", y,
          " at axis ", i, " differ and neither is 1");
    out.append(x == 1 ? y : x);
  }
  return out;
}

Broadcast broadcast_box(const Shape& out, const Shape& a, const Shape& b) {
  Broadcast box{{1, 1, 1, 1}, {}, {}};
  Index a_stride = 1, b_stride = 1;
  for (int i = -1; i >= -out.rank(); --i) {
    const Index x = -i <= a.rank() ? a[i] : 1, y = -i <= b.rank() ? b[i] : 1;
    box.size[4 + i] = out[i];
    box.a[4 + i] = x == 1 ? 0 : a_stride;
    box.b[4 + i] = y == 1 ? 0 : b_stride;
    a_stride *= x;
    b_stride *= y;
  }
  return box;
}

Var add(const Var& a, const Var& b) { return binary("add", Binary::add, a, b); }
Var sub(const Var& a, const Var& b) { return binary("sub", Binary::sub, a, b); }
Var mul(const Var& a, const Var& b) { return binary("mul", Binary::mul, a, b); }
Var div(const Var& a, const Var& b) { return binary("div", Binary::div, a, b); }
Var maximum(const Var& a, const Var& b) { return binary("maximum", Binary::maximum, a, b); }
Var minimum(const Var& a, const Var& b) { return binary("minimum", Binary::minimum, a, b); }

Var scale(const Var& x, float factor) { return unary("scale", Unary::scale, x, factor); }
Var shift(const Var& x, float amount) { return unary("shift", Unary::shift, x, amount); }
Var neg(const Var& x) { return unary("neg", Unary::scale, x, -1); }
Var exp(const Var& x) { return unary("exp", Unary::exp, x); }
Var log(const Var& x) { return unary("log", Unary::log, x); }
Var sqrt(const Var& x) { return unary("sqrt", Unary::sqrt, x); }
Var rsqrt(const Var& x) { return unary("rsqrt", Unary::rsqrt, x); }
Var sin(const Var& x) { return unary("sin", Unary::sin, x); }
Var cos(const Var& x) { return unary("cos", Unary::cos, x); }
Var tanh(const Var& x) { return unary("tanh", Unary::tanh, x); }
Var sigmoid(const Var& x) { return unary("sigmoid", Unary::sigmoid, x); }
Var relu(const Var& x) { return unary("relu", Unary::relu, x); }
Var elu(const Var& x) { return unary("elu", Unary::elu, x); }
Var gelu(const Var& x) { return unary("gelu", Unary::gelu_tanh, x); }
Var gelu_erf(const Var& x) { return unary("gelu_erf", Unary::gelu_erf, x); }
Var silu(const Var& x) { return unary("silu", Unary::silu, x); }
Var softplus(const Var& x) { return unary("softplus", Unary::softplus, x); }
Var square(const Var& x) { return unary("square", Unary::square, x); }
Var abs(const Var& x) { return unary("abs", Unary::abs, x); }
Var pow(const Var& x, float exponent) { return unary("pow", Unary::power, x, exponent); }

Var where(const Tensor& condition, const Var& a, const Var& b) {
  check_input("where", "a", a);
  check_input("where", "b", b);
  check("where", a.shape() == b.shape(), "a is ", a.shape(), ", b is ", b.shape(), "; expand one of them");
  check_same_device("where", a.device(), b.device());
  check_condition("where", condition, a.shape(), a.device());
  const Index n = a.shape().numel();
  Tensor y = Tensor::empty(a.shape(), common_dtype(a, b), a.device());
  launch(a.device(), WhereFwd{.y = y.values(),
                              .condition = condition.ints(),
                              .a = a.value().values(),
                              .b = b.value().values(),
                              .value = 0,
                              .n = n});
  return record("where", y, {&a, &b}, [condition, da = a.gradient(), db = b.gradient(), n](const Tensor& dy) {
    launch(dy.device(),
           WhereBwd{.da = da.out(), .db = db.out(), .dy = dy.values(), .condition = condition.ints(), .n = n});
  });
}

Var masked_fill(const Var& x, const Tensor& mask, float value) {
  check_input("masked_fill", "x", x);
  check_condition("masked_fill", mask, x.shape(), x.device());
  const Index n = x.shape().numel();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  launch(x.device(),
         WhereFwd{
             .y = y.values(), .condition = mask.ints(), .a = nullptr, .b = x.value().values(), .value = value, .n = n});
  return record("masked_fill", y, {&x}, [mask, dx = x.gradient(), n](const Tensor& dy) {
    launch(dy.device(), WhereBwd{.da = {}, .db = dx.out(), .dy = dy.values(), .condition = mask.ints(), .n = n});
  });
}

Var cast(const Var& x, DType dtype) {
  check_input("cast", "x", x);
  check("cast", dtype == DType::f32 || (dtype == DType::bf16 && x.device() == Device::cuda), name_of(dtype),
        " is no format of activations here; they are f32 or, on a GPU, bf16");
  if (dtype == x.dtype()) return x;
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  pass_gradient(x.device(), {y.values()}, x.value().values(), y.numel());
  return record("cast", y, {&x}, [dx = x.gradient()](const Tensor& dy) {
    pass_gradient(dy.device(), dx.out(), dy.values(), dy.numel());
  });
}

Var dropout(const Var& x, float p, RandomKey key, const Tensor& step) {
  check_input("dropout", "x", x);
  if (step.defined()) {
    check_ints("dropout", "the step", step);
    check("dropout", step.numel() == 1, "the step is ", step.shape(), ", not one number");
    check_same_device("dropout", x.device(), step.device());
  }
  check("dropout", p >= 0 && p < 1, "p = ", p, " is not in [0, 1)");
  if (p == 0) return x;
  const Index n = x.shape().numel();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const auto mask = [p, key, step](GradOut y, ValuesIn x, Index n) {
    return Dropout{.y = y, .x = x, .n = n, .p = p, .key = key, .step = step.defined() ? step.ints() : nullptr};
  };
  launch(x.device(), mask({y.values()}, x.value().values(), n));
  return record("dropout", y, {&x}, [dx = x.gradient(), mask, n](const Tensor& dy) {
    launch(dy.device(), mask(dx.out(), dy.values(), n));
  });
}

}  // namespace flexformer
