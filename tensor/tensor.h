// Tensor: a shape, an element type and a shared block of memory, always contiguous in row-major order. Copying a Tensor
// copies the handle, not the elements; there are no strided views, so a kernel sees plain pointers and sizes. On a GPU
// the pointers are for kernels alone: what the host wants to read or write it copies with to(), to_vector(),
// copy_from().
#pragma once
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/values.h"

namespace flexformer {

const char* name_of(DType dtype);
const char* name_of(Device device);

class Tensor {
 public:
  Tensor() = default;  // undefined: defined() is false

  // Elements are arbitrary until written. Throws Error when memory runs out.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu);
  static Tensor full(const Shape& shape, float value, Device device = Device::cpu);
  // Copies `values`; their number must match the shape.
  static Tensor from(const Shape& shape, std::span<const float> values, Device device = Device::cpu);
  static Tensor from(const Shape& shape, std::initializer_list<float> values, Device device = Device::cpu);
  static Tensor from_ints(const Shape& shape, std::span<const std::int32_t> values, Device device = Device::cpu);

  bool defined() const { return block_ != nullptr; }
  const Shape& shape() const { return shape_; }
  Index size(int axis) const { return shape_[axis]; }
  int rank() const { return shape_.rank(); }
  Index numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  // The elements; a kernel's argument only where device() is not the CPU. Throws Error if the element type is another.
  float* data();
  const float* data() const;
  // The same for a kernel that takes activations, which may be f32 or, on a GPU, bf16.
  ValuesOut values();
  ValuesIn values() const;
  std::int32_t* ints();
  const std::int32_t* ints() const;

  // The same elements under another shape with equally many elements.
  Tensor reshape(const Shape& shape) const;
  Tensor clone() const;
  Tensor to(Device device) const;        // itself where it is there already, else a copy
  void copy_from(const Tensor& source);  // same shape and type, from any device
  // This tensor, for which `copy`, on another device, stands ready: to() then gives that very memory, and copies
  // nothing. Who writes to one must write to both.
  Tensor with_copy(const Tensor& copy) const;

  float item() const;                    // the only element
  std::vector<float> to_vector() const;  // a copy on the host, as floats
  bool shares_memory_with(const Tensor& other) const { return block_ && block_ == other.block_; }

 private:
  void* checked(DType expected) const;

  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
  std::shared_ptr<void> block_;
  std::shared_ptr<const Tensor> copy_;  // of with_copy(), else null
};

}  // namespace flexformer
