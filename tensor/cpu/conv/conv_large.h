// Float32 convolutions of images (N, C, spatial...) that are large enough for oneDNN, for Winograd's algorithm or for
// products of 1 x 1.
#pragma once
#include "tensor/cpu/conv/conv.h"

namespace pg::cpu {

// Whether the functions below compute this part of a convolution. The first call for a shape measures what they use.
bool prefers_large(const ConvShape& s, ConvPart part);

// Whether they do so by an algorithm that was measured to be faster than the library's.
bool prefers_unpacked(const ConvShape& s, ConvPart part);

// The arguments are those of the functions of conv.h. They return false, with nothing written, where the direct kernel
// is faster or the library has no implementation.
bool large_forward(const ConvShape& s, const float* x, const float* w, const float* bias, bool relu, float* y);
bool large_backward_data(const ConvShape& s, const float* dy, const float* w, float* dx);
bool large_backward_weights(const ConvShape& s, const float* x, const float* dy, float* dw);

}  // namespace pg::cpu
