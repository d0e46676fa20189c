#include "tensor/captured_step.h"

#include <algorithm>

namespace flexformer {
namespace {

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.shape() == b.shape() && a.dtype() == b.dtype()));
}

bool same_shapes(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Batch& x, const Batch& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_shape);
  });
}

}  // namespace

std::vector<Tensor> CapturedStep::run(const std::vector<Batch>& batches, const Body& body) {
  if (!on_) return body(batches);
  if (!same_shapes(batches, batches_)) {
    if (!graph_) batches_ = batches;
    return body(batches);
  }
  if (!graph_) capture(batches, body);
  for (std::size_t i = 0; i < batches.size(); ++i)
    for (std::size_t j = 0; j < batches[i].size(); ++j)
      if (batches[i][j].defined()) batches_[i][j].to(device_).copy_from(batches[i][j]);
  graph_->launch();
  return results_;
}

// The batches' copies are made, and later filled, outside the graph.
void CapturedStep::capture(const std::vector<Batch>& batches, const Body& body) {
  batches_ = batches;
  for (Batch& batch : batches_)
    for (Tensor& tensor : batch)
      if (tensor.defined()) tensor = tensor.with_copy(Tensor::empty(tensor.shape(), tensor.dtype(), device_));
  memory_.during([&] { graph_ = std::make_unique<device::Graph>([&] { results_ = body(batches_); }); });
}

}  // namespace flexformer
