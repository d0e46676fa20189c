// The list of parameters, and how a parameter starts.
#include "nn/module.h"

#include <cmath>

namespace flexformer {

const Parameter* Parameters::find(const std::string& name) const {
  for (const Parameter& parameter : list_)
    if (parameter.name == name) return &parameter;
  return nullptr;
}

Var Parameters::add(Parameter parameter) {
  check("parameters", !has(parameter.name), "there are two parameters called '", parameter.name, "'");
  list_.push_back(std::move(parameter));
  return list_.back().var;
}

const Parameter& Parameters::operator[](const std::string& name) const {
  const Parameter* found = find(name);
  check("parameters", found != nullptr, "there is no parameter '", name, "' among the ", size(), " of this model");
  return *found;
}

Index Parameters::count() const {
  Index n = 0;
  for (const Parameter& parameter : list_)
    if (parameter.var.requires_grad()) n += parameter.var.shape().numel();
  return n;
}

void Parameters::clear_grads() const {
  for (const Parameter& parameter : list_) parameter.var.clear_grad();
}

NamedTensors Parameters::tensors() const {
  NamedTensors out;
  for (const Parameter& parameter : list_) out.push_back({parameter.name, parameter.var.value()});
  return out;
}

Scope Scope::sub(const std::string& name) const {
  Scope out = *this;
  out.prefix_ += name + ".";
  return out;
}

Tensor Scope::draw(const Shape& shape, Init init) const {
  const profile::Op op("initialisation");
  const RandomKey key = random_->next();
  if (init.kind == Init::Kind::constant) return Tensor::full(shape, init.value);
  Tensor out = Tensor::empty(shape);
  if (init.kind == Init::Kind::normal) {
    launch(out.device(), FillNormal{.y = out.data(), .n = out.numel(), .scale = init.value, .key = key});
  } else {
    const float bound = std::sqrt(6.0f / float(shape[0] + shape[1]));
    launch(out.device(), FillUniform{.y = out.data(), .n = out.numel(), .low = -bound, .high = bound, .key = key});
  }
  return out;
}

Var Scope::parameter(const std::string& name, const Shape& shape, Init init, ParameterTraits traits) const {
  return parameter(name, draw(shape, init), traits);
}

Var Scope::parameter(const std::string& name, const Tensor& value, ParameterTraits traits) const {
  const Var var(value.to(parameters_->device()), traits.trainable);
  return parameters_->add({prefix_ + name, var, traits.decay, traits.kernel});
}

}  // namespace flexformer
