#include "tensor/tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tensor/device_memory.h"

namespace flexformer {
namespace {

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes) {
  if (bytes == 0) return;
  if (to_device == Device::cpu && from_device == Device::cpu)
    std::memcpy(to, from, bytes);
  else if (to_device == Device::cpu)
    device::copy_to_host(to, from, bytes);
  else if (from_device == Device::cpu)
    device::copy_to_device(to, from, bytes);
  else
    device::copy_within(to, from, bytes);
}

}  // namespace

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
  const auto bytes = std::size_t(shape.numel() * size_of(dtype));
  if (device == Device::cpu)
    std::memset(out.block_.get(), 0, bytes);
  else if (bytes > 0)
    device::fill(out.block_.get(), 0, bytes);
  return out;
}

Tensor Tensor::full(const Shape& shape, float value, Device device) {
  Tensor out = empty(shape, DType::f32, device);
  if (device == Device::cpu)
    std::fill_n(out.data(), out.numel(), value);
  else if (out.numel() > 0)
    device::fill_floats(out.data(), value, out.numel());
  return out;
}

Tensor Tensor::from(const Shape& shape, std::span<const float> values, Device device) {
  check("tensor", Index(values.size()) == shape.numel(), "shape ", shape, " does not hold ", values.size(), " values");
  Tensor out = empty(shape, DType::f32, device);
  copy_bytes(out.data(), device, values.data(), Device::cpu, values.size_bytes());
  return out;
}

Tensor Tensor::from(const Shape& shape, std::initializer_list<float> values, Device device) {
  return from(shape, std::span<const float>(values.begin(), values.size()), device);
}

Tensor Tensor::from_ints(const Shape& shape, std::span<const std::int32_t> values, Device device) {
  check("tensor", Index(values.size()) == shape.numel(), "shape ", shape, " does not hold ", values.size(), " values");
  Tensor out = empty(shape, DType::i32, device);
  copy_bytes(out.ints(), device, values.data(), Device::cpu, values.size_bytes());
  return out;
}

void* Tensor::checked(DType expected) const {
  check("tensor", defined(), "this tensor has no elements yet");
  check("tensor", dtype_ == expected, "elements are ", name_of(dtype_), ", not ", name_of(expected));
  return block_.get();
}

float* Tensor::data() { return static_cast<float*>(checked(DType::f32)); }
const float* Tensor::data() const { return static_cast<const float*>(checked(DType::f32)); }
ValuesOut Tensor::values() {
  const ValuesIn x = std::as_const(*this).values();
  return {const_cast<char*>(x.p), x.dtype};
}
ValuesIn Tensor::values() const {
  if (device_ == Device::cpu || dtype_ != DType::bf16) return data();
  return {static_cast<const char*>(checked(DType::bf16)), dtype_};
}
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

Tensor Tensor::to(Device device) const {
  if (!defined() || device == device_) return *this;
  if (copy_ && copy_->device_ == device) return copy_->reshape(shape_);
  Tensor out = empty(shape_, dtype_, device);
  out.copy_from(*this);
  return out;
}

void Tensor::copy_from(const Tensor& source) {
  check("copy", source.shape_ == shape_ && source.dtype_ == dtype_, "target ", shape_, " ", name_of(dtype_),
        ", source ", source.shape_, " ", name_of(source.dtype_));
  copy_bytes(block_.get(), device_, source.block_.get(), source.device_, std::size_t(numel() * size_of(dtype_)));
}

Tensor Tensor::with_copy(const Tensor& copy) const {
  check("copy", copy.shape_ == shape_ && copy.dtype_ == dtype_, "this tensor is ", shape_, " ", name_of(dtype_),
        ", its copy ", copy.shape_, " ", name_of(copy.dtype_));
  Tensor out = *this;
  out.copy_ = std::make_shared<const Tensor>(copy);
  return out;
}

float Tensor::item() const {
  check("item", numel() == 1, "shape ", shape_, " has ", numel(), " elements, not one");
  return to_vector()[0];
}

std::vector<float> Tensor::to_vector() const {
  std::vector<float> floats(static_cast<std::size_t>(numel()));
  if (dtype_ != DType::bf16) {
    copy_bytes(floats.data(), Device::cpu, data(), device_, floats.size() * sizeof(float));
    return floats;
  }
  std::vector<std::uint16_t> halves(floats.size());  // a bfloat16 is the upper half of a float
  copy_bytes(halves.data(), Device::cpu, checked(DType::bf16), device_, halves.size() * sizeof halves[0]);
  for (std::size_t i = 0; i < halves.size(); ++i) floats[i] = std::bit_cast<float>(std::uint32_t(halves[i]) << 16);
  return floats;
}

}  // namespace flexformer
