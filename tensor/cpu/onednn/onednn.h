// The oneDNN adapter. All functions run on the calling thread; the callers split the work over the pool. This header
// has no oneDNN types, so that only the adapter depends on the version of the library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/dtype.h"

namespace pg::cpu {

struct ConvShape;

// The functions here never use the library's generated GEMM kernels (its implementations named "gemm:jit"). Those
// kernels point the stack pointer into the heap, so that a signal handler on the thread's own stack corrupts memory
// (oneDNN issue 4845). Where the library has no other implementation, the functions return false and the caller uses
// its own kernels.

// The most work for one call, because a call cannot be interrupted: about a tenth of a second on one core.
inline constexpr int64_t kOneDnnMacsPerCall = int64_t(1) << 32;

// About how many times as fast as float32 the unit of bfloat16 is. Channels in groups mostly do not run on it.
int64_t bfloat16_gain(DType type, const ConvShape& s);

// Images and weights are float32 or bfloat16, as `type` says; biases and gradients of weights are float32, and so are
// sums. bfloat16 needs a unit (multiplies_bf16), which treats subnormal numbers as 0.

// Convolutions of `images` images; s.n is not used. Arguments and results have plain layouts. The library chooses its
// own layouts, and reorders are part of the call. Returns false, with nothing written, where the library has no
// implementation that may be used: none, or one that is slow, unsafe or known to be wrong.
bool onednn_conv_forward(DType type, const ConvShape& s, int64_t images, const void* x, const void* w,
                         const float* bias, void* y);
// `last`: images are (N, spatial..., C), for the library too.
bool onednn_conv_backward_data(DType type, const ConvShape& s, int64_t images, bool last, const void* dy, const void* w,
                               void* dx);
// dy holds s.oc of the `channels` channels of images.
bool onednn_conv_backward_weights(DType type, const ConvShape& s, int64_t images, int64_t channels, bool last,
                                  const void* x, const void* dy, float* dw);

// A convolution that is prepared once. The operands have plain layouts; the weights may also have the layout
// that the library prefers. Immutable: runs may overlap.
class OneDnnPrepared {
 public:
  virtual ~OneDnnPrepared() = default;
  // `w`: the result of pack() if packed_bytes > 0, else the weights themselves. `bias` must be null exactly when the
  // preparation had none.
  virtual void run(const void* x, const void* w, const float* bias, void* y, void* scratch) const = 0;
  virtual void pack(const void* w, void* packed) const = 0;
  virtual bool packs_like(const OneDnnPrepared& other) const = 0;

  size_t scratch_bytes = 0;
  size_t packed_bytes = 0;  // 0: the plain layout is the best one
};

// The forward convolution of `images` images of this shape.
std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv(DType type, const ConvShape& s, int64_t images, bool bias);

// The same for images (N, spatial..., C) with `dims` spatial dims. The padding after the last element follows from the
// sizes and may differ from s.pad.
std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv_last(DType type, const ConvShape& s, int dims, bool bias);
int onednn_spatial_dims(const ConvShape& s);  // of a whole image, which may have strips with fewer

}  // namespace pg::cpu
