// Tape: the record of what was computed while it was open. An op appends one entry; backward() replays the entries from
// last to first, which is an order of the graph by construction: no sorting, no recursion, no cycles.
//
//   Tape tape;                       // ops record from here on, in this thread
//   Var loss = cross_entropy(linear(x, W, b), targets);
//   tape.backward(loss);             // W.grad() and b.grad() are there now, and the tape is spent
//
// Without an open tape nothing is recorded and nothing is saved: that is how a model is evaluated.
#pragma once
#include <functional>
#include <initializer_list>
#include <vector>

#include "autograd/var.h"

namespace flexformer {

class Tape {
 public:
  Tape();   // opens: becomes the current tape of this thread
  ~Tape();  // closes: the one that was open before is current again
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Gradients of a scalar with respect to every leaf that requires one, added to what the leaves already hold. Entries
  // free what they saved as soon as they have been replayed. Throws Error if `loss` is no scalar, was not computed on
  // this tape, or the tape is spent.
  void backward(const Var& loss);
  // The same for y of any shape, with dy as the gradient of y (a vector-Jacobian product).
  void backward(const Var& y, const Tensor& dy);

  Index entries() const { return Index(entries_.size()); }

  static Tape* current();

  // What an op returns: see record().
  using Backward = std::function<void(const Tensor& dy)>;
  static Var result(const char* op, Tensor y, std::initializer_list<const Var*> inputs, Backward backward);

 private:
  struct Entry {
    const char* op;
    Gradient output;
    Backward backward;
  };
  std::vector<Entry> entries_;
  Tape* previous_;
  bool spent_ = false;
};

// Turns a computed tensor into an op's result. If a tape is open and some input wants a gradient, the result wants one
// too, and `backward` goes on the tape. Its capture list is the list of what is saved for the backward pass: write it
// out; capture x.gradient() alone where the value of x is not needed; never capture the result itself.
inline Var record(const char* op, Tensor y, std::initializer_list<const Var*> inputs, Tape::Backward backward) {
  return Tape::result(op, std::move(y), inputs, std::move(backward));
}

}  // namespace flexformer
