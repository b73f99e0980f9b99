// The oneDNN adapter. All functions run on the calling thread; the callers split the work over the pool. This header
// has no oneDNN types, so that only the adapter depends on the version of the library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace pg::cpu {

struct ConvShape;

// The functions here never use the library's generated GEMM kernels (its implementations named "gemm:jit"). Those
// kernels point the stack pointer into the heap, so that a signal handler on the thread's own stack corrupts memory
// (oneDNN issue 4845). Where the library has no other implementation, the functions return false and the caller uses
// its own kernels.

// The most work for one call, because a call cannot be interrupted: about a tenth of a second on one core.
inline constexpr int64_t kOneDnnMacsPerCall = int64_t(1) << 32;

// Convolutions of `images` images; s.n is not used. Arguments and results have plain layouts. The library chooses its
// own layouts, and reorders are part of the call. Returns false, with nothing written, where the library has no
// implementation.
bool onednn_conv_forward(const ConvShape& s, int64_t images, const float* x, const float* w, const float* bias,
                         bool relu, float* y);
bool onednn_conv_backward_data(const ConvShape& s, int64_t images, const float* dy, const float* w, float* dx);
// dy holds s.oc of the `channels` channels of images.
bool onednn_conv_backward_weights(const ConvShape& s, int64_t images, int64_t channels, const float* x, const float* dy,
                                  float* dw);

// A convolution that is prepared once. The operands have plain layouts; the weights may also have the layout
// that the library prefers. Immutable: runs may overlap.
class OneDnnPrepared {
 public:
  virtual ~OneDnnPrepared() = default;
  // `w`: the result of pack() if packed_bytes > 0, else the weights themselves. `bias` must be null exactly when the
  // preparation had none.
  virtual void run(const float* x, const void* w, const float* bias, float* y, void* scratch) const = 0;
  virtual void pack(const float* w, void* packed) const = 0;
  virtual bool packs_like(const OneDnnPrepared& other) const = 0;

  size_t scratch_bytes = 0;
  size_t packed_bytes = 0;  // 0: the plain layout is the best one
};

// The forward convolution of `images` images of this shape.
std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv(const ConvShape& s, int64_t images, bool bias);

// The same for images (N, spatial..., C) with `dims` spatial dims. The padding after the last element follows from the
// sizes and may differ from s.pad.
std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv_last(const ConvShape& s, int dims, bool bias);
int onednn_spatial_dims(const ConvShape& s);  // of a whole image, which may have strips with fewer

}  // namespace pg::cpu
