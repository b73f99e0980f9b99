// cuSOLVER by Eigen, in the order of the stream. Arguments are checked as the library does, and its working memory is
// overwritten.
#include <cusolverDn.h>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>

#include "../device/queue.h"
#include "fake.h"

struct cusolverDnContext {
  cudaStream_t stream = nullptr;
};
struct cusolverDnParams {
  int made = 1;
};

namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using Block = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;
template <class T>
Block<T> block(void* data, int64_t rows, int64_t columns, int64_t ld) {
  return {static_cast<T*>(data), rows, columns, Eigen::OuterStride<>(ld)};
}

constexpr size_t kDevice = 1024, kHost = 64;  // bytes of working memory for each row

struct Working {
  void* device;
  size_t device_bytes;
  void* host;
  size_t host_bytes;
};

cusolverStatus_t measure(bool valid, int64_t rows, size_t* device, size_t* host) {
  if (!valid) return CUSOLVER_STATUS_INVALID_VALUE;
  *device = size_t(rows) * kDevice, *host = size_t(rows) * kHost;
  return CUSOLVER_STATUS_SUCCESS;
}

// Whether all types are the same, float or double.
bool alike(std::initializer_list<cudaDataType> types) {
  const std::set<cudaDataType> all(types);
  return all.size() == 1 && (*all.begin() == CUDA_R_32F || *all.begin() == CUDA_R_64F);
}

// Queues f(T()) for the type. `info` becomes its result.
template <class F>
cusolverStatus_t queue_work(cusolverDnHandle_t handle, bool valid, cudaDataType type, int64_t rows, const Working& w,
                            int* info, F f) {
  if (!handle || !info || !valid) return CUSOLVER_STATUS_INVALID_VALUE;
  if (!w.device || w.device_bytes < size_t(rows) * kDevice || (w.host_bytes > 0 && !w.host))
    return CUSOLVER_STATUS_INVALID_WORKSPACE;
  if (w.host) std::memset(w.host, 0xff, w.host_bytes);
  queue::add(handle->stream, [=] {
    std::memset(w.device, 0xff, w.device_bytes);
    *info = type == CUDA_R_64F ? f(double()) : f(float());
  });
  return CUSOLVER_STATUS_SUCCESS;
}
bool has_host(const Working& w, int64_t rows) { return w.host_bytes >= size_t(rows) * kHost; }

template <class T>
int factor_lu(Block<T> a, int64_t* pivots) {
  int info = 0;
  const int64_t n = a.rows();
  for (int64_t j = 0; j < n; ++j) {
    Eigen::Index at = 0;
    a.col(j).tail(n - j).cwiseAbs().maxCoeff(&at);
    pivots[j] = j + at + 1;
    if (a(j + at, j) == T(0)) {
      if (!info) info = int(j + 1);
      continue;
    }
    a.row(j).swap(a.row(j + at));
    a.col(j).tail(n - j - 1) /= a(j, j);
    a.bottomRightCorner(n - j - 1, n - j - 1) -= a.col(j).tail(n - j - 1) * a.row(j).tail(n - j - 1);
  }
  return info;
}

template <class T>
void solve_lu(const Block<T>& lu, bool transposed, const int64_t* pivots, Block<T> b) {
  const int64_t n = lu.rows();
  const auto lower = lu.template triangularView<Eigen::UnitLower>();
  const auto upper = lu.template triangularView<Eigen::Upper>();
  if (!transposed) {
    for (int64_t i = 0; i < n; ++i) b.row(i).swap(b.row(pivots[i] - 1));
    lower.solveInPlace(b);
    return upper.solveInPlace(b);
  }
  upper.transpose().solveInPlace(b);
  lower.transpose().solveInPlace(b);
  for (int64_t i = n - 1; i >= 0; --i) b.row(i).swap(b.row(pivots[i] - 1));
}

// Eigen stores reflectors as LAPACK does.
template <class T>
void factor_qr(Block<T> a, T* tau) {
  const Eigen::HouseholderQR<Matrix<T>> f(a);
  a = f.matrixQR();
  for (int64_t i = 0; i < std::min(a.rows(), a.cols()); ++i) tau[i] = f.hCoeffs()(i);
}

template <class T>
void make_q(Block<T> q, int64_t k, const T* tau) {
  const Matrix<T> vectors = q.leftCols(k);
  const Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, 1>> factors(tau, k);
  Matrix<T> out = Matrix<T>::Identity(q.rows(), q.cols());
  out.applyOnTheLeft(Eigen::householderSequence(vectors, factors));
  q = out;
}

