// A step that is the same each time but for the numbers it reads: run as it is at first, then captured, and from then
// on repeated by one call instead of one for each kernel.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "tensor/device_memory.h"
#include "tensor/tensor.h"

namespace flexformer {

// What one batch reads, on the host: ids, targets and the like, in an order that its user knows. Some may be undefined.
using Batch = std::vector<Tensor>;

class CapturedStep {
 public:
  // Gives the device the work of a step and returns what shall be read of it afterwards.
  using Body = std::function<std::vector<Tensor>(const std::vector<Batch>& batches)>;

  // Without `on`, and on the CPU, run() is body().
  CapturedStep(Device device, bool on) : device_(device), on_(on && device != Device::cpu), memory_(device) {}

  // body(batches), or the same by repeating it. Apart from the elements of the batches and of what lies in the device's
  // memory, the work must depend on the batches' shapes alone, and body must not wait for the device, or copy from the
  // host or to it (Tensor::to() of the batches is no copy then); else Error. The first batches of some shapes run
  // eagerly, which warms everything up; the second in a row are captured. There is one graph: from then on batches of
  // other shapes run eagerly. The memory that the graph works in is reserved for it as long as it lives.
  std::vector<Tensor> run(const std::vector<Batch>& batches, const Body& body);

 private:
  void capture(const std::vector<Batch>& batches, const Body& body);

  Device device_;
  bool on_;
  memory::Reservation memory_;   // of all that follows
  std::vector<Batch> batches_;   // of the graph, with copies on the device; without a graph, the last ones
  std::vector<Tensor> results_;  // of the graph
  std::unique_ptr<device::Graph> graph_;
};

}  // namespace flexformer
