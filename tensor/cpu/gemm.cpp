#include "tensor/cpu/gemm.h"

#include <algorithm>
#include <type_traits>

#include "tensor/cpu/eigen_gemm.h"
#include "tensor/cpu/gemv_simd.h"
#include "tensor/cpu/onednn.h"
#include "tensor/cpu/scratch.h"
#include "tensor/dtype.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

// Below this much work a thread is not worth waking.
constexpr int64_t kMacsPerTask = 1 << 20;

struct Problem {
  bool trans_a, trans_b;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
};

template <class T>
void scale(int64_t m, int64_t n, T beta, T* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? T(0) : beta * c[i * ldc + j];
}

// Rows of a transposed operand side by side, so that the GEMV kernels see them contiguous.
const float* contiguous_rows(int64_t rows, int64_t k, const float* x, int64_t ldx) {
  float* out = scratch<float>(ScratchSlot::kConvert, rows * k);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i) out[r * k + i] = x[i * ldx + r];
  return out;
}

// Products with at most kGemvMaxRows rows or columns; false where another path is better.
bool small_product(const Problem& p, float alpha, const float* a, const float* b, float beta, float* c) {
  const GemvEpilogue e{alpha, beta, nullptr, false};
  if (p.m <= kGemvMaxRows) {
    const float* x = p.trans_a && p.m * p.k > 1 ? contiguous_rows(p.m, p.k, a, p.lda) : a;
    const int64_t ldx = p.trans_a ? p.k : p.lda;
    if (p.trans_b) gemv_nt_f32(p.m, p.n, p.k, x, ldx, b, p.ldb, c, p.ldc, 1, e);
    else gemv_nn_f32(p.m, p.n, p.k, x, ldx, b, p.ldb, c, p.ldc, 1, e);
    return true;
  }
  if (p.n <= kGemvMaxRows) {  // the transposed product: c^T = b^T a^T
    const float* x = !p.trans_b && p.n * p.k > 1 ? contiguous_rows(p.n, p.k, b, p.ldb) : b;
    const int64_t ldx = p.trans_b ? p.ldb : p.k;
    if (p.trans_a) gemv_nn_f32(p.n, p.m, p.k, x, ldx, a, p.lda, c, 1, p.ldc, e);
    else gemv_nt_f32(p.n, p.m, p.k, x, ldx, a, p.lda, c, 1, p.ldc, e);
    return true;
  }
  return false;
}

// x W^T of middle size is where the prepared primitive beats dnnl_sgemm (by a quarter); elsewhere sgemm is as good
// and needs no preparation.
bool prefers_primitive(const Problem& p, float alpha, float beta) {
  return p.trans_b && !p.trans_a && alpha == 1 && beta == 0 && linear_prefers_primitive(p.m, p.n, p.k);
}

void multiply(const Problem& p, float alpha, const float* a, const float* b, float beta, float* c) {
  if (small_product(p, alpha, a, b, beta, c)) return;
  if (prefers_primitive(p, alpha, beta) && onednn_matmul_f32(true, p.m, p.n, p.k, a, p.lda, b, p.ldb, c, p.ldc)) return;
  onednn_sgemm(p.trans_a, p.trans_b, p.m, p.n, p.k, alpha, a, p.lda, b, p.ldb, beta, c, p.ldc);
}

void multiply(const Problem& p, double alpha, const double* a, const double* b, double beta, double* c) {
  eigen_gemm_f64(p.trans_a, p.trans_b, p.m, p.n, p.k, alpha, a, p.lda, b, p.ldb, beta, c, p.ldc);
}

// Splits the longer of the two result dims over the pool in multiples of 16.
template <class T>
void gemm(const Problem& p, T alpha, const T* a, const T* b, T beta, T* c) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0 || alpha == 0) return scale(p.m, p.n, beta, c, p.ldc);
  const int64_t macs = p.m * p.n * p.k;
  if (macs < 2 * kMacsPerTask || num_threads() == 1) return multiply(p, alpha, a, b, beta, c);
  const bool by_rows = p.m > p.n;
  const int64_t length = by_rows ? p.m : p.n, units = (length + 15) / 16;
  const int64_t grain = std::max<int64_t>(1, kMacsPerTask * units / macs);
  parallel_for(units, grain, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * 16, count = std::min(length, end * 16) - first;
    Problem part = p;
    const T *pa = a, *pb = b;
    T* pc = c;
    if (by_rows) {
      part.m = count;
      pa += p.trans_a ? first : first * p.lda;
      pc += first * p.ldc;
    } else {
      part.n = count;
      pb += p.trans_b ? first * p.ldb : first;
      pc += first;
    }
    multiply(part, alpha, pa, pb, beta, pc);
  });
}

template <class T>
void gemm_batched(int64_t count, BatchStrides s, const Problem& p, T alpha, const T* a, const T* b, T beta, T* c) {
  const int64_t macs = std::max<int64_t>(1, p.m * p.n * p.k);
  if (count < num_threads() && macs >= 2 * kMacsPerTask) {
    for (int64_t i = 0; i < count; ++i) gemm(p, alpha, a + i * s.a, b + i * s.b, beta, c + i * s.c);
    return;
  }
  parallel_for(count, std::max<int64_t>(1, kMacsPerTask / macs), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (p.m == 0 || p.n == 0) continue;
      if (p.k == 0 || alpha == 0) scale(p.m, p.n, beta, c + i * s.c, p.ldc);
      else multiply(p, alpha, a + i * s.a, b + i * s.b, beta, c + i * s.c);
    }
  });
}

