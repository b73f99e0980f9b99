// Float32 convolutions of images (N, C, spatial...) that are products of the weights and each image: those for which
// ConvShape::is_pointwise() holds.
#pragma once
#include "tensor/cpu/conv/conv.h"

namespace pg::cpu {

// The arguments are those of the functions of conv.h. The bits do not depend on the number of threads.
void pointwise_forward(const ConvShape& s, const float* x, const float* w, const float* bias, bool relu, float* y);
void pointwise_backward_data(const ConvShape& s, const float* dy, const float* w, float* dx);
void pointwise_backward_weights(const ConvShape& s, const float* x, const float* dy, float* dw);

}  // namespace pg::cpu