template <class T>
cusolverStatus_t orgqr(cusolverDnHandle_t handle, int m, int n, int k, T* a, int lda, const T* tau, T* work, int size,
                       int* info) {
  const bool valid = m >= n && n >= k && k >= 0 && lda >= m && a && tau;
  const Working w{work, size_t(size) * sizeof(T), nullptr, 0};
  return queue_work(handle, valid, sizeof(T) == 8 ? CUDA_R_64F : CUDA_R_32F, m, w, info, [=](auto) {
    make_q(block<T>(a, m, n, lda), k, tau);
    return 0;
  });
}

}  // namespace

#define FAKE(function) \
  if (const int failed = fake::failure(#function)) return cusolverStatus_t(failed)

#pragma GCC visibility push(default)
extern "C" {

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* made) {
  FAKE(cusolverDnCreate);
  return *made = new cusolverDnContext, CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t gone) { return delete gone, CUSOLVER_STATUS_SUCCESS; }
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  return handle->stream = stream, CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t* made) {
  return *made = new cusolverDnParams, CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t gone) { return delete gone, CUSOLVER_STATUS_SUCCESS; }

cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t,
                                             int64_t n, cudaDataType type, const void*, int64_t lda,
                                             cudaDataType compute, size_t* device, size_t* host) {
  return measure(handle && params && lda >= n && alike({type, compute}), n, device, host);
}
cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t triangle,
                                  int64_t n, cudaDataType type, void* a, int64_t lda, cudaDataType compute, void* work,
                                  size_t bytes, void* host, size_t host_bytes, int* info) {
  FAKE(cusolverDnXpotrf);
  const Working w{work, bytes, host, host_bytes};
  const bool valid = params && a && lda >= n && alike({type, compute}) && has_host(w, n);
  return queue_work(handle, valid && triangle == CUBLAS_FILL_MODE_UPPER, type, n, w, info, [=]<class T>(T) {
    auto to = block<T>(a, n, n, lda);
    const Eigen::LLT<Matrix<T>, Eigen::Upper> f(to);
    if (f.info() != Eigen::Success) return 1;
    to.template triangularView<Eigen::Upper>() = f.matrixU();
    return 0;
  });
}

cusolverStatus_t cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                             cudaDataType type, const void*, int64_t lda, cudaDataType compute,
                                             size_t* device, size_t* host) {
  return measure(handle && params && lda >= m && m == n && alike({type, compute}), n, device, host);
}
cusolverStatus_t cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                  cudaDataType type, void* a, int64_t lda, int64_t* pivots, cudaDataType compute,
                                  void* work, size_t bytes, void* host, size_t host_bytes, int* info) {
  FAKE(cusolverDnXgetrf);
  const Working w{work, bytes, host, host_bytes};
  const bool valid = params && a && pivots && m == n && lda >= m && alike({type, compute}) && has_host(w, n);
  return queue_work(handle, valid, type, n, w, info,
                    [=]<class T>(T) { return factor_lu<T>(block<T>(a, n, n, lda), pivots); });
}
cusolverStatus_t cusolverDnXgetrs(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasOperation_t op, int64_t n,
                                  int64_t columns, cudaDataType type, const void* a, int64_t lda, const int64_t* pivots,
                                  cudaDataType b_type, void* b, int64_t ldb, int* info) {
  FAKE(cusolverDnXgetrs);
  if (!handle || !params || !a || !b || !pivots || !info || lda < n || ldb < n || !alike({type, b_type}))
    return CUSOLVER_STATUS_INVALID_VALUE;
  queue::add(handle->stream, [=] {
    const auto run = [&]<class T>(T) {
      solve_lu<T>(block<T>(const_cast<void*>(a), n, n, lda), op == CUBLAS_OP_T, pivots, block<T>(b, n, columns, ldb));
    };
    type == CUDA_R_64F ? run(double()) : run(float());
    *info = 0;
  });
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXgeqrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t,
                                             cudaDataType type, const void*, int64_t lda, cudaDataType tau_type,
                                             const void*, cudaDataType compute, size_t* device, size_t* host) {
  return measure(handle && params && lda >= m && alike({type, tau_type, compute}), m, device, host);
}
cusolverStatus_t cusolverDnXgeqrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                  cudaDataType type, void* a, int64_t lda, cudaDataType tau_type, void* tau,
                                  cudaDataType compute, void* work, size_t bytes, void* host, size_t host_bytes,
                                  int* info) {
  FAKE(cusolverDnXgeqrf);
  const Working w{work, bytes, host, host_bytes};
  const bool valid = params && a && tau && lda >= m && alike({type, tau_type, compute}) && has_host(w, m);
  return queue_work(handle, valid, type, m, w, info, [=]<class T>(T) {
    factor_qr<T>(block<T>(a, m, n, lda), static_cast<T*>(tau));
    return 0;
  });
}

