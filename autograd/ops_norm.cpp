// Norms over the last axis.
#include <cmath>

#include "autograd/op_util.h"

namespace flexformer {
namespace {

// Rows and channels of x; gamma and the like must be [C].
struct Rows {
  Index R, C;
};
Rows rows_of(const char* op, const Var& x) {
  check_input(op, "x", x);
  check(op, x.shape().rank() >= 1, "x needs a last axis to normalise, got a scalar");
  return {x.shape().numel(0, x.shape().rank() - 1), x.shape().last()};
}
void check_channels(const char* op, const char* name, const Var& v, const Var& x) {
  check_input(op, name, v);
  check(op, v.shape() == Shape{x.shape().last()}, name, " is ", v.shape(), ", the last axis of x ", x.shape(),
        " needs [", x.shape().last(), "]");
  check_same_device(op, x.device(), v.device());
}

}  // namespace

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float eps) {
  const auto [R, C] = rows_of("layer_norm", x);
  check_channels("layer_norm", "gamma", gamma, x);
  check_channels("layer_norm", "beta", beta, x);
  check("layer_norm", eps > 0, "eps = ", eps, " is not positive");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const auto statistic = [&, R = R] { return Tensor::empty({R}, DType::f32, x.device()); };
  Tensor mean = statistic(), mean_low = statistic(), rstd = statistic();
  launch(x.device(), LayerNormFwd{.y = y.values(),
                                  .mean = mean.data(),
                                  .mean_low = mean_low.data(),
                                  .rstd = rstd.data(),
                                  .x = x.value().values(),
                                  .gamma = gamma.value().data(),
                                  .beta = beta.value().data(),
                                  .R = R,
                                  .C = C,
                                  .eps = eps});
  return record("layer_norm", y, {&x, &gamma, &beta},
                [x, gamma, dbeta = beta.gradient(), mean, mean_low, rstd, R = R, C = C](const Tensor& dy) {
                  launch(x.device(), LayerNormBwd{.dx = x.gradient().out(),
                                                  .dgamma = gamma.gradient().out(),
                                                  .dbeta = dbeta.out(),
                                                  .dy = dy.values(),
                                                  .x = x.value().values(),
                                                  .gamma = gamma.value().data(),
                                                  .mean = mean.data(),
                                                  .mean_low = mean_low.data(),
                                                  .rstd = rstd.data(),
                                                  .R = R,
                                                  .C = C});
                });
}

Var rms_norm(const Var& x, const Var& gamma, float eps) {
  const auto [R, C] = rows_of("rms_norm", x);
  if (gamma.defined()) check_channels("rms_norm", "gamma", gamma, x);
  check("rms_norm", eps >= 0, "eps = ", eps, " is negative");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device()), rstd = Tensor::empty({R}, DType::f32, x.device());
  launch(x.device(), RmsNormFwd{.y = y.values(),
                                .rstd = rstd.data(),
                                .x = x.value().values(),
                                .gamma = data_or_null(gamma),
                                .R = R,
                                .C = C,
                                .eps = eps});
  return record("rms_norm", y, {&x, &gamma}, [x, gamma, rstd, R = R, C = C](const Tensor& dy) {
    launch(x.device(), RmsNormBwd{.dx = x.gradient().out(),
                                  .dgamma = gamma.gradient().out(),
                                  .dy = dy.values(),
                                  .x = x.value().values(),
                                  .gamma = data_or_null(gamma),
                                  .rstd = rstd.data(),
                                  .R = R,
                                  .C = C});
  });
}

// |x| = sqrt(C) sqrt(mean(x^2)): an RMS norm without eps and with gamma = 1/sqrt(C).
Var l2_normalize(const Var& x) {
  const auto [R, C] = rows_of("l2_normalize", x);
  return rms_norm(x, Var(Tensor::full({C}, 1.0f / std::sqrt(float(C)), x.device())), 0);
}

}  // namespace flexformer
