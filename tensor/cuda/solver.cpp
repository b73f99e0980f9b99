#include "tensor/cuda/solver.h"

#include <vector>

#include "tensor/cuda/cusolver.h"
#include "tensor/cuda/launch.h"
#include "tensor/error.h"

namespace pg::cuda {
namespace {

struct Handle {
  explicit Handle(Stream& stream) {
    cusolver().cusolverDnCreate(&handle);
    cusolver().cusolverDnSetStream(handle, stream.handle);
    cusolver().cusolverDnCreateParams(&params);
  }
  ~Handle() {
    if (params) cusolver().cusolverDnDestroyParams.status(params);
    if (handle) cusolver().cusolverDnDestroy.status(handle);
  }
  Handle(const Handle&) = delete;
  cusolverDnHandle_t handle = nullptr;
  cusolverDnParams_t params = nullptr;
};

// The memory that a function needs, on the device and on the host.
struct Sizes {
  size_t device = 0, host = 0;
};
struct Workspace {
  Workspace(Stream& stream, const Sizes& sizes) : device(stream, sizes.device), host(sizes.host) {}
  Scratch device;
  std::vector<char> host;
};

cudaDataType type_of(DType t) { return t == DType::kFloat64 ? CUDA_R_64F : CUDA_R_32F; }

void* offset(void* data, int64_t elements, DType t) { return static_cast<char*>(data) + elements * size_of(t); }

// The sizes of functions that count with 32 bits.
int narrow(int64_t n) {
  if (n > INT32_MAX) throw Error("cuda: cuSOLVER makes q of fewer than 2^31 elements");
  return int(n);
}

}  // namespace

void factor_cholesky(Stream& stream, const Columns& a, int32_t* info) {
  const auto& [handle, params] = kept_by<Handle>(stream);
  const cudaDataType t = type_of(a.dtype);
  const int64_t n = a.rows;
  Sizes size;
  cusolver().cusolverDnXpotrf_bufferSize(handle, params, CUBLAS_FILL_MODE_UPPER, n, t, a.data, n, t, &size.device,
                                         &size.host);
  Workspace room(stream, size);
  for (int64_t i = 0; i < a.count; ++i)
    cusolver().cusolverDnXpotrf(handle, params, CUBLAS_FILL_MODE_UPPER, n, t, a.at(i), n, t, room.device.data(),
                                size.device, room.host.data(), size.host, info + i);
}

void factor_lu(Stream& stream, const Columns& a, int64_t* pivots, int32_t* info) {
  const auto& [handle, params] = kept_by<Handle>(stream);
  const cudaDataType t = type_of(a.dtype);
  const int64_t n = a.rows;
  Sizes size;
  cusolver().cusolverDnXgetrf_bufferSize(handle, params, n, n, t, a.data, n, t, &size.device, &size.host);
  Workspace room(stream, size);
  for (int64_t i = 0; i < a.count; ++i)
    cusolver().cusolverDnXgetrf(handle, params, n, n, t, a.at(i), n, pivots + i * n, t, room.device.data(), size.device,
                                room.host.data(), size.host, info + i);
}

void solve_lu(Stream& stream, bool transposed, const Columns& lu, const int64_t* pivots, const Columns& b) {
  const auto& [handle, params] = kept_by<Handle>(stream);
  const cudaDataType t = type_of(lu.dtype);
  const int64_t n = lu.rows;
  const Scratch info(stream, sizeof(int));  // of wrong arguments only
  for (int64_t i = 0; i < b.count; ++i)
    cusolver().cusolverDnXgetrs(handle, params, transposed ? CUBLAS_OP_T : CUBLAS_OP_N, n, b.columns, t, lu.at(i), n,
                                pivots + (lu.step == 0 ? 0 : i * n), t, b.at(i), n, static_cast<int*>(info.data()));
}

void factor_qr(Stream& stream, const Columns& a, void* tau) {
  const auto& [handle, params] = kept_by<Handle>(stream);
  const cudaDataType t = type_of(a.dtype);
  const int64_t m = a.rows, n = a.columns, k = std::min(m, n);
  Sizes size;
  cusolver().cusolverDnXgeqrf_bufferSize(handle, params, m, n, t, a.data, m, t, tau, t, &size.device, &size.host);
  Workspace room(stream, size);
  const Scratch info(stream, sizeof(int));
  for (int64_t i = 0; i < a.count; ++i)
    cusolver().cusolverDnXgeqrf(handle, params, m, n, t, a.at(i), m, t, offset(tau, i * k, a.dtype), t,
                                room.device.data(), size.device, room.host.data(), size.host,
                                static_cast<int*>(info.data()));
}

void make_q(Stream& stream, const Columns& q, int64_t reflectors, const void* tau) {
  const auto& [handle, params] = kept_by<Handle>(stream);
  const int m = narrow(q.rows), n = narrow(q.columns), k = narrow(reflectors);
  narrow(q.rows * q.columns);
  const auto run = [&]<class T>(const T* factors, const auto& measure, const auto& make) {
    int size = 0;
    measure(handle, m, n, k, static_cast<const T*>(q.data), m, factors, &size);
    const Scratch room(stream, size_t(size) * sizeof(T)), info(stream, sizeof(int));
    for (int64_t i = 0; i < q.count; ++i)
      make(handle, m, n, k, static_cast<T*>(q.at(i)), m, factors + i * reflectors, static_cast<T*>(room.data()), size,
           static_cast<int*>(info.data()));
  };
  const Cusolver& c = cusolver();
  if (q.dtype == DType::kFloat64)
    run(static_cast<const double*>(tau), c.cusolverDnDorgqr_bufferSize, c.cusolverDnDorgqr);
  else
    run(static_cast<const float*>(tau), c.cusolverDnSorgqr_bufferSize, c.cusolverDnSorgqr);
}

void find_eigenvalues(Stream& stream, const Columns& a, bool vectors, void* values, int32_t* info) {
  const auto& [handle, params] = kept_by<Handle>(stream);
  const cudaDataType t = type_of(a.dtype);
  const int64_t n = a.rows;
  const auto job = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  Sizes size;
  cusolver().cusolverDnXsyevd_bufferSize(handle, params, job, CUBLAS_FILL_MODE_UPPER, n, t, a.data, n, t, values, t,
                                         &size.device, &size.host);
  Workspace room(stream, size);
  for (int64_t i = 0; i < a.count; ++i)
    cusolver().cusolverDnXsyevd(handle, params, job, CUBLAS_FILL_MODE_UPPER, n, t, a.at(i), n, t,
                                offset(values, i * n, a.dtype), t, room.device.data(), size.device, room.host.data(),
                                size.host, info + i);
}

void find_singular_values(Stream& stream, const Columns& a, const Svd& out, int32_t* info) {
  const auto& [handle, params] = kept_by<Handle>(stream);
  const cudaDataType t = type_of(a.dtype);
  const int64_t m = a.rows, n = a.columns;
  const char job = !out.u.data ? 'N' : out.u.columns == m ? 'A' : 'S';
  Sizes size;
  cusolver().cusolverDnXgesvd_bufferSize(handle, params, job, job, m, n, t, a.data, m, t, out.s, t, out.u.data, m, t,
                                         out.vt.data, n, t, &size.device, &size.host);
  Workspace room(stream, size);
  for (int64_t i = 0; i < a.count; ++i)
    cusolver().cusolverDnXgesvd(handle, params, job, job, m, n, t, a.at(i), m, t, offset(out.s, i * n, a.dtype), t,
                                out.u.data ? out.u.at(i) : nullptr, m, t, out.vt.data ? out.vt.at(i) : nullptr, n, t,
                                room.device.data(), size.device, room.host.data(), size.host, info + i);
}

}  // namespace pg::cuda
