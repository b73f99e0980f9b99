// The oneDNN adapter. Everything here runs on the calling thread only; the callers split work over the pool.
// No oneDNN type stands in this header, so that one translation unit knows the version of the library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace pg::cpu {

struct ConvShape;

// The library's generated GEMM kernels (its implementations named "gemm:jit") point the stack pointer into the heap, so
// that a signal handler that runs on the thread's own stack destroys memory (oneDNN issue 4845). No function here uses
// one of them: where the library has nothing else the function returns false, and the own kernels do the work.

// What one call should do at most, since nothing ends a call: about a tenth of a second on one core.
inline constexpr int64_t kOneDnnMacsPerCall = int64_t(1) << 32;

// Row-major c[m, n] = op(a) * op(b) by a prepared primitive (cached by shape), where op transposes if asked.
bool onednn_matmul_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                       const float* b, int64_t ldb, float* c, int64_t ldc);

// c = a * op(b) with bfloat16 operands and result, accumulated in float32.
bool onednn_matmul_bf16(bool trans_b, int64_t m, int64_t n, int64_t k, const uint16_t* a, int64_t lda,
                        const uint16_t* b, int64_t ldb, uint16_t* c, int64_t ldc);

// Convolutions over `images` images of the shape (which says n for all of them). Plain layouts outside; inside the
// library chooses, reorders included. False where it has no implementation; nothing is written then.
bool onednn_conv_forward(const ConvShape& s, int64_t images, const float* x, const float* w, const float* bias,
                         bool relu, float* y);
bool onednn_conv_backward_data(const ConvShape& s, int64_t images, const float* dy, const float* w, float* dx);
bool onednn_conv_backward_weights(const ConvShape& s, int64_t images, const float* x, const float* dy, float* dw);

// A product or a convolution made ready once, with the operands in the plain layouts, and the weights also in the one
// that the library likes best. Runs may overlap.
class OneDnnPrepared {
 public:
  virtual ~OneDnnPrepared() = default;
  // `packed`: what pack made of w; w is not read then. The result is the same. bias as it was prepared.
  virtual void run(const float* x, const float* w, const void* packed, const float* bias, float* y,
                   void* scratch) const = 0;
  virtual void pack(const float* w, void* packed) const = 0;
  virtual bool packs_like(const OneDnnPrepared& other) const = 0;

  size_t scratch_bytes = 0;
  size_t packed_bytes = 0;  // 0: the plain layout is the best
};

// y[m, n] = x[m, k] * w[n, k]^T + bias[n]. Null where the library has none.
struct LinearShape {
  int64_t m, n, k;
  bool bias;
};
std::unique_ptr<const OneDnnPrepared> onednn_prepare_linear(const LinearShape& s, bool packs);

// A convolution forward of `images` images of the shape.
std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv(const ConvShape& s, int64_t images, bool bias);

}  // namespace pg::cpu
