// A program of one's own on tensor, autograd and nn: two layers learn to tell the inside of a ring from the outside.
// 'make test' builds and runs it; docs/tour.md walks through it.
#include <cmath>
#include <iostream>

#include "autograd/ops.h"
#include "nn/layers.h"
#include "nn/optim.h"

using namespace flexformer;

// Points drawn evenly from a square, labelled 1 where 0.5 < |point| < 1.
static void draw_points(Index count, RandomKey key, Tensor& points, Tensor& labels) {
  points = Tensor::empty({count, 2});
  labels = Tensor::empty({count}, DType::i32);
  launch(Device::cpu, FillUniform{.y = points.data(), .n = 2 * count, .low = -1.5f, .high = 1.5f, .key = key});
  for (Index i = 0; i < count; ++i) {
    const float radius = std::hypot(points.data()[2 * i], points.data()[2 * i + 1]);
    labels.ints()[i] = radius > 0.5f && radius < 1;
  }
}

// A model is a struct of modules; each takes its parameters from a Scope, which names and initialises them.
struct RingModel {
  explicit RingModel(const Scope& scope)
      : hidden(scope.sub("hidden"), 2, 32, Init::normal(1)), head(scope.sub("head"), 32, 2, Init::normal(0.2f)) {}
  Var forward(const Var& x) const { return head.forward(tanh(hidden.forward(x))); }
  Linear hidden, head;
};

int main() {
  Random random(7);
  Parameters parameters;
  const RingModel model(Scope(parameters, random));
  Optimizer optimizer(parameters, {.weight_decay = 0});

  for (int step = 1; step <= 1000; ++step) {
    Tensor points, labels;
    draw_points(256, random.next(), points, labels);
    parameters.clear_grads();
    Tape tape;  // from here on, ops record themselves
    const Var loss = cross_entropy(model.forward(Var(points)), labels);
    tape.backward(loss);  // fills every parameter's gradient
    optimizer.step(0.03);
    if (step % 200 == 0) std::cout << "step " << step << "  loss " << loss.value().item() << "\n";
  }

  Tensor points, labels;
  draw_points(1000, random.next(), points, labels);
  const Tensor logits = model.forward(Var(points)).value();  // no open tape: nothing is recorded
  Index right = 0;
  for (Index i = 0; i < 1000; ++i) right += (logits.data()[2 * i + 1] > logits.data()[2 * i]) == labels.ints()[i];
  std::cout << "right on " << right << " of 1000 new points\n";
  return right >= 950 ? 0 : 1;
}
