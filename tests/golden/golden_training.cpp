// Golden cases of optimisers and schedules: twenty steps on a small problem, every one of them compared.
#include "nn/optim.h"
#include "nn/schedule.h"
#include "tests/golden/golden_runner.h"

namespace flexformer::golden {
namespace {

constexpr double step_limit = 1e-5;

// mean over rows of |1.5 tanh(X w^T + b) - Y|^2, plus 0.05 sum w^4
Var small_problem(const Var& X, const Var& Y, const Var& w, const Var& b) {
  const Var fit = mean(sum(square(1.5f * tanh(linear(X, w, b)) - Y), {1}));
  return fit + 0.05f * sum(square(square(w)));
}

OptimizerOptions options_of(const Case& golden) {
  OptimizerOptions options{.kind = OptimizerKind::adam,
                           .beta1 = float(golden.number("beta1", 0.9)),
                           .beta2 = float(golden.number("beta2", 0.999)),
                           .eps = float(golden.number("eps", 1e-8)),
                           .momentum = float(golden.number("momentum", 0)),
                           .nesterov = golden.flag("nesterov"),
                           .weight_decay = float(golden.number("weight_decay_l2", 0)),
                           .decay_all = true,
                           .kernel_lr = 1};
  if (golden.has_param("momentum")) options.kind = OptimizerKind::sgd;
  if (golden.has_param("weight_decay")) {
    options.kind = OptimizerKind::adamw;
    options.weight_decay = float(golden.number("weight_decay", 0));
  }
  return options;
}

Schedule schedule_of(const Case& golden) {
  Schedule schedule{.kind = ScheduleKind::constant,
                    .lr = golden.number("lr", 0),
                    .min_lr = golden.number("min_lr", 0),
                    .warmup = Index(golden.number("W", 0)),
                    .steps = Index(golden.number("T", 0))};
  if (golden.has_param("T"))
    schedule.kind = ScheduleKind::cosine;
  else if (golden.has_param("W"))
    schedule.kind = ScheduleKind::inverse_sqrt;
  return schedule;
}

void compare_curve(const Case& golden, const char* name, const Schedule& schedule, Verdict& verdict) {
  const auto& expected = golden.output(name).data;
  for (std::size_t t = 0; t < expected.size(); ++t)
    verdict.compare(text(name, " at step ", t + 1), schedule.at(Index(t) + 1), expected[t], step_limit);
}

}  // namespace

void run_optimizer(const Case& golden, Verdict& verdict) {
  const Device device = golden.device;
  Parameters parameters(device);
  const Var X(golden.input("X").floats(device)), Y(golden.input("Y").floats(device));
  const Var w = parameters.add({"w", Var(golden.input("w0").floats(device), true), true, false});
  const Var b = parameters.add({"b", Var(golden.input("b0").floats(device), true), true, false});
  Optimizer optimizer(parameters, options_of(golden));
  const Schedule schedule = schedule_of(golden);
  const Index steps = golden.output("loss_before_step").shape.numel();
  for (Index t = 0; t < steps; ++t) {
    parameters.clear_grads();
    Tape tape;
    const Var loss = small_problem(X, Y, w, b);
    tape.backward(loss);
    const double lr = schedule.at(t + 1), norm = optimizer.step(lr, golden.number("clip", 0));
    const auto at = [t](const char* what) { return text(what, " of step ", t); };
    const auto expected = [&](const char* what) { return golden.output(what).data.at(std::size_t(t)); };
    verdict.compare(at("loss"), double(loss.value().item()), expected("loss_before_step"), step_limit);
    verdict.compare(at("norm"), norm, expected("grad_norm_before_clip"), step_limit);
    verdict.compare(at("rate"), lr, expected("lr"), step_limit);
    verdict.compare(at("w"), w.value(), golden.output("w_after_step").part(t), step_limit);
    verdict.compare(at("b"), b.value(), golden.output("b_after_step").part(t), step_limit);
  }
}

void run_schedules(const Case& golden, Verdict& verdict) {
  for (const auto& [name, kind] :
       {std::pair{"invsqrt", ScheduleKind::inverse_sqrt}, std::pair{"cosine", ScheduleKind::cosine}}) {
    if (!golden.outputs.count(name)) continue;
    const Json& params = json_member(golden.params, name, golden.name);
    const auto number = [&, key = name](const char* param, double otherwise) {
      return params.contains(param) ? number_from_json(params.at(param), key) : otherwise;
    };
    const Schedule schedule{.kind = kind,
                            .lr = number("base", 0),
                            .min_lr = number("min_lr", 0),
                            .warmup = Index(number("W", 0)),
                            .steps = Index(number("T", 0))};
    compare_curve(golden, name, schedule, verdict);
  }
}

}  // namespace flexformer::golden
