// Gradients of bfloat16 convolutions by their weights as products of matrices, with sums in float32. Each position of
// the result is a row of both matrices: its channels of dy, and the elements of x in its window.
#pragma once
#include "tensor/cpu/conv/conv.h"
#include "tensor/dtype.h"

namespace pg::cpu {

// Whether the product is faster than oneDNN's kernel: with strides, for pointwise convolutions, where the library would
// pad channels, and where the weights are large. Needs gemm_bf16.
bool prefers_unfolded(const ConvShape& s);

// `s` has one group. `last`: images are (N, spatial..., C); others are copied. The bits do not depend on the number of
// threads.
void unfolded_backward_weights(const ConvShape& s, bool last, const BFloat16* x, const BFloat16* dy, BFloat16* dw);

}  // namespace pg::cpu
