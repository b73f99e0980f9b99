// Convolutions of contiguous arrays by cuDNN.
#pragma once
#include <compare>

#include "tensor/cuda/stream.h"
#include "tensor/cuda/windows.h"

namespace pg::cuda {

// There are always three spatial dims; shapes with fewer have leading ones of size 1.
struct ConvShape {
  DType dtype = DType::kFloat32;
  bool volume = false;  // whether the first spatial dim is more than a leading one
  bool last = false;    // images are (N, spatial..., C), and weights (O, spatial..., I / groups)
  int64_t n = 1, in_channels = 0, out_channels = 0, groups = 1;
  Three in{}, kernel{}, out{}, stride{}, padding{}, dilation{};
  auto operator<=>(const ConvShape&) const = default;
};

enum class ConvPart { kForward, kInput, kWeight };

// to = the convolution of a = x and b = weight; its gradient by x, of a = weight and b = dy; or its gradient by the
// weight, of a = x and b = dy. Returns false when cuDNN has no algorithm for this dtype and shape.
bool convolve(Stream& stream, const ConvShape& shape, ConvPart part, const void* a, const void* b, void* to);

}  // namespace pg::cuda
