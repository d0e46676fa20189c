// Gradient check: the tape's gradients against finite differences of the function itself. It needs no reference but the
// forward pass, so it will do for a whole layer or model as well as for an op.
//
//   const auto norm = [](const std::vector<Var>& x) { return layer_norm(x[0], x[1], x[2]); };
//   const Gradcheck report = gradcheck(norm, inputs);
//   CHECK_MESSAGE(report.ok, report.message);
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/ops.h"

namespace flexformer {

struct GradcheckOptions {
  // Inputs move by +-step. Central differences are wrong by step^2 (curvature) and by 1e-7/step (f32 rounding).
  float step = 1e-2f;
  double tolerance = 1e-3;  // largest accepted error, see Gradcheck
  int directions = 3;       // random directions, over all inputs together
  int coordinates = 4;      // then single coordinates of each input: the first, the last and random ones
  std::uint64_t seed = 1;   // of the directions, the coordinates and the weights of y
};

struct Gradcheck {
  bool ok = true;
  // error = |slope - difference| / (|slope| + |difference| + rms of the gradient / 10 + 1e-4): slope is the gradient
  // along the move, difference what the loss really did, both per unit of length.
  double worst = 0;
  std::string message;  // where the worst error was, and both numbers
};

// Checks the gradients of loss = sum_i w_i y_i, y = f(inputs), w fixed random weights of either sign, with respect to
// every input that requires a gradient. The forward pass runs in f32, the loss is summed in double precision. f must
// be a function: the same inputs must give the same y (dropout: the same key). Inputs are left as they were, without
// gradients. Throws Error if no input requires a gradient or y depends on none that does.
Gradcheck gradcheck(const std::function<Var(const std::vector<Var>&)>& f, const std::vector<Var>& inputs,
                    const GradcheckOptions& options = {});

}  // namespace flexformer
