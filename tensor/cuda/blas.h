// Matrix products by cuBLASLt.
#pragma once
#include <cublasLt.h>

#include "tensor/cuda/library.h"
#include "tensor/cuda/stream.h"

// clang-format off
#define PERIGEE_BLAS_FUNCTIONS(F) \
  F(cublasLtCreate) F(cublasLtMatmul) F(cublasLtMatmulAlgoGetHeuristic) F(cublasLtMatmulDescCreate) \
  F(cublasLtMatmulDescSetAttribute) F(cublasLtMatmulDescDestroy) F(cublasLtMatrixLayoutCreate) \
  F(cublasLtMatrixLayoutSetAttribute) F(cublasLtMatrixLayoutDestroy) F(cublasLtMatmulPreferenceCreate) \
  F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtMatmulPreferenceDestroy)
// clang-format on

namespace pg::cuda {

PERIGEE_CUDA_TABLE(Blas, PERIGEE_BLAS_FUNCTIONS, check_blas)

// A row-major matrix of a batch, or its transpose in memory.
struct Matrix {
  const void* data;
  int64_t ld, batch_stride;  // in elements
  bool transposed;
};

// c = activation(a b + bias), or a b + addend: matrices m x k and k x n. All are of one floating dtype; c, addend and
// bias have no gaps.
struct Product {
  DType dtype;
  int64_t batch, m, n, k;
  Matrix a, b;
  void* c;
  const void* bias = nullptr;                                             // n elements; not for float64
  const void* addend = nullptr;                                           // as large as c
  enum class Act : uint8_t { kNone, kRelu, kGeluTanh } act = Act::kNone;  // only with float32 and halves
};
// Returns false if the library has no algorithm for it.
bool multiply(Stream& stream, const Product& product);

// Whether float32 products may round their operands to TF32.
void allow_tf32(bool on);

}  // namespace pg::cuda
