#include "tensor/cuda/blas.h"

#include <atomic>
#include <map>
#include <optional>
#include <tuple>

#include "tensor/cuda/launch.h"
#include "tensor/error.h"

namespace pg::cuda {
namespace {

std::atomic<bool> tf32_allowed{false};

const Blas& blas() {
  static const Blas& instance = *new Blas("PERIGEE_CUDA_BLAS", {"libcublasLt.so.13", "libcublasLt.so.12"});
  return instance;
}

cublasLtHandle_t handle_of(Gpu& gpu) {
  static std::mutex lock;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard hold(lock);
  cublasLtHandle_t& handle = handles[gpu.index];
  if (!handle) blas().cublasLtCreate(&handle);
  return handle;
}

cudaDataType_t type_of(DType t) {
  return t == DType::kFloat64   ? CUDA_R_64F
         : t == DType::kFloat32 ? CUDA_R_32F
         : t == DType::kFloat16 ? CUDA_R_16F
                                : CUDA_R_16BF;
}

class Operation {
 public:
  explicit Operation(const Product& p) {
    const bool wide = p.dtype == DType::kFloat64;
    const auto compute = wide                                                ? CUBLAS_COMPUTE_64F
                         : p.dtype == DType::kFloat32 && tf32_allowed.load() ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                             : CUBLAS_COMPUTE_32F;
    blas().cublasLtMatmulDescCreate(&desc_, compute, wide ? CUDA_R_64F : CUDA_R_32F);
    // The library's matrices are column-major: it computes the transpose of c from those of b and a.
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p));
    if (p.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  ~Operation() { blas().cublasLtMatmulDescDestroy.status(desc_); }
  Operation(const Operation&) = delete;
  cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  static cublasLtEpilogue_t epilogue(const Product& p) {
    if (p.act == Product::Act::kRelu) return p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (p.act == Product::Act::kGeluTanh) return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t which, T value) {
    blas().cublasLtMatmulDescSetAttribute(desc_, which, &value, sizeof value);
  }
  cublasLtMatmulDesc_t desc_ = nullptr;
};

class Layout {
 public:
  Layout(DType t, int64_t rows, int64_t cols, const Matrix& m, int64_t batch) {
    if (m.transposed) std::swap(rows, cols);
    blas().cublasLtMatrixLayoutCreate(&layout_, type_of(t), uint64_t(cols), uint64_t(rows), m.ld);
    if (batch == 1) return;
    const auto count = int32_t(batch);
    blas().cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    blas().cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch_stride,
                                            sizeof m.batch_stride);
  }
  ~Layout() { blas().cublasLtMatrixLayoutDestroy.status(layout_); }
  Layout(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// The largest power of two up to 256 that divides the address. Algorithms depend on it.
uint32_t alignment_of(const void* data) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(data) | 256;
  return uint32_t(address & (~address + 1));
}

class Preference {
 public:
  Preference(size_t workspace, const Product& p) {
    blas().cublasLtMatmulPreferenceCreate(&preference_);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace));
    // The library takes arrays for aligned to 256 bytes otherwise. As in Operation, b and a change places.
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.addend ? p.addend : p.c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
  }
  ~Preference() { blas().cublasLtMatmulPreferenceDestroy.status(preference_); }
  Preference(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t which, T value) {
    blas().cublasLtMatmulPreferenceSetAttribute(preference_, which, &value, sizeof value);
  }
  cublasLtMatmulPreference_t preference_ = nullptr;
};

using Key = std::tuple<int, int, bool, int64_t, int64_t, int64_t, int64_t, bool, int64_t, int64_t, bool, int64_t,
                       int64_t, bool, int, bool, uint32_t, uint32_t, uint32_t, uint32_t>;
Key key_of(const Gpu& gpu, const Product& p) {
  return {gpu.index,
          int(p.dtype),
          tf32_allowed,
          p.batch,
          p.m,
          p.n,
          p.k,
          p.a.transposed,
          p.a.ld,
          p.a.batch_stride,
          p.b.transposed,
          p.b.ld,
          p.b.batch_stride,
          p.bias != nullptr,
          int(p.act),
          p.addend != nullptr,
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.addend),
          alignment_of(p.c)};
}

}  // namespace

void check_blas(int status, const char* function) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_call(function, fmt::format("cuBLAS status {}", status));
}

void allow_tf32(bool on) { tf32_allowed = on; }

bool multiply(Stream& stream, const Product& p) {
  static std::mutex lock;
  static auto& known = *new std::map<Key, std::optional<cublasLtMatmulHeuristicResult_t>>;
  const cublasLtHandle_t handle = handle_of(stream.gpu);
  const Operation operation(p);
  const Matrix c{p.c, p.n, p.m * p.n, false};
  const Layout b(p.dtype, p.k, p.n, p.b, p.batch), a(p.dtype, p.m, p.k, p.a, p.batch),
      out(p.dtype, p.m, p.n, c, p.batch);
  const size_t most = size_t(stream.gpu.arch >= 90 ? 32 : 4) << 20;
  std::optional<cublasLtMatmulHeuristicResult_t> choice;
  {
    const std::lock_guard hold(lock);
    const auto [at, added] = known.try_emplace(key_of(stream.gpu, p));
    if (added) {
      const Preference preference(most, p);
      cublasLtMatmulHeuristicResult_t found = {};
      int count = 0;
      const auto status = blas().cublasLtMatmulAlgoGetHeuristic.status(
          handle, operation.get(), b.get(), a.get(), out.get(), out.get(), preference.get(), 1, &found, &count);
      if (status == CUBLAS_STATUS_SUCCESS && count > 0) at->second = found;
    }
    choice = at->second;
  }
  if (!choice) return false;
  std::optional<Scratch> workspace;
  if (choice->workspaceSize) workspace.emplace(stream, choice->workspaceSize);
  const double alpha = 1, beta = p.addend ? 1 : 0;
  const auto alpha_f = float(alpha), beta_f = float(beta);
  const bool wide = p.dtype == DType::kFloat64;
  blas().cublasLtMatmul(handle, operation.get(), wide ? static_cast<const void*>(&alpha) : &alpha_f, p.b.data, b.get(),
                        p.a.data, a.get(), wide ? static_cast<const void*>(&beta) : &beta_f, p.addend ? p.addend : p.c,
                        out.get(), p.c, out.get(), &choice->algo, workspace ? workspace->data() : nullptr,
                        choice->workspaceSize, stream.handle);
  return true;
}

}  // namespace pg::cuda
