// cuDNN by loops on the host, in the order of the stream. Sums are in double precision.
#include <cudnn.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../device/queue.h"
#include "fake.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  std::vector<int> sizes;
  bool first = false, last = false;  // whether the channels may be the first or the last dim of an image
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  std::vector<int> sizes;
  bool last = false;
};
struct cudnnConvolutionStruct {
  std::vector<int> padding, stride, dilation;
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
};

namespace {

double load(cudnnDataType_t type, const void* data, int64_t i) {
  if (type == CUDNN_DATA_DOUBLE) return static_cast<const double*>(data)[i];
  if (type == CUDNN_DATA_FLOAT) return static_cast<const float*>(data)[i];
  if (type == CUDNN_DATA_HALF) return double(static_cast<const HostHalf*>(data)[i]);
  return std::bit_cast<float>(uint32_t(static_cast<const uint16_t*>(data)[i]) << 16);
}

void store(cudnnDataType_t type, void* data, int64_t i, double value) {
  if (type == CUDNN_DATA_DOUBLE) return void(static_cast<double*>(data)[i] = value);
  if (type == CUDNN_DATA_FLOAT) return void(static_cast<float*>(data)[i] = float(value));
  if (type == CUDNN_DATA_HALF) return void(static_cast<HostHalf*>(data)[i] = HostHalf(float(value)));
  const uint32_t bits = std::bit_cast<uint32_t>(float(value)), odd = bits >> 16 & 1;
  static_cast<uint16_t*>(data)[i] = value != value ? uint16_t(0x7fc0) : uint16_t((bits + 0x7fff + odd) >> 16);
}

int64_t product(const std::vector<int>& sizes) {
  int64_t n = 1;
  for (int s : sizes) n *= s;
  return n;
}

// The sizes of a convolution with three spatial dims.
struct Sizes {
  bool valid = false, last = false;
  int64_t n = 0, groups = 1, inputs = 0, outputs = 0;  // channels of a group
  int64_t in[3], kernel[3], out[3], stride[3], padding[3], dilation[3];