template <class H>
void widen(const uint16_t* from, int64_t rows, int64_t cols, int64_t ld, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < cols; ++i) {
      H h;
      h.bits = from[r * ld + i];
      to[r * cols + i] = h;
    }
}

template <class H>
void gemm_widened(const Problem& p, float alpha, const uint16_t* a, const uint16_t* b, float beta, uint16_t* c) {
  const int64_t a_rows = p.trans_a ? p.k : p.m, a_cols = p.trans_a ? p.m : p.k;
  const int64_t b_rows = p.trans_b ? p.n : p.k, b_cols = p.trans_b ? p.k : p.n;
  float* wa = scratch<float>(ScratchSlot::kPad, p.m * p.k + p.k * p.n + p.m * p.n);
  float* wb = wa + p.m * p.k;
  float* wc = wb + p.k * p.n;
  widen<H>(a, a_rows, a_cols, p.lda, wa);
  widen<H>(b, b_rows, b_cols, p.ldb, wb);
  if (beta != 0) widen<H>(c, p.m, p.n, p.ldc, wc);
  gemm<float>({p.trans_a, p.trans_b, p.m, p.n, p.k, a_cols, b_cols, p.n}, alpha, wa, wb, beta, wc);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) c[i * p.ldc + j] = H(wc[i * p.n + j]).bits;
}

template <class T>
void finish_rows(int64_t m, int64_t n, const T* bias, bool relu, T* y) {
  for (int64_t i = 0; i < m; ++i) {
    T* row = y + i * n;
    if (bias)
      for (int64_t j = 0; j < n; ++j) row[j] += bias[j];
    if (relu)
      for (int64_t j = 0; j < n; ++j) row[j] = row[j] <= 0 ? T(0) : row[j];
  }
}

// A matrix-vector product is limited by reading w; each thread takes its share of the rows.
constexpr int64_t kGemvWeightsPerTask = 1 << 17;

void gemv_linear(int64_t m, int64_t n, int64_t k, const float* x, const float* w, const float* bias, bool relu,
                 float* y) {
  const int64_t units = (n + 15) / 16;
  const int64_t grain = std::max<int64_t>(1, kGemvWeightsPerTask / std::max<int64_t>(1, 16 * k));
  const auto part = [&](int64_t begin, int64_t end) {
    const int64_t first = begin * 16, count = std::min(n, end * 16) - first;
    const GemvEpilogue e{1, 0, bias ? bias + first : nullptr, relu};
    gemv_nt_f32(m, count, k, x, k, w + first * k, k, y + first, n, 1, e);
  };
  if (n * k <= 2 * kGemvWeightsPerTask) part(0, units);
  else parallel_for(units, grain, part);
}

template <class T>
void linear(int64_t m, int64_t n, int64_t k, const T* x, const T* w, const T* bias, bool relu, T* y) {
  if (m == 0 || n == 0) return;
  if constexpr (std::is_same_v<T, float>)
    if (m <= kGemvMaxRows) return gemv_linear(m, n, k, x, w, bias, relu, y);
  gemm<T>({false, true, m, n, k, std::max<int64_t>(k, 1), std::max<int64_t>(k, 1), n}, T(1), x, w, T(0), y);
  finish_rows(m, n, bias, relu, y);
}

}  // namespace

bool linear_prefers_primitive(int64_t m, int64_t n, int64_t k) { return m >= 16 && m <= 512 && m * n * k >= 100000 && n > kGemvMaxRows; }

void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
              const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  gemm<float>({trans_a, trans_b, m, n, k, lda, ldb, ldc}, alpha, a, b, beta, c);
}

void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
              const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  gemm<double>({trans_a, trans_b, m, n, k, lda, ldb, ldc}, alpha, a, b, beta, c);
}

void gemm_half(HalfKind kind, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
               const uint16_t* a, int64_t lda, const uint16_t* b, int64_t ldb, float beta, uint16_t* c, int64_t ldc) {
  const bool brain = kind == HalfKind::kBFloat16;
  const bool large = m * n * k >= kMacsPerTask;
  if (brain && large && !trans_a && alpha == 1 && beta == 0 &&
      onednn_matmul_bf16(trans_b, m, n, k, a, lda, b, ldb, c, ldc))
    return;
  const Problem p{trans_a, trans_b, m, n, k, lda, ldb, ldc};
  if (brain) gemm_widened<BFloat16>(p, alpha, a, b, beta, c);
  else gemm_widened<Half>(p, alpha, a, b, beta, c);
}

void gemm_batched_f32(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
                      int64_t ldc) {
  gemm_batched<float>(count, strides, {trans_a, trans_b, m, n, k, lda, ldb, ldc}, alpha, a, b, beta, c);
}

void gemm_batched_f64(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                      double alpha, const double* a, int64_t lda, const double* b, int64_t ldb, double beta, double* c,
                      int64_t ldc) {
  gemm_batched<double>(count, strides, {trans_a, trans_b, m, n, k, lda, ldb, ldc}, alpha, a, b, beta, c);
}

void linear_f32(int64_t m, int64_t n, int64_t k, const float* x, const float* w, const float* bias, bool relu,
                float* y) {
  linear<float>(m, n, k, x, w, bias, relu, y);
}

void linear_f64(int64_t m, int64_t n, int64_t k, const double* x, const double* w, const double* bias, bool relu,
                double* y) {
  linear<double>(m, n, k, x, w, bias, relu, y);
}

}  // namespace pg::cpu