#define ORGQR(Letter, T)                                                                                          \
  cusolverStatus_t cusolverDn##Letter##orgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const T*, \
                                                        int lda, const T*, int* size) {                           \
    *size = m * int(kDevice / sizeof(T));                                                                         \
    return handle && m >= n && n >= k && lda >= m ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_INVALID_VALUE;      \
  }                                                                                                               \
  cusolverStatus_t cusolverDn##Letter##orgqr(cusolverDnHandle_t handle, int m, int n, int k, T* a, int lda,       \
                                             const T* tau, T* work, int size, int* info) {                        \
    FAKE(cusolverDn##Letter##orgqr);                                                                              \
    return orgqr(handle, m, n, k, a, lda, tau, work, size, info);                                                 \
  }
ORGQR(S, float)
ORGQR(D, double)

cusolverStatus_t cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t,
                                             cublasFillMode_t, int64_t n, cudaDataType type, const void*, int64_t lda,
                                             cudaDataType w_type, const void*, cudaDataType compute, size_t* device,
                                             size_t* host) {
  return measure(handle && params && lda >= n && alike({type, w_type, compute}), n, device, host);
}
cusolverStatus_t cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t job,
                                  cublasFillMode_t triangle, int64_t n, cudaDataType type, void* a, int64_t lda,
                                  cudaDataType w_type, void* values, cudaDataType compute, void* work, size_t bytes,
                                  void* host, size_t host_bytes, int* info) {
  FAKE(cusolverDnXsyevd);
  const Working w{work, bytes, host, host_bytes};
  const bool valid = params && a && values && lda >= n && alike({type, w_type, compute}) && has_host(w, n);
  return queue_work(handle, valid && triangle == CUBLAS_FILL_MODE_UPPER, type, n, w, info, [=]<class T>(T) {
    auto x = block<T>(a, n, n, lda);
    const Matrix<T> lower = x.template triangularView<Eigen::Upper>().transpose();
    const Eigen::SelfAdjointEigenSolver<Matrix<T>> f(lower);
    block<T>(values, n, 1, n) = f.eigenvalues();
    if (job == CUSOLVER_EIG_MODE_VECTOR)
      x = -f.eigenvectors();  // the library does not choose signs
    else
      x.setConstant(T(NAN));
    return f.info() == Eigen::Success ? 0 : 1;
  });
}

cusolverStatus_t cusolverDnXgesvd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char,
                                             signed char, int64_t m, int64_t n, cudaDataType type, const void*,
                                             int64_t lda, cudaDataType s_type, const void*, cudaDataType u_type,
                                             const void*, int64_t ldu, cudaDataType vt_type, const void*, int64_t ldvt,
                                             cudaDataType compute, size_t* device, size_t* host) {
  const bool valid = m >= n && lda >= m && ldu >= m && ldvt >= n && alike({type, s_type, u_type, vt_type, compute});
  return measure(handle && params && valid, m, device, host);
}
cusolverStatus_t cusolverDnXgesvd(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char left,
                                  signed char right, int64_t m, int64_t n, cudaDataType type, void* a, int64_t lda,
                                  cudaDataType s_type, void* s, cudaDataType u_type, void* u, int64_t ldu,
                                  cudaDataType vt_type, void* vt, int64_t ldvt, cudaDataType compute, void* work,
                                  size_t bytes, void* host, size_t host_bytes, int* info) {
  FAKE(cusolverDnXgesvd);
  const Working w{work, bytes, host, host_bytes};
  const bool known =
      std::strchr("ASN", left) && std::strchr("ASN", right) && (left == 'N' || u) && (right == 'N' || vt);
  const bool valid = params && a && s && m >= n && lda >= m && ldu >= m && ldvt >= n && known && has_host(w, m) &&
                     alike({type, s_type, u_type, vt_type, compute});
  return queue_work(handle, valid, type, m, w, info, [=]<class T>(T) {
    auto x = block<T>(a, m, n, lda);
    unsigned options = left == 'A' ? Eigen::ComputeFullU : left == 'S' ? Eigen::ComputeThinU : 0;
    if (right != 'N') options |= Eigen::ComputeFullV;
    const Eigen::JacobiSVD<Matrix<T>> f(x, options);
    x.setConstant(T(NAN));
    block<T>(s, n, 1, n) = f.singularValues();
    if (left != 'N') block<T>(u, m, left == 'A' ? m : n, ldu) = -f.matrixU();  // the library does not choose signs
    if (right != 'N') block<T>(vt, n, n, ldvt) = (left == 'N' ? 1 : -1) * f.matrixV().transpose();
    return 0;
  });
}

}  // extern "C"
#pragma GCC visibility pop
