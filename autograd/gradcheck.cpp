// A move is a list of changes to input elements. Along each, the change of the loss from one end to the other is held
// against the sum of gradient times change; the changes are taken as the floats really moved, so that the rounding of
// x + step costs nothing.
#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

namespace flexformer {
namespace {

using Function = std::function<Var(const std::vector<Var>&)>;

// -1 or 1.
float sign_at(RandomKey key, Index i) { return uniform_at(key, std::uint64_t(i)) < 0.5f ? -1.0f : 1.0f; }

class Checker {
 public:
  Checker(const Function& f, const std::vector<Var>& inputs, const GradcheckOptions& options)
      : f_(f), inputs_(inputs), options_(options), random_(options.seed) {
    bool any = false;
    for (const Var& x : inputs_) any = any || x.requires_grad();
    check("gradcheck", any, "no input requires a gradient");
    weights_key_ = random_.next();
    differentiate();
  }

  Gradcheck run() {
    for (int i = 0; i < options_.directions; ++i) {
      std::vector<RandomKey> keys;
      for (std::size_t x = 0; x < inputs_.size(); ++x) keys.push_back(random_.next());
      compare(text("direction ", i), [&](std::size_t x, Index j) { return sign_at(keys[x], j); });
    }
    for (std::size_t x = 0; x < inputs_.size(); ++x)
      for (int i = 0; i < options_.coordinates && inputs_[x].requires_grad(); ++i) check_coordinate(x, i);
    report_.ok = report_.worst <= options_.tolerance;
    return report_;
  }

 private:
  // Gradients by the tape; they are taken out of the inputs again.
  void differentiate() {
    for (const Var& x : inputs_) x.clear_grad();
    Tape tape;
    const Var y = f_(inputs_);
    check("gradcheck", y.requires_grad(), "the result depends on no input that requires a gradient");
    Tensor dy = Tensor::empty(y.shape());
    for (Index i = 0; i < dy.numel(); ++i) dy.data()[i] = weight(i);
    tape.backward(y, dy.to(y.device()));
    for (const Var& x : inputs_) {
      gradients_.push_back(x.has_grad() ? x.grad().to_vector() : std::vector<float>(std::size_t(x.shape().numel())));
      x.clear_grad();
    }
  }

  // Weights of a size between 0.5 and 1.5, of either sign.
  float weight(Index i) const {
    const float u = 2 * uniform_at(weights_key_, std::uint64_t(i)) - 1;
    return u < 0 ? u - 0.5f : u + 0.5f;
  }

  double loss() const {
    const Tensor y = f_(inputs_).value().to(Device::cpu);
    double sum = 0;
    for (Index i = 0; i < y.numel(); ++i) sum += double(weight(i)) * double(y.data()[i]);
    return sum;
  }

  void check_coordinate(std::size_t x, int i) {
    const Index n = inputs_[x].shape().numel();
    if (i >= n) return;
    const Index at = i == 0 ? 0 : i == 1 ? n - 1 : Index(random_.below(std::uint64_t(n)));
    compare(text("input ", x, " element ", at),
            [&](std::size_t other, Index j) { return other == x && j == at ? 1.0f : 0.0f; });
  }

  // Moves every input that requires a gradient by +-step * direction(input, element).
  template <class Direction> void compare(const std::string& where, const Direction& direction) {
    std::vector<std::vector<float>> saved;
    for (const Var& x : inputs_) saved.push_back(x.value().to_vector());
    const auto moved_by = [&](float step) {
      std::vector<std::vector<float>> values = saved;
      for (std::size_t x = 0; x < inputs_.size(); ++x)
        for (std::size_t j = 0; inputs_[x].requires_grad() && j < saved[x].size(); ++j)
          values[x][j] += step * direction(x, Index(j));
      return values;
    };
    const std::vector<std::vector<float>> ahead = moved_by(options_.step), behind = moved_by(-options_.step);
    set_inputs(ahead);
    double difference = loss(), slope = 0, squares = 0;
    set_inputs(behind);
    difference -= loss();
    set_inputs(saved);
    Index moved = 0;
    for (std::size_t x = 0; x < inputs_.size(); ++x) {
      double input_squares = 0;
      Index input_moved = 0;
      for (std::size_t j = 0; j < saved[x].size(); ++j) {
        const double g = double(gradients_[x][j]), change = double(ahead[x][j]) - double(behind[x][j]);
        slope += g * change;
        input_squares += g * g;
        input_moved += change != 0;
      }
      if (input_moved > 0) squares += input_squares / double(saved[x].size()) * double(input_moved);
      moved += input_moved;
    }
    judge(where, slope, difference, squares, moved);
  }

  void set_inputs(const std::vector<std::vector<float>>& values) {
    for (std::size_t x = 0; x < inputs_.size(); ++x)
      inputs_[x].value().copy_from(Tensor::from(inputs_[x].shape(), values[x]));
  }

  void judge(const std::string& where, double slope, double difference, double squares, Index moved) {
    const double length = 2 * double(options_.step) * std::sqrt(double(std::max<Index>(moved, 1)));
    slope /= length;
    difference /= length;
    const double rms = std::sqrt(squares / double(std::max<Index>(moved, 1)));
    double error = std::fabs(slope - difference) / (std::fabs(slope) + std::fabs(difference) + rms / 10 + 1e-4);
    if (std::isnan(error)) error = HUGE_VAL;
    if (error < report_.worst || (!report_.message.empty() && error == report_.worst)) return;
    report_.worst = error;
    report_.message = text(where, ": the gradient says ", slope, ", differences say ", difference, " (error ", error,
                           ", tolerance ", options_.tolerance, ")");
  }

  const Function& f_;
  std::vector<Var> inputs_;  // handles of the caller's variables
  const GradcheckOptions& options_;
  Random random_;
  RandomKey weights_key_;
  std::vector<std::vector<float>> gradients_;
  Gradcheck report_;
};

}  // namespace

Gradcheck gradcheck(const Function& f, const std::vector<Var>& inputs, const GradcheckOptions& options) {
  return Checker(f, inputs, options).run();
}

}  // namespace flexformer
