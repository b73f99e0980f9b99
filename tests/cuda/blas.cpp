// The few functions of cuBLASLt that the device uses, as plain loops.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "../device/queue.h"
#include "fake.h"

namespace {

struct Attributes {
  std::map<int, std::vector<char>> all;
  template <class T>
  T get(int which, T otherwise) const {
    const auto found = all.find(which);
    if (found == all.end()) return otherwise;
    std::memcpy(&otherwise, found->second.data(), sizeof otherwise);
    return otherwise;
  }
};
struct MatrixLayout : Attributes {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};

float narrow(float v, cudaDataType t) {  // rounds to a half
  uint32_t bits;
  if (t == CUDA_R_16BF) {
    std::memcpy(&bits, &v, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    std::memcpy(&v, &bits, 4);
  }
  return v;
}
double load(cudaDataType t, const char* data, int64_t at) {
  if (t == CUDA_R_64F) return reinterpret_cast<const double*>(data)[at];
  if (t == CUDA_R_32F) return reinterpret_cast<const float*>(data)[at];
  uint16_t half = reinterpret_cast<const uint16_t*>(data)[at];
  if (t == CUDA_R_16F) {
    HostHalf v;
    std::memcpy(&v, &half, 2);
    return double(v);
  }
  const uint32_t bits = uint32_t(half) << 16;
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}
void store(cudaDataType t, char* data, int64_t at, double v) {
  if (t == CUDA_R_64F) return void(reinterpret_cast<double*>(data)[at] = v);
  if (t == CUDA_R_32F) return void(reinterpret_cast<float*>(data)[at] = float(v));
  uint16_t half;
  if (t == CUDA_R_16F) {
    const auto rounded = HostHalf(float(v));
    std::memcpy(&half, &rounded, 2);
  } else {
    const float rounded = narrow(float(v), t);
    uint32_t bits;
    std::memcpy(&bits, &rounded, 4);
    half = uint16_t(bits >> 16);
  }
  reinterpret_cast<uint16_t*>(data)[at] = half;
}

struct Side {
  MatrixLayout layout;
  const char* data;
  bool transposed;
  double at(int64_t batch, int64_t row, int64_t col) const {
    const int64_t offset = batch * layout.get(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t(0));
    return load(layout.type, data, offset + (transposed ? row * layout.ld + col : col * layout.ld + row));
  }
};

double activated(double v, int epilogue) {
  if (epilogue & CUBLASLT_EPILOGUE_RELU) v = v > 0 ? v : 0;
  if (epilogue & CUBLASLT_EPILOGUE_GELU) v = 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
  return v;
}

void multiply(const Side& a, const Side& b, const MatrixLayout& d, char* out, int epilogue, const char* bias,
              const char* addend) {
  const int64_t k = int64_t(a.transposed ? a.layout.rows : a.layout.cols);
  const int32_t batch = d.get(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(1));
  for (int32_t q = 0; q < batch; ++q)
    for (int64_t col = 0; col < int64_t(d.cols); ++col)
      for (int64_t row = 0; row < int64_t(d.rows); ++row) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += a.at(q, row, i) * b.at(q, i, col);
        if (epilogue & CUBLASLT_EPILOGUE_BIAS) sum += load(d.type, bias, row);
        const int64_t offset = q * d.get(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t(0));
        if (addend) sum += load(d.type, addend, offset + col * d.ld + row);
        store(d.type, out, offset + col * d.ld + row, activated(sum, epilogue));
      }
}

template <class T>
void set(T* object, int which, const void* value, size_t bytes) {
  const char* from = static_cast<const char*>(value);
  reinterpret_cast<Attributes*>(object)->all[which].assign(from, from + bytes);
}
const MatrixLayout& layout_of(cublasLtMatrixLayout_t l) { return *reinterpret_cast<const MatrixLayout*>(l); }
const Attributes& operation_of(cublasLtMatmulDesc_t d) { return *reinterpret_cast<const Attributes*>(d); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return *handle = reinterpret_cast<cublasLtHandle_t>(1), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Attributes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  return delete reinterpret_cast<Attributes*>(d), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  return set(d, which, value, bytes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  if (rows == 0 || cols == 0 || ld < int64_t(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  return *made = reinterpret_cast<cublasLtMatrixLayout_t>(new MatrixLayout{{}, type, rows, cols, ld}),
         CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  return delete reinterpret_cast<MatrixLayout*>(l), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t bytes) {
  return set(static_cast<Attributes*>(reinterpret_cast<MatrixLayout*>(l)), which, value, bytes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Attributes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return delete reinterpret_cast<Attributes*>(p), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    size_t bytes) {
  return set(p, which, value, bytes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  // As the library, none for an epilogue in float64.
  const int epilogue = operation_of(d).get(CUBLASLT_MATMUL_DESC_EPILOGUE, int(CUBLASLT_EPILOGUE_DEFAULT));
  *count = layout_of(a).type != CUDA_R_64F || epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  *found = {};
  found->workspaceSize = 1024;
  const auto& p = *reinterpret_cast<const Attributes*>(preference);
  for (int i = 0; i < 3; ++i)  // the alignment of a, b and c that the algorithm may rely on
    found->algo.data[i] = p.get(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, uint32_t(256));
  return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  if (const int failed = fake::failure("cublasLtMatmul")) return cublasStatus_t(failed);
  const void* arrays[] = {a, b, c};
  for (int i = 0; i < 3; ++i)
    if (reinterpret_cast<uintptr_t>(arrays[i]) % algorithm->data[i]) return CUBLAS_STATUS_INVALID_VALUE;
  const Attributes& o = operation_of(d);
  const Side left{layout_of(a_layout), static_cast<const char*>(a),
                  o.get(CUBLASLT_MATMUL_DESC_TRANSA, int(CUBLAS_OP_N)) == CUBLAS_OP_T};
  const Side right{layout_of(b_layout), static_cast<const char*>(b),
                   o.get(CUBLASLT_MATMUL_DESC_TRANSB, int(CUBLAS_OP_N)) == CUBLAS_OP_T};
  const int epilogue = o.get(CUBLASLT_MATMUL_DESC_EPILOGUE, int(CUBLASLT_EPILOGUE_DEFAULT));
  const auto* bias = o.get(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const char*>(nullptr));
  const bool adds =
      left.layout.type == CUDA_R_64F ? *static_cast<const double*>(beta) != 0 : *static_cast<const float*>(beta) != 0;
  const char* addend = adds ? static_cast<const char*>(c) : nullptr;
  queue::add(stream, [=, result = layout_of(out_layout)] {
    multiply(left, right, result, static_cast<char*>(out), epilogue, bias, addend);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
#pragma GCC visibility pop
