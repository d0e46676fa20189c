// Ops that move elements. All but reshape are a StridedCopy, or several, between a dense and a strided box; the
// gradient is the same copy the other way.
#include <algorithm>

#include "autograd/op_util.h"

namespace flexformer {
namespace {

// Strides of a dense tensor, axes right-aligned in four, and its sizes (ones in front).
struct Layout {
  Index size[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
  explicit Layout(const Shape& shape) {
    Index stride_here = 1;
    for (int i = -1; i >= -shape.rank(); --i) {
      size[4 + i] = shape[i];
      stride[4 + i] = stride_here;
      stride_here *= shape[i];
    }
  }
};

StridedCopy box_copy(GradOut y, ValuesIn x, const Index* size, const Index* y_stride, const Index* x_stride) {
  StridedCopy copy{.y = y, .x = x, .size = {}, .y_stride = {}, .x_stride = {}};
  std::copy_n(size, 4, copy.size);
  std::copy_n(y_stride, 4, copy.y_stride);
  std::copy_n(x_stride, 4, copy.x_stride);
  return copy;
}

}  // namespace

Var reshape(const Var& x, const Shape& shape) {
  check_input("reshape", "x", x);
  return record("reshape", x.value().reshape(shape), {&x}, [dx = x.gradient()](const Tensor& dy) {
    pass_gradient(dy.device(), dx.out(), dy.values(), dy.numel());
  });
}

Var permute(const Var& x, const Axes& order) {
  check_input("permute", "x", x);
  const int rank = x.shape().rank();
  check("permute", int(order.size()) == rank, order.size(), " axes given for shape ", x.shape());
  const Layout source(x.shape());
  Shape shape;
  Index stride[4] = {0, 0, 0, 0};  // of x, in the order of the result's axes
  bool seen[4] = {};
  for (int i = 0; i < rank; ++i) {
    const int axis = x.shape().normalise("permute", order[std::size_t(i)]);
    check("permute", !seen[axis], "axis ", axis, " is repeated");
    seen[axis] = true;
    shape.append(x.shape()[axis]);
    stride[4 - rank + i] = source.stride[4 - rank + axis];
  }
  const Layout target(shape);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  launch(x.device(), box_copy({y.values()}, x.value().values(), target.size, target.stride, stride));
  return record("permute", y, {&x}, [dx = x.gradient(), target, stride = std::to_array(stride)](const Tensor& dy) {
    launch(dy.device(), box_copy(dx.out(), dy.values(), target.size, stride.data(), target.stride));
  });
}

Var transpose(const Var& x, int axis_a, int axis_b) {
  check_input("transpose", "x", x);
  Axes order;
  for (int i = 0; i < x.shape().rank(); ++i) order.push_back(i);
  std::swap(order[std::size_t(x.shape().normalise("transpose", axis_a))],
            order[std::size_t(x.shape().normalise("transpose", axis_b))]);
  return permute(x, order);
}

Var slice(const Var& x, int axis, Index start, Index stop, Index step) {
  check_input("slice", "x", x);
  axis = x.shape().normalise("slice", axis);
  const Index size = x.shape()[axis];
  check("slice", step >= 1, "step ", step, " is not positive");
  const Index first = start < 0 ? start + size : start, end = std::min(stop < 0 ? stop + size : stop, size);
  check("slice", first >= 0 && first <= size && end >= 0, "positions ", start, " to ", stop, " do not lie in axis ",
        axis, " of shape ", x.shape());
  const Index count = first < end ? (end - first + step - 1) / step : 0;
  const Layout source(x.shape());
  const int at = 4 - x.shape().rank() + axis;
  const Index offset = first * source.stride[at];
  Index stride[4];
  std::copy_n(source.stride, 4, stride);
  stride[at] *= step;
  const Layout target(x.shape().with(axis, count));
  Tensor y = Tensor::empty(x.shape().with(axis, count), x.dtype(), x.device());
  launch(x.device(), box_copy({y.values()}, x.value().values().from(offset), target.size, target.stride, stride));
  return record(
      "slice", y, {&x},
      [dx = x.gradient(), n = x.shape().numel(), target, stride = std::to_array(stride), offset](const Tensor& dy) {
        GradOut g = dx.out();
        if (g && !g.add) clear_gradient(dy.device(), g, n);  // elements that were not taken
        const GradOut taken{g.p.from(offset), true};
        launch(dy.device(), box_copy(taken, dy.values(), target.size, stride.data(), target.stride));
      });
}

Var concat(const std::vector<Var>& parts, int axis) {
  check("concat", !parts.empty(), "there is nothing to join");
  check_input("concat", "part 0", parts[0]);
  const Shape& first = parts[0].shape();
  axis = first.normalise("concat", axis);
  Index total = 0;
  DType dtype = DType::f32;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = text("part ", i);
    check_input("concat", name.c_str(), parts[i]);
    check_same_device("concat", parts[0].device(), parts[i].device());
    const Shape& shape = parts[i].shape();
    check("concat", shape.rank() == first.rank() && shape.with(axis, first[axis]) == first, name, " is ", shape,
          ", which does not fit to part 0, ", first, ", along axis ", axis);
    total += shape[axis];
    if (parts[i].dtype() == DType::bf16) dtype = DType::bf16;
  }
  const Shape shape = first.with(axis, total);
  const Index outer = shape.numel(0, axis), row = total * shape.numel(axis + 1, shape.rank());
  Tensor y = Tensor::empty(shape, dtype, parts[0].device());
  // Each part is rows of `width` elements, set next to each other in the rows of the result.
  const auto copy = [outer](GradOut to, Index to_row, ValuesIn from, Index from_row, Index width) {
    return StridedCopy{.y = to,
                       .x = from,
                       .size = {1, 1, outer, width},
                       .y_stride = {0, 0, to_row, 1},
                       .x_stride = {0, 0, from_row, 1}};
  };
  Index offset = 0;
  std::vector<Gradient> gradients;
  std::vector<Index> widths;
  Var wanting = parts[0];  // a part that wants a gradient, if there is one, speaks for all
  for (const Var& part : parts) {
    const Index width = part.shape().numel(axis, shape.rank());
    launch(y.device(), copy({y.values().from(offset)}, row, part.value().values(), width, width));
    offset += width;
    gradients.push_back(part.gradient());
    widths.push_back(width);
    if (part.requires_grad()) wanting = part;
  }
  return record("concat", y, {&wanting}, [gradients, widths, row, copy](const Tensor& dy) {
    Index offset = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      launch(dy.device(), copy(gradients[i].out(), widths[i], dy.values().from(offset), row, widths[i]));
      offset += widths[i];
    }
  });
}

// x + 0, with 0 as the operand that is not repeated: reading with stride 0 and summing the gradient are there already.
Var expand(const Var& x, const Shape& shape) {
  check_input("expand", "x", x);
  check("expand", broadcast_shape("expand", x.shape(), shape) == shape, "shape ", x.shape(), " does not expand to ",
        shape);
  const Broadcast box = broadcast_box(shape, x.shape(), Shape{});
  const Tensor zero = Tensor::zeros({}, DType::f32, x.device());
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  launch(x.device(),
         BinaryFwd{.y = y.values(), .a = x.value().values(), .b = zero.values(), .shape = box, .op = Binary::add});
  return record("expand", y, {&x}, [dx = x.gradient(), box](const Tensor& dy) {
    launch(
        dy.device(),
        BinaryBwd{
            .da = dx.out(), .db = {}, .dy = dy.values(), .a = nullptr, .b = nullptr, .shape = box, .op = Binary::add});
  });
}

}  // namespace flexformer