  Sizes(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnConvolutionStruct& c,
        const cudnnTensorStruct& y) {
    const size_t dims = c.padding.size(), lead = 3 - dims;
    for (const auto* sizes : {&x.sizes, &w.sizes, &y.sizes})
      if (sizes->size() != dims + 2) return;
    if (x.type != w.type || x.type != y.type || x.sizes[0] != y.sizes[0] || x.sizes[1] != w.sizes[1] * c.groups ||
        y.sizes[1] != w.sizes[0] || w.sizes[0] % c.groups != 0)
      return;
    last = w.last;
    if (last ? !x.last || !y.last : !x.first || !y.first) return;
    if ((c.compute == CUDNN_DATA_DOUBLE) != (x.type == CUDNN_DATA_DOUBLE)) return;
    n = x.sizes[0], groups = c.groups, inputs = w.sizes[1], outputs = w.sizes[0] / c.groups;
    for (size_t d = 0; d < 3; ++d) {
      const bool given = d >= lead;
      const auto at = [&](const std::vector<int>& list, size_t skip, int64_t rest) {
        return given ? int64_t(list[d - lead + skip]) : rest;
      };
      in[d] = at(x.sizes, 2, 1), kernel[d] = at(w.sizes, 2, 1), out[d] = at(y.sizes, 2, 1);
      stride[d] = at(c.stride, 0, 1), padding[d] = at(c.padding, 0, 0), dilation[d] = at(c.dilation, 0, 1);
      if ((in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1 != out[d]) return;
    }
    valid = true;
  }

  // Calls f(x, w, y) with the positions of each product that the convolution adds up.
  template <class F>
  void each(F f) const {
    for (int64_t image = 0; image < n; ++image)
      for (int64_t o = 0; o < groups * outputs; ++o)
        for (int64_t c = 0; c < inputs; ++c)
          planes(f, {image, groups * inputs, o / outputs * inputs + c}, {o, inputs, c}, {image, groups * outputs, o});
  }

 private:
  struct Plane {
    int64_t image, channels, channel;
  };
  int64_t place(const Plane& p, const int64_t* size, int64_t i) const {
    const int64_t elements = size[0] * size[1] * size[2];
    return last ? (p.image * elements + i) * p.channels + p.channel : (p.image * p.channels + p.channel) * elements + i;
  }
  template <class F>
  void planes(F f, const Plane& x, const Plane& w, const Plane& y) const {
    for (int64_t k = 0; k < kernel[0] * kernel[1] * kernel[2]; ++k)
      for (int64_t o = 0; o < out[0] * out[1] * out[2]; ++o)
        if (const int64_t i = source(k, o); i >= 0) f(place(x, in, i), place(w, kernel, k), place(y, out, o));
  }
  int64_t source(int64_t k, int64_t o) const {  // -1: in the padding
    int64_t at[3];
    for (int d = 2; d >= 0; --d) {
      at[d] = o % out[d] * stride[d] + k % kernel[d] * dilation[d] - padding[d];
      if (at[d] < 0 || at[d] >= in[d]) return -1;
      o /= out[d], k /= kernel[d];
    }
    return (at[0] * in[1] + at[1]) * in[2] + at[2];
  }
};

enum Part { kForward, kInput, kWeight };

// Three algorithms: one needs too much memory, one may add up in any order, and the last is the one to take.
template <class Perf>
cudnnStatus_t offer(bool valid, int most, int* count, Perf* found) {
  if (!valid) return CUDNN_STATUS_BAD_PARAM;
  *count = most < 3 ? most : 3;
  for (int i = 0; i < *count; ++i) {
    found[i] = {};
    found[i].algo = decltype(Perf::algo)(i);
    found[i].determinism = i == 1 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    found[i].mathType = CUDNN_DEFAULT_MATH;
  }
  return CUDNN_STATUS_SUCCESS;
}
size_t workspace_of(int algorithm) { return algorithm == 0 ? size_t(1) << 40 : size_t(64) << algorithm; }

cudnnStatus_t run(cudnnHandle_t handle, const Sizes& s, Part part, const cudnnConvolutionStruct& c, int algorithm,
                  cudnnDataType_t type, int64_t count, const void* alpha, const void* a, const void* b, void* workspace,
                  size_t bytes, const void* beta, void* to) {
  if (!s.valid || !workspace || bytes < workspace_of(algorithm)) return CUDNN_STATUS_BAD_PARAM;
  if (algorithm != 2) return CUDNN_STATUS_NOT_SUPPORTED;
  if (type == CUDNN_DATA_FLOAT && c.math != CUDNN_FMA_MATH) return CUDNN_STATUS_BAD_PARAM;  // would use TF32
  const auto number = [&](const void* n) {
    return type == CUDNN_DATA_DOUBLE ? *static_cast<const double*>(n) : double(*static_cast<const float*>(n));
  };
  const double scale = number(alpha), old = number(beta);
  queue::add(handle->stream, [=] {
    std::memset(workspace, 0xff, bytes);
    std::vector<double> sums(size_t(count), 0);
    s.each([&](int64_t x, int64_t w, int64_t y) {
      const int64_t at = part == kForward ? y : part == kInput ? x : w;
      sums[size_t(at)] += load(type, a, part == kInput ? w : x) * load(type, b, part == kForward ? w : y);
    });
    for (int64_t i = 0; i < count; ++i)
      store(type, to, i, scale * sums[size_t(i)] + (old != 0 ? old * load(type, to, i) : 0));
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

#define FAKE(function) \
  if (const int failed = fake::failure(#function)) return cudnnStatus_t(failed)
#define MADE(Struct) return *made = new Struct{}, CUDNN_STATUS_SUCCESS
#define GONE return delete gone, CUDNN_STATUS_SUCCESS

#pragma GCC visibility push(default)
extern "C" {

size_t cudnnGetVersion() { return 90000; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_BAD_PARAM       ? "CUDNN_STATUS_BAD_PARAM"
         : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                : "CUDNN_STATUS_INTERNAL_ERROR";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* made) {
  FAKE(cudnnCreate);
  MADE(cudnnContext);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t gone) { GONE; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return handle->stream = stream, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) { MADE(cudnnTensorStruct); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t gone) { GONE; }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int count, const int* sizes,
                                         const int* strides) {
  const auto ordered = [&](bool last) {
    int64_t stride = 1;
    bool fits = true;
    const auto visit = [&](int i) { fits &= sizes[i] > 0 && strides[i] == stride, stride *= sizes[i]; };
    if (last) visit(1);
    for (int i = count - 1; i >= 0; --i)
      if (i != 1 || !last) visit(i);
    return fits;
  };
  *d = {type, {sizes, sizes + count}, ordered(false), ordered(true)};
  if (!d->first && !d->last) return CUDNN_STATUS_BAD_PARAM;
  return count == 4 || count == 5 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* made) { MADE(cudnnFilterStruct); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t gone) { GONE; }
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int count, const int* sizes) {
  for (int i = 0; i < count; ++i)
    if (sizes[i] < 1) return CUDNN_STATUS_BAD_PARAM;
  *d = {type, {sizes, sizes + count}, format == CUDNN_TENSOR_NHWC};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* made) { MADE(cudnnConvolutionStruct); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t gone) { GONE; }
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int count, const int* padding,
                                              const int* stride, const int* dilation, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  d->padding.assign(padding, padding + count);
  d->stride.assign(stride, stride + count);
  d->dilation.assign(dilation, dilation + count);
  d->compute = compute;
  return mode == CUDNN_CROSS_CORRELATION ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
  return d->groups = groups, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
  return d->math = math, CUDNN_STATUS_SUCCESS;
}

// The three parts differ in which arrays they read.
#define PART(Name, Find, Algo, Perf, part, A, a, B, b, To, to, ...)                                                   \
  cudnnStatus_t cudnnGetConvolution##Find##Algorithm_v7(cudnnHandle_t, const A a, const B b,                          \
                                                        const cudnnConvolutionDescriptor_t c, const To to,            \
                                                        const int most, int* count, Perf* found) {                    \
    FAKE(cudnnGetConvolution##Find##Algorithm_v7);                                                                    \
    return offer(Sizes(__VA_ARGS__).valid, most, count, found);                                                       \
  }                                                                                                                   \
  cudnnStatus_t cudnnGetConvolution##Find##WorkspaceSize(                                                             \
      cudnnHandle_t, const A, const B, const cudnnConvolutionDescriptor_t, const To, Algo algorithm, size_t* bytes) { \
    return *bytes = workspace_of(algorithm), CUDNN_STATUS_SUCCESS;                                                    \
  }                                                                                                                   \
  cudnnStatus_t Name(cudnnHandle_t handle, const void* alpha, const A a, const void* a_data, const B b,               \
                     const void* b_data, const cudnnConvolutionDescriptor_t c, Algo algorithm, void* workspace,       \
                     size_t bytes, const void* beta, const To to, void* to_data) {                                    \
    FAKE(Name);                                                                                                       \
    return run(handle, Sizes(__VA_ARGS__), part, *c, algorithm, to->type, product(to->sizes), alpha, a_data, b_data,  \
               workspace, bytes, beta, to_data);                                                                      \
  }
PART(cudnnConvolutionForward, Forward, cudnnConvolutionFwdAlgo_t, cudnnConvolutionFwdAlgoPerf_t, kForward,
     cudnnTensorDescriptor_t, x, cudnnFilterDescriptor_t, w, cudnnTensorDescriptor_t, y, *x, *w, *c, *y)
PART(cudnnConvolutionBackwardData, BackwardData, cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdDataAlgoPerf_t,
     kInput, cudnnFilterDescriptor_t, w, cudnnTensorDescriptor_t, y, cudnnTensorDescriptor_t, x, *x, *w, *c, *y)
PART(cudnnConvolutionBackwardFilter, BackwardFilter, cudnnConvolutionBwdFilterAlgo_t,
     cudnnConvolutionBwdFilterAlgoPerf_t, kWeight, cudnnTensorDescriptor_t, x, cudnnTensorDescriptor_t, y,
     cudnnFilterDescriptor_t, w, *x, *w, *c, *y)

}  // extern "C"
#pragma GCC visibility pop
