#include "tensor/weights.h"

#include <cmath>
#include <cstring>

#include "tensor/parallel.h"
#include "tensor/simd.h"

namespace flexformer {
namespace {

constexpr Index kPanel = WeightsIn::kPanel;

// Writes one row of a matrix, W [I], into its panel; returns its scale, which is 1 for bf16. NaN if a number is not
// finite.
float pack_row(const WeightsIn& to, Index o, const float* W, Index I) {
  float most = 0;
  for (Index i = 0; i < I; ++i) most = std::isfinite(W[i]) ? std::max(most, std::fabs(W[i])) : NAN;
  if (std::isnan(most)) return most;
  const float scale = to.format == WeightFormat::int8 ? most / 127 : 1.0f;
  for (Index i = 0; i < I; ++i) {
    char* place = const_cast<char*>(to.at(o, i, I));
    if (to.format == WeightFormat::int8) {
      *place = char(scale > 0 ? std::int8_t(std::lrintf(std::min(127.0f, std::max(-127.0f, W[i] / scale)))) : 0);
    } else {
      const auto half = std::uint16_t(std::uint32_t(bf16_bits(splat(W[i]))[0]) >> 16);
      std::memcpy(place, &half, sizeof half);
    }
  }
  return scale;
}

}  // namespace

WeightFormat weight_format_from(const std::string& name) {
  if (name == "f32") return WeightFormat::f32;
  if (name == "bf16") return WeightFormat::bf16;
  if (name == "int8") return WeightFormat::int8;
  fail("there are no weights '", name, "'; there are f32, bf16, int8");
}

Weights::Weights(const Tensor& matrix, WeightFormat format) : format_(format) {
  check("weights", matrix.rank() == 2 && matrix.dtype() == DType::f32, "must be a matrix of floats, got ",
        matrix.shape());
  rows_ = matrix.size(0), columns_ = matrix.size(1);
  bytes_ = rows_ * columns_ * in().bytes();
  if (format == WeightFormat::f32) {
    data_ = matrix;
    return;
  }
  const Tensor source = matrix.to(Device::cpu);
  const Index panels = (rows_ + kPanel - 1) / kPanel;
  data_ = Tensor::zeros({panels * kPanel * columns_ * in().bytes() / 4}, DType::i32);
  scale_ = Tensor::empty({rows_});
  parallel_for(panels, 1, [&, to = in()](Index panel, Index) {
    for (Index o = panel * kPanel; o < std::min(rows_, (panel + 1) * kPanel); ++o)
      scale_.data()[o] = pack_row(to, o, source.data() + o * columns_, columns_);
  });
  for (Index o = 0; o < rows_; ++o)
    check("weights", !std::isnan(scale_.data()[o]), "row ", o, " of a matrix ", matrix.shape(),
          " holds a number that is not finite: the model's weights are not usable");
  data_ = data_.to(matrix.device());
  scale_ = scale_.to(matrix.device());
}

WeightsIn Weights::in() const {
  WeightsIn view{.format = format_};
  if (!data_.defined()) return view;
  view.p = reinterpret_cast<const char*>(format_ == WeightFormat::f32 ? static_cast<const void*>(data_.data())
                                                                      : static_cast<const void*>(data_.ints()));
  if (format_ == WeightFormat::int8) view.scale = scale_.data();
  return view;
}

Tensor Weights::unpacked(Index first, Index count) const {
  Tensor numbers = Tensor::empty({count, columns_});
  parallel_for(count, 1, [&, from = in()](Index row, Index) {
    for (Index i = 0; i < columns_; ++i) numbers.data()[row * columns_ + i] = from.number(first + row, i, columns_);
  });
  return numbers;
}

}  // namespace flexformer
