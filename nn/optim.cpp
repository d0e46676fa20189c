// The optimisers. All sums over gradients are in double: the squares of large but harmless gradients are no floats.
#include "nn/optim.h"

#include <algorithm>
#include <cmath>

namespace flexformer {

OptimizerKind optimizer_from(const std::string& name) {
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "adam") return OptimizerKind::adam;
  if (name == "sgd") return OptimizerKind::sgd;
  fail("there is no optimizer '", name, "'; there are adamw, adam, sgd");
}

Optimizer::Optimizer(const Parameters& parameters, const OptimizerOptions& options)
    : options_(options), steps_(Tensor::zeros({1}, DType::i32)) {
  for (const Parameter& parameter : parameters) {
    if (!parameter.var.requires_grad()) continue;
    const auto zeros = [&] { return Tensor::zeros(parameter.var.shape(), DType::f32, parameter.var.device()); };
    slots_.push_back({parameter, zeros(), options.kind == OptimizerKind::sgd ? Tensor() : zeros()});
  }
}

std::vector<double> squared_norms(const std::vector<Tensor>& tensors) {
  std::vector<double> sums(tensors.size());
  std::vector<SquaredNorms::Array> arrays;
  for (const Tensor& x : tensors) arrays.push_back({x.data(), x.numel()});
  if (tensors.empty()) return sums;
  launch(tensors[0].device(),
         SquaredNorms{.sums = sums.data(), .arrays = arrays.data(), .count = Index(arrays.size())});
  return sums;
}

double Optimizer::global_norm() const {
  std::vector<Tensor> gradients;
  std::vector<const std::string*> names;
  for (const Slot& slot : slots_) {
    if (!changes(slot)) continue;
    gradients.push_back(slot.parameter.var.grad());
    names.push_back(&slot.parameter.name);
  }
  double sum = 0;
  const std::vector<double> squares = squared_norms(gradients);
  for (std::size_t i = 0; i < squares.size(); ++i) {
    if (!std::isfinite(squares[i])) throw NonFiniteGradient(*names[i]);
    sum += squares[i];
  }
  return std::sqrt(sum);
}

double Optimizer::step(double lr, double clip) {
  const double norm = global_norm();
  const double scale = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
  ++steps_.ints()[0];
  for (Slot& slot : slots_) {
    if (!changes(slot)) continue;
    const auto rate = float(slot.parameter.kernel ? lr * options_.kernel_lr : lr);
    if (options_.kind == OptimizerKind::sgd)
      sgd_step(slot, float(scale), rate);
    else
      adam_step(slot, float(scale), rate);
  }
  return norm;
}

void Optimizer::adam_step(Slot& slot, float scale, float lr) const {
  Tensor& p = slot.parameter.var.value();
  const float decay = slot.parameter.decay || options_.decay_all ? options_.weight_decay : 0;
  const bool decoupled = options_.kind == OptimizerKind::adamw;
  launch(p.device(), AdamStep{.p = p.data(),
                              .m = slot.m.data(),
                              .v = slot.v.data(),
                              .g = slot.parameter.var.grad().data(),
                              .n = p.numel(),
                              .scale = scale,
                              .lr = lr,
                              .beta1 = options_.beta1,
                              .beta2 = options_.beta2,
                              .eps = options_.eps,
                              .l2 = decoupled ? 0 : decay,
                              .decay = decoupled ? decay : 0,
                              .correction1 = float(1 - std::pow(double(options_.beta1), double(steps()))),
                              .correction2 = float(1 - std::pow(double(options_.beta2), double(steps())))});
}

void Optimizer::sgd_step(Slot& slot, float scale, float lr) const {
  Tensor& p = slot.parameter.var.value();
  launch(p.device(), SgdStep{.p = p.data(),
                             .m = slot.m.data(),
                             .g = slot.parameter.var.grad().data(),
                             .n = p.numel(),
                             .scale = scale,
                             .lr = lr,
                             .momentum = options_.momentum,
                             .l2 = slot.parameter.decay || options_.decay_all ? options_.weight_decay : 0,
                             .nesterov = options_.nesterov});
}

NamedTensors Optimizer::state() const {
  NamedTensors out = {{"optimizer.steps", steps_}};
  for (const Slot& slot : slots_) {
    out.push_back({"optimizer.m." + slot.parameter.name, slot.m});
    if (slot.v.defined()) out.push_back({"optimizer.v." + slot.parameter.name, slot.v});
  }
  return out;
}

}  // namespace flexformer
