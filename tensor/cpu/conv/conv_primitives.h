// Large convolutions by oneDNN, of images (N, C, spatial...) and split over the thread pool: of float32, and of
// bfloat16 where the CPU multiplies it.
#pragma once
#include <cstdint>

#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/conv/conv_last.h"
#include "tensor/dtype.h"

namespace pg::cpu {

bool is_depthwise(const ConvShape& s);

// Whether the library computes convolutions of this dtype faster than float32 ones of converted numbers.
bool has_primitives(DType type);

// Whether the library computes this part faster than the direct kernel, which for bfloat16 includes conversions.
bool prefers_primitive(const ConvShape& s, ConvPart part);

// Whether a forward pass is faster between copies with the channels last, which split one image over the threads and
// reorder the weights once. One image does not fill the threads, and large weights would be reordered by each of them.
// Tiles compute on this layout.
bool prefers_last(DType type, const ConvShape& s);
// The arguments are those of ConvLast::run, with images of `type` and the shape that have the channels first. `scratch`
// has copies_bytes() and is aligned to 64.
void run_between_copies(const ConvLast& conv, DType type, const ConvShape& s, const void* x, const void* w,
                        const void* packed, const float* bias, ConvLast::FinishPart finish, void* y, void* scratch);
size_t copies_bytes(const ConvLast& conv, DType type, const ConvShape& s);

// The arguments are those of conv_forward and the other functions of conv.h. They return false where the library has no
// implementation. T is float or BFloat16. kLast: images are (N, spatial..., C), of bfloat16.
template <class T>
bool primitive_forward(const ConvShape& s, const T* x, const T* w, const float* bias, bool relu, T* y);
template <class T, bool kLast = false>
bool primitive_backward_data(const ConvShape& s, const T* dy, const T* w, T* dx);
template <class T, bool kLast = false>
bool primitive_backward_weights(const ConvShape& s, const T* x, const T* dy, float* dw);

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
