#include "cuda/emulation/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/emulation/memory.h"
#include "tensor/error.h"

static std::size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;  // of the result's type
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, cols, ld;
  std::int32_t batches = 1;
  std::int64_t batch_stride = 0;
  // From the first to one past the last element.
  std::size_t bytes() const {
    const auto elements = (batches - 1) * batch_stride + (cols - 1) * ld + rows;
    return std::size_t(elements) * bytes_of(type);
  }
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::size_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // promised for a, b, c, d
};

namespace {

using Desc = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;

template <class T> cublasStatus_t set(T& member, const void* value, std::size_t bytes) {
  if (bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&member, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool fits(const Desc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const auto rows = [](const Layout& x, cublasOperation_t op) { return op == CUBLAS_OP_N ? x.rows : x.cols; };
  const auto cols = [](const Layout& x, cublasOperation_t op) { return op == CUBLAS_OP_N ? x.cols : x.rows; };
  for (const Layout* x : {&a, &b, &c, &d})
    if (x->rows < 1 || x->cols < 1 || x->ld < x->rows || x->batches != d.batches || x->batches < 1) return false;
  const bool formats = a.type == b.type && c.type == d.type && (a.type == CUDA_R_16BF || d.type == CUDA_R_32F);
  return formats && rows(a, desc.transpose_a) == d.rows && cols(b, desc.transpose_b) == d.cols &&
         cols(a, desc.transpose_a) == rows(b, desc.transpose_b) && c.rows == d.rows && c.cols == d.cols;
}

double number(const void* p, cudaDataType_t type, std::int64_t at) {
  if (type == CUDA_R_16BF) return double(__bfloat162float(static_cast<const __nv_bfloat16*>(p)[at]));
  return double(static_cast<const float*>(p)[at]);
}
double element(const Layout& x, cublasOperation_t op, const void* p, std::int64_t batch, std::int64_t row,
               std::int64_t col) {
  if (op == CUBLAS_OP_T) std::swap(row, col);
  return number(p, x.type, batch * x.batch_stride + col * x.ld + row);
}

void multiply(const Desc& desc, float alpha, const void* a, const Layout& la, const void* b, const Layout& lb,
              float beta, const void* c, const Layout& lc, void* d, const Layout& ld) {
  const std::int64_t K = desc.transpose_a == CUBLAS_OP_N ? la.cols : la.rows;
  for (std::int64_t batch = 0; batch < ld.batches; ++batch)
    for (std::int64_t col = 0; col < ld.cols; ++col)
      for (std::int64_t row = 0; row < ld.rows; ++row) {
        double sum = 0;
        for (std::int64_t k = 0; k < K; ++k)
          sum += element(la, desc.transpose_a, a, batch, row, k) * element(lb, desc.transpose_b, b, batch, k, col);
        double y = double(alpha) * sum;
        if (beta != 0) y += double(beta) * element(lc, CUBLAS_OP_N, c, batch, row, col);
        if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS) y += number(desc.bias, ld.type, row);
        const std::int64_t at = batch * ld.batch_stride + col * ld.ld + row;
        if (ld.type == CUDA_R_16BF)
          static_cast<__nv_bfloat16*>(d)[at] = float(y);
        else
          static_cast<float*>(d)[at] = float(y);
      }
}

void check_range(const char* name, const void* p, std::size_t bytes, std::size_t alignment) {
  const std::string wrong = flexformer::emu::range_error(p, bytes);
  flexformer::check("cublasLtMatmul", wrong.empty(), "matrix ", name, ": ", wrong);
  flexformer::check("cublasLtMatmul", reinterpret_cast<std::uintptr_t>(p) % alignment == 0, "matrix ", name,
                    " is not aligned to ", alignment, " bytes");
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
                                                 : "an unsupported value or parameter was passed to the function";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static cublasLtContext context;
  *handle = &context;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = new Desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(desc->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  *layout = new Layout{type, std::int64_t(rows), std::int64_t(cols), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(layout->batches, value, bytes)
                                                         : set(layout->batch_stride, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(preference->workspace, value, bytes);
  return set(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int asked, cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (asked < 1 || !fits(*desc, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {{}, std::min<std::size_t>(preference->workspace, 1000), CUBLAS_STATUS_SUCCESS};
  std::memcpy(results[0].algo.data, preference->alignment, sizeof preference->alignment);
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t) {
  if (!fits(*desc, *a_layout, *b_layout, *c_layout, *d_layout)) return CUBLAS_STATUS_INVALID_VALUE;
  std::uint32_t promised[4];
  std::memcpy(promised, algo->data, sizeof promised);
  check_range("a", a, a_layout->bytes(), promised[0]);
  check_range("b", b, b_layout->bytes(), promised[1]);
  check_range("c", c, c_layout->bytes(), promised[2]);
  check_range("d", d, d_layout->bytes(), promised[3]);
  if (workspace_bytes) check_range("workspace", workspace, workspace_bytes, 16);
  if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS)
    check_range("bias", desc->bias, std::size_t(d_layout->rows) * bytes_of(d_layout->type), bytes_of(d_layout->type));
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  flexformer::emu::submit([=, desc = *desc, la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout] {
    multiply(desc, scale, a, la, b, lb, keep, c, lc, d, ld);
  });
  return CUBLAS_STATUS_SUCCESS;
}
