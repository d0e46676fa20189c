// THE CONTRACT between ops and backends. A kernel is a struct of named, shape-commented fields, filled in by an op and
// run by one overload of run() per backend; launch() is the only place that picks the backend. A backend that lacks a
// kernel fails at link time, naming it. The structs of attention are in kernels_attention.h.
//
// Legend: B batch, T or N time, H heads, D or d head size, dv value size, C channels, R rows, V vocabulary, M features.
// Every pointer is dense and row-major in the order of its comment unless strides are given.
#pragma once
#include <cmath>
#include <cstdint>

#include "tensor/host_device.h"
#include "tensor/kernels_attention.h"
#include "tensor/precision.h"
#include "tensor/profile.h"
#include "tensor/random.h"
#include "tensor/weights.h"

namespace flexformer {

// ---- elementwise -------------------------------------------------------------------------------------------------

// The elementwise ops are listed in functors.h, which only their kernels and callers need to read.
enum class Unary : int;
enum class Binary : int;

struct UnaryFwd {
  ValuesOut y;  // [n]
  ValuesIn x;   // [n]
  Index n;
  Unary op;
  float a;  // the functor's constant
};
// Where dy is exactly 0, dx is 0 even if the derivative is infinite: the branch that a mask did not take stays silent.
// x is null where the derivative is constant (scale, shift).
struct UnaryBwd {
  GradOut dx;      // [n]
  ValuesIn dy, x;  // [n]
  Index n;
  Unary op;
  float a;
};

// An output of four sizes (ones in front) and two inputs read with strides, 0 along a broadcast axis.
struct Broadcast {
  Index size[4], a[4], b[4];
};
struct BinaryFwd {
  ValuesOut y;    // [size]
  ValuesIn a, b;  // strided
  Broadcast shape;
  Binary op;
};
// da and db have their operand's own size: positions that were broadcast are summed, in order. They are one memory if
// both operands are one variable: da is written first. a and b are null where no derivative needs them (add, sub).
struct BinaryBwd {
  GradOut da, db;
  ValuesIn dy, a, b;
  Broadcast shape;
  Binary op;
};

// y = condition ? a : b; a null pointer for a or b stands for the constant `value`.
struct WhereFwd {
  ValuesOut y;                    // [n]
  const std::int32_t* condition;  // [n], not 0 = take a
  ValuesIn a, b;                  // [n]
  float value;
  Index n;
};
struct WhereBwd {
  GradOut da, db;  // [n]
  ValuesIn dy;
  const std::int32_t* condition;
  Index n;
};

// y = x * keep / (1 - p), keep drawn by Philox: the backward pass draws it again, so no mask is stored.
struct Dropout {
  GradOut y;   // [n]; backward: y is dx and x is dy
  ValuesIn x;  // [n]
  Index n;
  float p;
  RandomKey key;
  const std::int32_t* step = nullptr;  // [1] or null (0): makes the masks of each step others
  HD RandomKey mask_key() const { return {key.seed, key.stream + (step ? std::uint64_t(*step) << 32 : 0)}; }
};

// y[i] = x[i] (or += ) over a box of four sizes, both sides strided: permute, slice, concatenate and their gradients.
struct StridedCopy {
  GradOut y;
  ValuesIn x;
  Index size[4], y_stride[4], x_stride[4];
};

struct FillNormal {
  float* y;  // [n]: scale * N(0, 1)
  Index n;
  float scale;
  RandomKey key;
};
struct FillUniform {
  float* y;  // [n]: uniform in [low, high)
  Index n;
  float low, high;
  RandomKey key;
};

// ---- reductions over the middle axis of [outer, n, inner] -----------------------------------------------------------

// n = 0 writes zeros (x may be null then).
struct SumFwd {
  GradOut y;   // [outer, inner] = scale * sum_n x
  ValuesIn x;  // [outer, n, inner]
  Index outer, n, inner;
  float scale;
};
struct SumBwd {
  GradOut dx;   // [outer, n, inner] = scale * dy
  ValuesIn dy;  // [outer, inner]
  Index outer, n, inner;
  float scale;
};
// At a tie the first of the largest wins, and takes the whole gradient. A NaN wins over every number.
struct MaxFwd {
  ValuesOut y;           // [outer, inner]
  std::int32_t* argmax;  // [outer, inner]
  ValuesIn x;            // [outer, n, inner], n >= 1
  Index outer, n, inner;
};
struct MaxBwd {
  GradOut dx;                  // [outer, n, inner]
  ValuesIn dy;                 // [outer, inner]
  const std::int32_t* argmax;  // [outer, inner]
  Index outer, n, inner;
};
// Running sum; `reverse` runs from the end, which is the gradient of the forward direction.
struct Cumsum {
  GradOut y;
  ValuesIn x;  // [outer, n, inner]
  Index outer, n, inner;
  bool reverse;
};
// Softmax or log-softmax, in float whatever x is: 8 bits will not do for logarithms. A row whose every entry is
// -infinity gives zeros (log: -infinity) and no gradient.
struct SoftmaxFwd {
  float* y;
  ValuesIn x;  // [outer, n, inner]
  Index outer, n, inner;
  bool log;
};
struct SoftmaxBwd {
  GradOut dx;
  const float *dy, *y;  // [outer, n, inner]
  Index outer, n, inner;
  bool log;
};
struct LogSumExpFwd {
  float* y;    // [outer, inner]
  ValuesIn x;  // [outer, n, inner]
  Index outer, n, inner;
};
struct LogSumExpBwd {
  GradOut dx;
  const float *dy, *y;  // [outer, inner]
  ValuesIn x;           // [outer, n, inner]
  Index outer, n, inner;
};

// ---- norms over the last axis ---------------------------------------------------------------------------------------

HD inline float inverse_root(double x) { return x == 0 ? 0.0f : float(1 / std::sqrt(x)); }
// What a layer norm keeps of a row: its mean in two floats, as x - mean leaves the rounding of a large one in every
// element, and rstd = 1 / sqrt(var + eps). mean_low is 0 where it is less than a millionth of the spread.
struct RowMoments {
  float mean, mean_low, rstd;
  // From the mean and the mean of (x - float(mean))^2.
  HD static RowMoments of(double exact, double square, double eps) {
    const float mean = float(exact);
    const double low = exact - double(mean);
    if (!(low * low > 0x1p-40 * (square + eps))) return {mean, 0.0f, inverse_root(square + eps)};
    return {mean, float(low), inverse_root(square - low * low + eps)};
  }
};
// y = (x - mean - mean_low) * rstd * gamma + beta.
struct LayerNormFwd {
  ValuesOut y;                    // [R,C]
  float *mean, *mean_low, *rstd;  // [R]
  ValuesIn x;                     // [R,C]
  const float *gamma, *beta;      // [C]
  Index R, C;
  float eps;
};
struct LayerNormBwd {
  GradOut dx, dgamma, dbeta;                    // [R,C] [C] [C]
  ValuesIn dy, x;                               // [R,C]
  const float *gamma, *mean, *mean_low, *rstd;  // [C] [R] [R] [R]
  Index R, C;
};
// y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps); gamma may be null (ones). A row of zeros with eps = 0 has
// rstd = 0: output and gradient are 0.
struct RmsNormFwd {
  ValuesOut y;         // [R,C]
  float* rstd;         // [R]
  ValuesIn x;          // [R,C]
  const float* gamma;  // [C]
  Index R, C;
  float eps;
};
struct RmsNormBwd {
  GradOut dx, dgamma;         // [R,C] [C]
  ValuesIn dy, x;             // [R,C]
  const float *gamma, *rstd;  // [C] [R]
  Index R, C;
};

// ---- products -------------------------------------------------------------------------------------------------------

// What happens to x = a b + bias before it becomes c.
//   none      c = x
//   gelu      c = gelu(x) in its tanh form; x goes to `saved`
//   gelu_bwd  c = x gelu'(saved), and `saved` becomes gelu(saved), which the backward pass needs next
enum class Epilogue { none, gelu, gelu_bwd };

// c = epilogue(a b + bias) + residual for two levels of batches. Element (i,k) of a is a[i*a_row + k*a_col], element
// (k,j) of b is b[k*b_row + j*b_col], so that all transposes are strides; rows of c, saved and residual are contiguous,
// c_row apart. A batch stride of 0 reads the same matrix again. An epilogue or a residual needs a single batch; an
// epilogue does not add to c.
struct Gemm {
  GradOut c;          // [M,N]
  ValuesIn a, b;      // [M,K] [K,N]
  const float* bias;  // [N] or null; never where c.add: a gradient has none
  Index M, N, K;
  Index a_row, a_col, b_row, b_col, c_row;
  Index batch[2] = {1, 1};
  Index a_batch[2] = {0, 0}, b_batch[2] = {0, 0}, c_batch[2] = {0, 0};
  bool bf16 = false;  // a and b are rounded to bfloat16 first; sums stay float
  Epilogue epilogue = Epilogue::none;
  ValuesOut saved = nullptr;    // [M,N], for an epilogue
  ValuesIn residual = nullptr;  // [M,N] or null
};

// y = x W^T + bias + residual for few rows of x and weights of any format, which are read once. A row of y depends on
// its row of x alone, to the last bit. Nothing flows back: this is for models that decode.
struct FewRows {
  ValuesOut y;        // [R,O]
  ValuesIn x;         // [R,I]
  WeightsIn W;        // [O,I]
  const float* bias;  // [O] or null
  ValuesIn residual;  // [R,O] or null; may be y
  Index R, O, I;
};

// ---- tables and losses ----------------------------------------------------------------------------------------------

struct EmbeddingFwd {
  ValuesOut y;              // [R,C] = table[ids]
  ValuesIn table;           // [V,C]
  const std::int32_t* ids;  // [R], each in 0 .. V-1 (the op checks)
  Index R, C, V;
};
struct EmbeddingBwd {
  GradOut dtable;           // [V,C]; rows are added up in the order of ids
  ValuesIn dy;              // [R,C]
  const std::int32_t* ids;  // [R]
  Index R, C, V;
  std::int32_t padding;  // this row gets no gradient; -1: none
};
// loss_r = -(1-s) log p_target - s/V sum_v log p_v, s = smoothing; 0 where the target is `ignore`.
struct CrossEntropyFwd {
  float *loss, *lse;            // [R] [R]
  ValuesIn logits;              // [R,V]
  const std::int32_t* targets;  // [R]
  Index R, V;
  std::int32_t ignore;
  float smoothing;
};
struct CrossEntropyBwd {
  GradOut dlogits;              // [R,V] = dloss_r (softmax - target distribution); may be the memory of `logits`
  const float* dloss;           // [R]
  ValuesIn logits;              // [R,V]
  const float* lse;             // [R]
  const std::int32_t* targets;  // [R]
  Index R, V;
  std::int32_t ignore;
  float smoothing;
};

// ---- optimisers -----------------------------------------------------------------------------------------------------

// What changes from step to step. It lies in the memory of the step's device, as does the scale of the gradients, so
// that a step can be launched before its gradient is known on the host, and repeated with other numbers.
struct StepNumbers {
  float lr;
  float correction1, correction2;  // Adam: 1 - beta1^t, 1 - beta2^t
};
// Adam: L2 decay is added to the gradient, decoupled decay (AdamW) shrinks the parameter.
//   g = scale*g + l2*p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   p = p (1 - lr*decay) - lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
struct AdamStep {
  float *p, *m, *v;  // [n]
  const float* g;    // [n]
  Index n;
  const StepNumbers* numbers;  // [1]
  const float* scale;          // [1]; not a number: nothing changes
  float beta1, beta2, eps, l2, decay;
};
//   g = scale*g + l2*p;  m = momentum*m + g;  p -= lr * (nesterov ? g + momentum*m : m)
struct SgdStep {
  float *p, *m;    // [n]; m may be null when momentum is 0
  const float* g;  // [n]
  Index n;
  const StepNumbers* numbers;  // [1]
  const float* scale;          // [1]; not a number: nothing changes
  float momentum, l2;
  bool nesterov;
};
// The sum of squares of each of several arrays, in double: 1e20 squared is no float.
struct SquaredNorms {
  struct Array {
    const float* x;  // [n]
    Index n;
  };
  double* sums;         // [count]
  const Array* arrays;  // [count], in the host's memory on every device
  Index count;
};
// scale = min(1, clip / (norm + 1e-6)), norm = sqrt(sum squares); 1 where clip is 0, not a number where the norm is not
// finite, whatever clip is.
struct ClipScale {
  float* scale;           // [1]
  const double* squares;  // [count]
  Index count;
  double clip;
  HD float of(double sum) const {
    if (!std::isfinite(sum)) return NAN;
    const double least = clip / (std::sqrt(sum) + 1e-6);
    return clip > 0 && least < 1 ? float(least) : 1.0f;
  }
};

// clang-format off
#define FLEXFORMER_KERNELS(K)                                                              \
  K(UnaryFwd) K(UnaryBwd) K(BinaryFwd) K(BinaryBwd) K(WhereFwd) K(WhereBwd) K(Dropout)     \
  K(StridedCopy) K(FillNormal) K(FillUniform)                                              \
  K(SumFwd) K(SumBwd) K(MaxFwd) K(MaxBwd) K(Cumsum)                                        \
  K(SoftmaxFwd) K(SoftmaxBwd) K(LogSumExpFwd) K(LogSumExpBwd)                              \
  K(LayerNormFwd) K(LayerNormBwd) K(RmsNormFwd) K(RmsNormBwd)                              \
  K(Gemm) K(FewRows)                                                                       \
  K(EmbeddingFwd) K(EmbeddingBwd) K(CrossEntropyFwd) K(CrossEntropyBwd)                    \
  K(SoftmaxAttentionFwd) K(SoftmaxAttentionBwd) K(SoftmaxAttentionStep)                    \
  K(FeatureFwd) K(FeatureBwd) K(LinearAttentionFwd) K(LinearAttentionBwd)                  \
  K(LinearAttentionState) K(LinearAttentionStep) K(Rope)                                   \
  K(AdamStep) K(SgdStep) K(SquaredNorms) K(ClipScale)
// clang-format on

#define FLEXFORMER_DECLARE_RUN(Kernel) void run(const Kernel&);
namespace cpu {
FLEXFORMER_KERNELS(FLEXFORMER_DECLARE_RUN)
}
#if defined(FLEXFORMER_CUDA)
namespace cuda {
FLEXFORMER_KERNELS(FLEXFORMER_DECLARE_RUN)
}
#endif
#undef FLEXFORMER_DECLARE_RUN

// What a kernel must do at least: kernel_cost.cpp.
#define FLEXFORMER_DECLARE_COST(Kernel) Cost cost(const Kernel&);
FLEXFORMER_KERNELS(FLEXFORMER_DECLARE_COST)
#undef FLEXFORMER_DECLARE_COST

// How often each kernel has run, so that a test can tell which have never been tried.
#define FLEXFORMER_COUNT(Kernel) k##Kernel,
enum class KernelId { FLEXFORMER_KERNELS(FLEXFORMER_COUNT) count };
#undef FLEXFORMER_COUNT
inline Index kernel_launches[int(KernelId::count)] = {};

template <class Kernel> void run_on_device([[maybe_unused]] const char* name, const Kernel& kernel) {
#if defined(FLEXFORMER_CUDA)
  cuda::run(kernel);
#else
  static_cast<void>(kernel);
  check(name, false, "this build has no CUDA; rebuild with 'make CUDA=1'");
#endif
}
#define FLEXFORMER_LAUNCH(Kernel)                                              \
  inline void launch(Device device, const Kernel& kernel) {                    \
    ++kernel_launches[int(KernelId::k##Kernel)];                               \
    std::optional<profile::Timing> timing;                                     \
    if (profile::on) [[unlikely]]                                              \
      timing.emplace(device);                                                  \
    device == Device::cpu ? cpu::run(kernel) : run_on_device(#Kernel, kernel); \
    if (timing) [[unlikely]]                                                   \
      timing->stop(#Kernel, cost(kernel));                                     \
  }
FLEXFORMER_KERNELS(FLEXFORMER_LAUNCH)
#undef FLEXFORMER_LAUNCH

}  // namespace flexformer
