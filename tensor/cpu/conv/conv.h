// Convolution kernels. Arrays are contiguous: images (n, channels, spatial...), weights (out, in / groups, kernel...).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "tensor/dtype.h"

namespace pg::cpu {

// There are always three spatial dims: 1-d and 2-d shapes get leading dims of size 1 (stride 1, dilation 1, padding 0).
// `out` must fit: (out - 1) * stride + dilation * (kernel - 1) + 1 - pad may exceed `in` only by zero padding.
struct ConvShape {
  int64_t n = 0, ic = 0, oc = 0, groups = 1;
  std::array<int64_t, 3> in{1, 1, 1}, kernel{1, 1, 1}, out{1, 1, 1};
  std::array<int64_t, 3> stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};

  bool operator==(const ConvShape&) const = default;
  int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  int64_t out_plane() const { return out[0] * out[1] * out[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  // Whether each output is a product of the weights and the channels of one pixel.
  bool is_pointwise() const {
    return groups == 1 && taps() == 1 && in == out && pad == std::array<int64_t, 3>{0, 0, 0};
  }
  int64_t macs() const { return n * oc * out_plane() * (ic / groups) * taps(); }
};

// y = conv(x, w) + bias, followed by relu if `relu`. bias may be null. T is float or double.
template <class T>
void conv_forward(const ConvShape& s, const T* x, const T* w, const T* bias, bool relu, T* y);

// The shares of the images that oneDNN computes, one per call: at least one for each thread that has images, and more
// if they would take longer than about a millisecond, because a call can be neither interrupted nor suspended. Outside
// of jobs calls may be longer where each of them reads large weights for a small plane.
int64_t image_shares(DType type, const ConvShape& s);

// Whether a convolution of float32, or of bfloat16 by a unit of the CPU, is fastest on images (N, spatial..., C), into
// which it may have to reorder its image.
bool conv_forward_prefers_channels_last(const ConvShape& s, bool reorders);

// dx = the gradient with respect to the input. It is also the forward pass of a transposed convolution.
template <class T>
void conv_backward_data(const ConvShape& s, const T* dy, const T* w, T* dx);

// dw = the gradient with respect to the weights.
template <class T>
void conv_backward_weights(const ConvShape& s, const T* x, const T* dy, T* dw);

enum class ConvPart { kForward, kInputGradient, kWeightGradient };

// A float32 convolution by the direct kernel, with everything that depends only on the shape computed once. Immutable:
// `run` may be called from several threads at once.
class DirectConv {
 public:
  // Returns nothing for empty arrays and where a oneDNN primitive is faster.
  static std::optional<DirectConv> make(const ConvShape& s, ConvPart part);
  DirectConv(DirectConv&&) noexcept;
  ~DirectConv();

  // The arguments are those of conv_forward(x, w, bias, relu, y), conv_backward_data(dy, w, dx) or
  // conv_backward_weights(x, dy, dw).
  void run(const float* a, const float* b, const float* bias, bool relu, float* out) const;

 private:
  struct State;
  explicit DirectConv(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace pg::cpu
