// Shared by the files of the oneDNN adapter. No other file includes this header.
#pragma once
#include <dnnl.hpp>

#include "tensor/cpu/conv/conv.h"
#include "tensor/dtype.h"

// A function of the OpenMP library that oneDNN runs on. Clang does not find GCC's <omp.h>.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int count);

namespace pg::cpu::onednn {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

// Sets the calling thread's OpenMP team size to 1 while it exists. oneDNN would otherwise start a team, whose threads
// spin.
class SingleThread {
 public:
  SingleThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~SingleThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int before_;
};

bool available();  // whether the library is there; all functions below need it
dnnl::engine& engine();
dnnl::stream& stream();  // of the calling thread
dnnl::primitive_attr user_scratchpad();

// Throws NoRoom unless plenty of memory is free. Call it before making a primitive: the library crashes when an
// allocation fails while it makes one.
struct NoRoom {};
void check_room();

// Thrown for a shape for which the library has no kernel that may be used. The functions of onednn.h return false or
// null then, and their callers compute with their own kernels: no shape is out of a script's reach.
struct NoKernel {};

// Throws NoKernel when the library chose a generated GEMM kernel (see onednn.h) or a plain loop: it tries those last,
// so there is no better one left.
void check_usable(const dnnl::primitive_desc_base& pd);

// Throw NoKernel for shapes that the library's bfloat16 kernels get wrong (oneDNN 2.6). Forward: a window that
// reads only padding, where a kernel jumps through a null pointer, and windows of several pixels that leave some out.
// Gradients of weights: groups, except by the kernel of depthwise convolutions.
void check_forward(DType type, const ConvShape& s);
void check_weights(DType type, const ConvShape& s, const dnnl::primitive_desc_base& pd);

template <class Desc>
Desc usable(Desc pd) {
  check_usable(pd);
  return pd;
}

struct ConvDims {
  memory::dims strides, dilates, pad_lo, pad_hi;
};

// Hide the differences between oneDNN 2.x (operation descriptors) and 3.x (arguments of the primitive descriptor).
dnnl::convolution_forward::primitive_desc conv_forward_desc(const memory::desc& x, const memory::desc& w,
                                                            const memory::desc& b, const memory::desc& y,
                                                            const ConvDims& d, const dnnl::primitive_attr& attr);
dnnl::convolution_backward_data::primitive_desc conv_data_desc(const memory::desc& x, const memory::desc& w,
                                                               const memory::desc& y, const ConvDims& d,
                                                               const dnnl::convolution_forward::primitive_desc& hint);
dnnl::convolution_backward_weights::primitive_desc conv_weights_desc(
    const memory::desc& x, const memory::desc& w, const memory::desc& y, const ConvDims& d,
    const dnnl::convolution_forward::primitive_desc& hint);

struct ConvDescs {
  memory::desc x, w, b, y, dw;   // layouts are left to the library
  memory::desc px, pw, py, pdw;  // plain layouts
  ConvDims dims;
};

int spatial_dims(const ConvShape& s);
// `last_dims`: if not 0, images (N, spatial..., C) with so many spatial dims, for the library too.
ConvDescs describe(DType type, const ConvShape& s, bool with_bias, int last_dims = 0);
// The plain layout of s.oc of the `channels` channels of images.
memory::desc some_channels(DType type, const ConvShape& s, int64_t channels, bool last);

}  // namespace pg::cpu::onednn
