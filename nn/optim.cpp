// The optimisers. All sums over gradients are in double: the squares of large but harmless gradients are no floats.
#include "nn/optim.h"

#include <cmath>

namespace flexformer {

OptimizerKind optimizer_from(const std::string& name) {
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "adam") return OptimizerKind::adam;
  if (name == "sgd") return OptimizerKind::sgd;
  fail("there is no optimizer '", name, "'; there are adamw, adam, sgd");
}

namespace {

// Memory for `count` elements of T on a device, in a tensor of floats.
template <class T> Tensor memory_for(Index count, Device device) {
  return Tensor::empty({count * Index(sizeof(T) / sizeof(float))}, DType::f32, device);
}
template <class T> T* elements(Tensor& memory) { return reinterpret_cast<T*>(memory.data()); }
template <class T> const T* elements(const Tensor& memory) { return reinterpret_cast<const T*>(memory.data()); }

}  // namespace

Optimizer::Optimizer(const Parameters& parameters, const OptimizerOptions& options)
    : options_(options),
      steps_(Tensor::zeros({1}, DType::i32)),
      numbers_(memory_for<StepNumbers>(2, parameters.device())),
      scale_(memory_for<float>(1, parameters.device())) {
  for (const Parameter& parameter : parameters) {
    if (!parameter.var.requires_grad()) continue;
    const auto zeros = [&] { return Tensor::zeros(parameter.var.shape(), DType::f32, parameter.var.device()); };
    slots_.push_back({parameter, zeros(), options.kind == OptimizerKind::sgd ? Tensor() : zeros()});
  }
  squares_ = memory_for<double>(Index(slots_.size()), parameters.device());
}

double squared_norm(const Tensor& x) {
  const profile::Op op("squared_norm");
  Tensor sum = memory_for<double>(1, x.device());
  const SquaredNorms::Array array{x.data(), x.numel()};
  launch(x.device(), SquaredNorms{.sums = elements<double>(sum), .arrays = &array, .count = 1});
  const Tensor on_host = sum.to(Device::cpu);
  return *elements<double>(on_host);
}

double Optimizer::step(double lr, double clip) {
  prepare(lr);
  launch_step(clip);
  return finish();
}

void Optimizer::prepare(double lr) {
  const auto correction = [t = double(steps() + 1)](float beta) { return float(1 - std::pow(double(beta), t)); };
  Tensor now = memory_for<StepNumbers>(2, Device::cpu);
  for (const bool kernel : {false, true})
    elements<StepNumbers>(now)[kernel] = {.lr = float(kernel ? lr * options_.kernel_lr : lr),
                                          .correction1 = correction(options_.beta1),
                                          .correction2 = correction(options_.beta2)};
  numbers_.copy_from(now);
}

// A gradient that is missing counts as one of no elements, so that every sum keeps its place.
void Optimizer::launch_step(double clip) {
  const profile::Op op("optimizer");
  std::vector<SquaredNorms::Array> gradients;
  for (const Slot& slot : slots_) {
    const Var& var = slot.parameter.var;
    gradients.push_back(changes(slot) ? SquaredNorms::Array{var.grad().data(), var.grad().numel()}
                                      : SquaredNorms::Array{nullptr, 0});
  }
  const auto count = Index(slots_.size());
  auto* squares = elements<double>(squares_);
  launch(scale_.device(), SquaredNorms{.sums = squares, .arrays = gradients.data(), .count = count});
  launch(scale_.device(), ClipScale{.scale = scale_.data(), .squares = squares, .count = count, .clip = clip});
  for (Slot& slot : slots_) {
    if (!changes(slot)) continue;
    if (options_.kind == OptimizerKind::sgd)
      sgd_step(slot);
    else
      adam_step(slot);
  }
}

double Optimizer::finish() {
  const Tensor on_host = squares_.to(Device::cpu);
  double sum = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const double square = elements<double>(on_host)[i];
    if (!std::isfinite(square)) throw NonFiniteGradient(slots_[i].parameter.name);
    sum += square;
  }
  ++steps_.ints()[0];
  return std::sqrt(sum);
}

const StepNumbers* Optimizer::numbers_of(const Slot& slot) const {
  return elements<StepNumbers>(numbers_) + (slot.parameter.kernel ? 1 : 0);
}

void Optimizer::adam_step(Slot& slot) const {
  Tensor& p = slot.parameter.var.value();
  const float decay = slot.parameter.decay || options_.decay_all ? options_.weight_decay : 0;
  const bool decoupled = options_.kind == OptimizerKind::adamw;
  launch(p.device(), AdamStep{.p = p.data(),
                              .m = slot.m.data(),
                              .v = slot.v.data(),
                              .g = slot.parameter.var.grad().data(),
                              .n = p.numel(),
                              .numbers = numbers_of(slot),
                              .scale = scale_.data(),
                              .beta1 = options_.beta1,
                              .beta2 = options_.beta2,
                              .eps = options_.eps,
                              .l2 = decoupled ? 0 : decay,
                              .decay = decoupled ? decay : 0});
}

void Optimizer::sgd_step(Slot& slot) const {
  Tensor& p = slot.parameter.var.value();
  launch(p.device(), SgdStep{.p = p.data(),
                             .m = slot.m.data(),
                             .g = slot.parameter.var.grad().data(),
                             .n = p.numel(),
                             .numbers = numbers_of(slot),
                             .scale = scale_.data(),
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
