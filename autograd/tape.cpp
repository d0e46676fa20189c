#include "autograd/tape.h"

#include <utility>

namespace flexformer {
namespace {
thread_local Tape* current_tape = nullptr;
constexpr const char* spent_message = "this tape has been replayed; open a new Tape for each forward pass";
}  // namespace

Tensor& Gradient::tensor() const {
  check("grad", present(), "no gradient here: run backward() on a loss that depends on this variable");
  return slot_->tensor;
}

GradOut Gradient::out() const {
  if (!wanted()) return {};
  if (!slot_->tensor.defined()) slot_->tensor = Tensor::empty(slot_->shape, slot_->dtype, slot_->device);
  return {slot_->tensor.values(), std::exchange(slot_->present, true)};
}

void Gradient::clear(bool release) const {
  if (!slot_) return;
  slot_->present = false;
  if (release) slot_->tensor = Tensor();
}

void Var::set_requires_grad(bool on) {
  check("set_requires_grad", defined() && !gradient_.slot_->from_op,
        "only a parameter can be frozen or thawed, not an op's result");
  gradient_.slot_->wanted = on;
}

Tape::Tape() : previous_(current_tape) { current_tape = this; }
Tape::~Tape() { current_tape = previous_; }
Tape* Tape::current() { return current_tape; }

Var Tape::result(const char* op, Tensor y, std::initializer_list<const Var*> inputs, Backward backward) {
  if (profile::on) profile::op_ended(op);
  bool wanted = false;
  for (const Var* input : inputs) wanted = wanted || input->requires_grad();
  if (!wanted || !current_tape) return Var(std::move(y));
  check(op, !current_tape->spent_, spent_message);
  Gradient gradient(y, true, true);
  current_tape->entries_.push_back({op, gradient, std::move(backward)});
  return Var(std::move(y), std::move(gradient));
}

void Tape::backward(const Var& loss) {
  check("backward", loss.defined() && loss.shape().numel() == 1, "needs one number, got ",
        loss.defined() ? text(loss.shape()) : "nothing", "; give the gradient of y for other shapes");
  backward(loss, Tensor::full(loss.shape(), 1.0f, loss.device()));
}

void Tape::backward(const Var& y, const Tensor& dy) {
  check("backward", !spent_, spent_message);
  check("backward", y.requires_grad(), "the result does not depend on anything that requires a gradient");
  check("backward", y.shape() == dy.shape(), "y is ", y.shape(), ", its gradient ", dy.shape());
  bool here = !y.gradient_.slot_->from_op;  // a leaf is its own result
  for (const Entry& entry : entries_) here = here || entry.output.slot_ == y.gradient_.slot_;
  check("backward", here, "the result was not computed on this tape");
  spent_ = true;
  launch(y.device(),
         SumFwd{.y = y.gradient_.out(), .x = dy.values(), .outer = dy.numel(), .n = 1, .inner = 1, .scale = 1});
  while (!entries_.empty()) {
    const Entry& entry = entries_.back();
    if (entry.output.present()) {
      const profile::Op op(entry.op, profile::backward);
      entry.backward(entry.output.tensor());
    }
    entry.output.clear(true);
    entries_.pop_back();
  }
}

}  // namespace flexformer
