// Var: a tensor that may have a gradient. Copies share both, so a parameter used in two places is one Var.
#pragma once
#include <memory>

#include "tensor/kernels.h"

namespace flexformer {

// Handle of the place where one Var's gradient is kept. A backward function that needs only this, and not the value,
// captures only this, so that the value's memory is free for others.
class Gradient {
 public:
  Gradient() = default;
  Gradient(const Tensor& value, bool wanted, bool from_op)
      : slot_(std::make_shared<Slot>(Slot{value.shape(), value.dtype(), value.device(), {}, wanted, false, from_op})) {}

  bool wanted() const { return slot_ && slot_->wanted; }
  bool present() const { return slot_ && slot_->present; }
  // Throws Error when no backward pass has written it.
  Tensor& tensor() const;

  // Where a backward kernel writes: the first call since clear() says overwrite, later ones say add; a null pointer
  // when no gradient is wanted. Call it once per kernel that will write.
  GradOut out() const;

  // Forgets the gradient; its memory is kept for the next one unless `release`.
  void clear(bool release = false) const;

 private:
  friend class Var;
  friend class Tape;
  struct Slot {
    Shape shape;
    DType dtype;
    Device device;
    Tensor tensor;
    bool wanted, present, from_op;
  };
  std::shared_ptr<Slot> slot_;
};

class Var {
 public:
  Var() = default;  // undefined
  explicit Var(Tensor value, bool requires_grad = false)
      : value_(std::move(value)), gradient_(value_, requires_grad, false) {}

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  Tensor& value() { return value_; }
  const Shape& shape() const { return value_.shape(); }
  Index size(int axis) const { return shape()[axis]; }
  DType dtype() const { return value_.dtype(); }
  Device device() const { return value_.device(); }

  const Gradient& gradient() const { return gradient_; }
  bool requires_grad() const { return gradient_.wanted(); }
  // Freezes (false) or thaws a parameter, for all copies. Throws Error for the result of an op.
  void set_requires_grad(bool on);

  // Shorthands for the gradient's own members.
  bool has_grad() const { return gradient_.present(); }
  Tensor& grad() const { return gradient_.tensor(); }
  void clear_grad() const { gradient_.clear(); }

  bool same_as(const Var& other) const { return gradient_.slot_ && gradient_.slot_ == other.gradient_.slot_; }

 private:
  friend class Tape;
  Var(Tensor value, Gradient gradient) : value_(std::move(value)), gradient_(std::move(gradient)) {}
  Tensor value_;
  Gradient gradient_;
};

// The values of an operand that a kernel can do without, parameters or activations; null where x is undefined.
inline const float* data_or_null(const Var& x) { return x.defined() ? x.value().data() : nullptr; }
inline ValuesIn values_or_null(const Var& x) { return x.defined() ? x.value().values() : nullptr; }
inline ValuesIn values_or_null(const Tensor& x) { return x.defined() ? x.values() : nullptr; }

}  // namespace flexformer
