// Matrix products by cuBLASLt. The library's matrices lie column after column, ours row after row: what it takes for a
// column is our row. So c = a b, read its way, is c^T = b^T a^T, and we hand it b as the left operand and a as the
// right one. Strides that are neither rows nor columns, and operands to be rounded to bfloat16, are packed first; what
// comes after the product (gelu, a residual) and is more than the library offers is a small kernel of ours.
#include <map>
#include <tuple>
#include <utility>

#include "cuda/kernel.h"
#include "tensor/functors.h"

namespace flexformer::cuda {
namespace {

void check_blas(CheckedOp what, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail("cuda: ", what.name, " failed: ", cublasLtGetStatusString(status), " (", what.file, ":", what.line, ")");
}

// One of cuBLASLt's objects, destroyed at the end of the scope.
template <class T, cublasStatus_t (*Destroy)(T)> struct Owned {
  T object = nullptr;
  Owned() = default;
  ~Owned() { Destroy(object); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr std::size_t kMostWorkspace = std::size_t(32) << 20;  // bytes

cublasLtHandle_t handle() {
  static const cublasLtHandle_t only = [] {
    cublasLtHandle_t made;
    check_blas("cublasLtCreate", cublasLtCreate(&made));
    return made;
  }();
  return only;
}

cudaDataType_t library_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// A matrix [rows, cols] as the library may read it: contiguous along a row, or along a column.
struct Matrix {
  ValuesIn p;
  Index rows, cols, row, col;  // sizes and strides
  Index batch;                 // stride between matrices
  bool by_rows() const { return (col == 1 || cols == 1) && (rows == 1 || row >= cols); }
  bool by_cols() const { return (row == 1 || rows == 1) && (cols == 1 || col >= rows); }
};

// Copies `count` matrices densely, along rows or along columns.
__global__ void pack(ValuesOut y, Matrix m, Index count, bool by_rows) {
  const Index inner = by_rows ? m.cols : m.rows, size = m.rows * m.cols;
  for (Index i = thread_number(); i < count * size; i += thread_count()) {
    const Index major = i % size / inner, minor = i % inner;
    const Index row = by_rows ? major : minor, col = by_rows ? minor : major;
    write(y, i, read(m.p, i / size * m.batch + row * m.row + col * m.col));
  }
}

// The same matrices in a form and a format that the library reads; `memory` keeps what was packed. A batch stride of 0
// stays one.
Matrix readable(const Matrix& m, Index batches, DType dtype, Tensor& memory) {
  if (m.p.dtype == dtype && (m.by_rows() || m.by_cols())) return m;
  const bool by_rows = m.col <= m.row;
  const Index size = m.rows * m.cols, count = m.batch == 0 ? 1 : batches;
  memory = Tensor::empty({count * size}, dtype, Device::cuda);
  launch_kernel(for_elements(count * size), pack, memory.values(), m, count, by_rows);
  return {memory.values(), m.rows, m.cols, by_rows ? m.cols : 1, by_rows ? 1 : m.rows, m.batch == 0 ? 0 : size};
}

// The product of one level of batches: c (+)= a b + bias (+ residual).
struct Product {
  Matrix a, b;  // both of one format
  ValuesOut c;
  ValuesIn added;    // what the product is added to (c itself, a residual) and in c's format, or null
  const void* bias;  // in c's format, or null
  Index M, N, K, c_row, c_batch, batches;
};

template <class Object, class Attribute, class Value>
void set(cublasStatus_t (*setter)(Object, Attribute, const void*, std::size_t), Object object, Attribute attribute,
         const Value& value) {
  check_blas("an attribute of cuBLASLt", setter(object, attribute, &value, sizeof value));
}

// `m` as the library names it: rows of ours are columns of its own. Returns whether it must be transposed.
cublasOperation_t describe(Layout& layout, const Matrix& m, Index batches) {
  const bool plain = m.by_rows();  // [rows, cols] by rows is the library's [cols, rows]
  const Index rows = plain ? m.cols : m.rows, cols = plain ? m.rows : m.cols, step = plain ? m.row : m.col;
  check_blas("a matrix layout", cublasLtMatrixLayoutCreate(&layout.object, library_type(m.p.dtype), std::uint64_t(rows),
                                                           std::uint64_t(cols), cols == 1 ? rows : step));
  set(cublasLtMatrixLayoutSetAttribute, layout.object, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t(batches));
  set(cublasLtMatrixLayoutSetAttribute, layout.object, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
      std::int64_t(m.batch));
  return plain ? CUBLAS_OP_N : CUBLAS_OP_T;
}

// Finding an algorithm takes far longer than starting it, so it is found once for everything that its choice rests on.
using ProblemKey = std::tuple<Index, Index, Index, Index, Index, Index, Index, int, int, int, int, std::uint32_t>;

// The largest power of two, up to 256, that divides all addresses.
std::uint32_t alignment(std::initializer_list<const void*> addresses) {
  std::uintptr_t bits = 256;
  for (const void* p : addresses) bits |= reinterpret_cast<std::uintptr_t>(p);
  return std::uint32_t(bits & (~bits + 1));
}

struct Algorithm {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspace;  // bytes
};
Algorithm find_algorithm(const Product& p, const Description& description, const Layout& left, const Layout& right,
                         const Layout& out, std::uint32_t aligned) {
  Preference preference;
  check_blas("a preference", cublasLtMatmulPreferenceCreate(&preference.object));
  set(cublasLtMatmulPreferenceSetAttribute, preference.object, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      kMostWorkspace);
  for (auto of : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(cublasLtMatmulPreferenceSetAttribute, preference.object, of, aligned);
  cublasLtMatmulHeuristicResult_t result;
  int count = 0;
  check_blas("the choice of an algorithm",
             cublasLtMatmulAlgoGetHeuristic(handle(), description.object, left.object, right.object, out.object,
                                            out.object, preference.object, 1, &result, &count));
  check("matmul", count > 0, "cuBLASLt has no algorithm for [", p.M, ",", p.K, "] times [", p.K, ",", p.N, "]");
  return {result.algo, result.workspaceSize};
}

void multiply(const Product& p) {
  Description description;
  Layout left, right, out;
  check_blas("a product's description", cublasLtMatmulDescCreate(&description.object, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t left_op = describe(left, p.b, p.batches), right_op = describe(right, p.a, p.batches);
  describe(out, {p.c, p.M, p.N, p.c_row, 1, p.c_batch}, p.batches);
  set(cublasLtMatmulDescSetAttribute, description.object, CUBLASLT_MATMUL_DESC_TRANSA, left_op);
  set(cublasLtMatmulDescSetAttribute, description.object, CUBLASLT_MATMUL_DESC_TRANSB, right_op);
  if (p.bias) {
    set(cublasLtMatmulDescSetAttribute, description.object, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(cublasLtMatmulDescSetAttribute, description.object, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const void* added = p.added.p ? p.added.p : p.c.p;
  const std::uint32_t aligned = alignment({p.a.p.p, p.b.p.p, p.c.p, added, p.bias});
  const ProblemKey key{p.M,
                       p.N,
                       p.K,
                       p.batches,
                       left_op == CUBLAS_OP_N ? p.b.row : p.b.col,
                       right_op == CUBLAS_OP_N ? p.a.row : p.a.col,
                       p.c_row,
                       left_op,
                       right_op,
                       library_type(p.a.p.dtype),
                       (p.bias ? 1 : 0) + (p.added.p ? 2 : 0) + (p.c.dtype == DType::bf16 ? 4 : 0),
                       aligned};
  static std::map<ProblemKey, Algorithm> algorithms;
  auto found = algorithms.find(key);
  if (found == algorithms.end())
    found = algorithms.emplace(key, find_algorithm(p, description, left, right, out, aligned)).first;
  const auto& [algo, bytes] = found->second;
  Tensor workspace = Tensor::empty({Index(bytes + 3) / 4}, DType::f32, Device::cuda);
  const float one = 1, keep = p.added.p ? 1 : 0;
  check_blas("a product",
             cublasLtMatmul(handle(), description.object, &one, p.b.p.p, left.object, p.a.p.p, right.object, &keep,
                            added, out.object, p.c.p, out.object, &algo, workspace.data(), bytes, stream()));
}

// c (+)= bias: the product when K = 0.
__global__ void empty_product(GradOut c, const float* bias, Index n, Index N, Index c_row) {
  for (Index i = thread_number(); i < n; i += thread_count()) put(c, i / N * c_row + i % N, bias ? bias[i % N] : 0.0f);
}

// gelu or its derivative, and the residual, for a c that holds a b + bias (kernels.h, Epilogue).
__global__ void finish(Gemm g) {
  for (Index i = thread_number(); i < g.M * g.N; i += thread_count()) {
    const Index at = i / g.N * g.c_row + i % g.N;
    float y = read(g.c.p, at);
    if (g.epilogue != Epilogue::none) {
      const bool forward = g.epilogue == Epilogue::gelu;
      const float x = forward ? y : read(g.saved, at), gate = functors::GeluTanh::gate(x);
      write(g.saved, at, forward ? x : x * gate);
      y = forward ? x * gate : chain(y, functors::GeluTanh::slope(x, gate));
    }
    if (g.residual.p) y += read(g.residual, at);
    write(g.c.p, at, y);
  }
}

// The products of one outer batch. The library takes operands of one format, and a bias in that of the result.
void product_of_batch(const Gemm& g, Index outer) {
  const GradOut c = g.c.from(outer * g.c_batch[0]);
  const Index batches = g.batch[1];
  if (g.K == 0) {
    for (Index i = 0; i < batches; ++i)
      launch_kernel(for_elements(g.M * g.N), empty_product, c.from(i * g.c_batch[1]), g.bias, g.M * g.N, g.N, g.c_row);
    return;
  }
  const bool any_bf16 = g.a.dtype == DType::bf16 || g.b.dtype == DType::bf16 || c.p.dtype == DType::bf16;
  const DType read_as = g.bf16 || any_bf16 ? DType::bf16 : DType::f32;
  const Matrix a{g.a.from(outer * g.a_batch[0]), g.M, g.K, g.a_row, g.a_col, g.a_batch[1]};
  const Matrix b{g.b.from(outer * g.b_batch[0]), g.K, g.N, g.b_row, g.b_col, g.b_batch[1]};
  Tensor memory_a, memory_b, memory_bias;
  multiply({.a = readable(a, batches, read_as, memory_a),
            .b = readable(b, batches, read_as, memory_b),
            .c = c.p,
            .added = c.add                          ? c.p
                     : g.epilogue == Epilogue::none ? g.residual
                                                    : nullptr,
            .bias = g.bias ? readable({g.bias, 1, g.N, g.N, 1, 0}, 1, c.p.dtype, memory_bias).p.p : nullptr,
            .M = g.M,
            .N = g.N,
            .K = g.K,
            .c_row = g.c_row,
            .c_batch = g.c_batch[1],
            .batches = batches});
}

// The same product with a single level of batches (the inner one) where its strides allow that.
Gemm with_one_level(Gemm g) {
  Index* strides[] = {g.a_batch, g.b_batch, g.c_batch};
  if (g.batch[1] == 1) {
    std::swap(g.batch[0], g.batch[1]);
    for (Index* stride : strides) std::swap(stride[0], stride[1]);
  }
  for (const Index* stride : strides)
    if (g.batch[0] > 1 && stride[0] != stride[1] * g.batch[1]) return g;
  g.batch[1] *= std::exchange(g.batch[0], 1);
  return g;
}

}  // namespace

void run(const Gemm& given) {
  if (!given.c || given.batch[0] * given.batch[1] == 0 || given.M == 0 || given.N == 0) return;
  const Gemm g = with_one_level(given);
  for (Index outer = 0; outer < g.batch[0]; ++outer) product_of_batch(g, outer);
  const bool residual_left = g.residual.p && (g.c.add || g.K == 0);
  if (g.epilogue != Epilogue::none || residual_left) launch_kernel(for_elements(g.M * g.N), finish, g);
}

}  // namespace flexformer::cuda
