// Large float32 convolutions by oneDNN, of images (N, C, spatial...) and split over the thread pool.
#pragma once
#include <cstdint>

#include "tensor/cpu/conv/conv.h"

namespace pg::cpu {

// Whether the library computes this part faster than the direct kernel.
bool prefers_primitive(const ConvShape& s, ConvPart part);

// The arguments are those of conv_forward and the other functions of conv.h. They return false where the library has no
// implementation.
bool primitive_forward(const ConvShape& s, const float* x, const float* w, const float* bias, bool relu, float* y);
bool primitive_backward_data(const ConvShape& s, const float* dy, const float* w, float* dx);
bool primitive_backward_weights(const ConvShape& s, const float* x, const float* dy, float* dw);

// Returns the number of partial sums of a weight gradient. It does not depend on the number of threads, so that the
// bits do not either. Large weights have fewer, because each partial sum but one needs an array.
int64_t weight_parts(int64_t size, int64_t most);

// sum[i] += the elements i of parts - 1 arrays.
template <class T>
void add_parts(T* sum, const T* partial, int64_t parts, int64_t size) {
  for (int64_t p = 0; p + 1 < parts; ++p)
    for (int64_t i = 0; i < size; ++i) sum[i] += partial[p * size + i];
}

}  // namespace pg::cpu
