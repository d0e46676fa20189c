#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>

namespace flexformer {

Index size_of(DType dtype) { return dtype == DType::bf16 ? 2 : 4; }

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::i32:
      return "i32";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}

const char* name_of(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor out;
  out.shape_ = shape;
  out.dtype_ = dtype;
  out.device_ = device;
  const auto bytes = std::size_t(shape.numel() * size_of(dtype));
  out.block_ = std::shared_ptr<void>(memory::allocate(device, bytes),
                                     [device, bytes](void* block) { memory::release(device, block, bytes); });
  return out;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor out = empty(shape, dtype, device);
  std::memset(out.block_.get(), 0, std::size_t(shape.numel() * size_of(dtype)));
  return out;
}

Tensor Tensor::full(const Shape& shape, float value, Device device) {
  Tensor out = empty(shape, DType::f32, device);
  std::fill_n(out.data(), out.numel(), value);
  return out;
}

Tensor Tensor::from(const Shape& shape, std::span<const float> values) {
  check("tensor", Index(values.size()) == shape.numel(), "shape ", shape, " does not hold ", values.size(), " values");
  Tensor out = empty(shape);
  std::copy(values.begin(), values.end(), out.data());
  return out;
}

Tensor Tensor::from(const Shape& shape, std::initializer_list<float> values) {
  return from(shape, std::span<const float>(values.begin(), values.size()));
}

Tensor Tensor::from_ints(const Shape& shape, std::span<const std::int32_t> values) {
  check("tensor", Index(values.size()) == shape.numel(), "shape ", shape, " does not hold ", values.size(), " values");
  Tensor out = empty(shape, DType::i32);
  std::copy(values.begin(), values.end(), out.ints());
  return out;
}

void* Tensor::checked(DType expected) const {
  check("tensor", defined(), "this tensor has no elements yet");
  check("tensor", dtype_ == expected, "elements are ", name_of(dtype_), ", not ", name_of(expected));
  return block_.get();
}

float* Tensor::data() { return static_cast<float*>(checked(DType::f32)); }
const float* Tensor::data() const { return static_cast<const float*>(checked(DType::f32)); }
std::int32_t* Tensor::ints() { return static_cast<std::int32_t*>(checked(DType::i32)); }
const std::int32_t* Tensor::ints() const { return static_cast<const std::int32_t*>(checked(DType::i32)); }

Tensor Tensor::reshape(const Shape& shape) const {
  check("reshape", shape.numel() == numel(), shape_, " has ", numel(), " elements, ", shape, " has ", shape.numel());
  Tensor out = *this;
  out.shape_ = shape;
  return out;
}

Tensor Tensor::clone() const {
  Tensor out = empty(shape_, dtype_, device_);
  out.copy_from(*this);
  return out;
}

void Tensor::copy_from(const Tensor& source) {
  check("copy", source.shape_ == shape_ && source.dtype_ == dtype_, "target ", shape_, " ", name_of(dtype_),
        ", source ", source.shape_, " ", name_of(source.dtype_));
  std::memcpy(block_.get(), source.block_.get(), std::size_t(numel() * size_of(dtype_)));
}

float Tensor::item() const {
  check("item", numel() == 1, "shape ", shape_, " has ", numel(), " elements, not one");
  return data()[0];
}

std::vector<float> Tensor::to_vector() const { return {data(), data() + numel()}; }

}  // namespace flexformer
