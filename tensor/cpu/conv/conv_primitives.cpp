#include "tensor/cpu/conv/conv_primitives.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <type_traits>

#include "tensor/cpu/conv/conv_last.h"
#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/isa.h"
#include "tensor/cpu/lru_cache.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"
#include "tensor/thread_end.h"

namespace pg::cpu {
namespace {

// A call of oneDNN takes about a millisecond, because it can be neither interrupted nor suspended.
int64_t macs_per_call(DType type, const ConvShape& s) { return (int64_t(1) << 26) * bfloat16_gain(type, s); }
// From this size of a plane on, a call for one image costs far more than a pass over the weights.
constexpr int64_t kLargePlane = 256;

// From this much work on, oneDNN's layouts repay the reorders and the preparation of a primitive at the first use of a
// shape.
constexpr int64_t kLargeMacs = int64_t(4) << 20;

constexpr int64_t kChannelUnit = 64;  // output channels that the library's kernels compute together
constexpr int64_t kLargeWeights = 1 << 19;

template <class T>
constexpr DType kType = std::is_same_v<T, float> ? DType::kFloat32 : DType::kBFloat16;

// Calls run(part, first, count) for `parts` shares of [0, n) in parallel. Returns false if any call did.
template <class F>
bool split(int64_t n, int64_t parts, F run) {
  std::atomic<bool> ok{true};
  parallel_parts(parts, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      poll_kernel();
      const int64_t first = p * n / parts, last = (p + 1) * n / parts;
      if (!run(p, first, last - first)) ok = false;
    }
  });
  return ok;
}

// Whole lines of the cache.
size_t image_bytes(DType type, int64_t elements) {
  constexpr size_t kLine = 64;
  return (size_t(elements) * size_t(size_of(type)) + kLine - 1) / kLine * kLine;
}

struct LastKey {
  ConvShape shape;
  int64_t type, bias;
};

// The forward pass by a convolution between copies, which each thread keeps for its last shapes.
template <class T>
bool forward_by_last(const ConvShape& s, const T* x, const T* w, const float* bias, bool relu, T* y) {
  constexpr DType type = kType<T>;
  if (!prefers_last(type, s)) return false;
  auto& cache = per_thread<LastKey, LruCache<LastKey, std::unique_ptr<const ConvLast>>>(32);
  const ConvLast* conv =
      cache.get({s, int64_t(type), bias != nullptr}, [&] { return ConvLast::make(type, s, bias != nullptr); }).get();
  if (!conv) return false;
  const auto finish = [&](int64_t n, void* part) {
    if (relu) rectify(n, static_cast<T*>(part));  // the library's relu turns NaN into 0
  };
  const ScratchBytes scratch{Bytes(copies_bytes(*conv, type, s))};
  run_between_copies(*conv, type, s, x, w, nullptr, bias, finish, y, scratch.get());
  return true;
}

// Calls for a weight gradient of `images` images. Each of them but the first costs a pass over the weights, so small
// planes have one. The number depends only on the shape, as that of parts.
int64_t weight_calls(DType type, const ConvShape& s, int64_t images) {
  if (s.out_plane() < kLargePlane) return 1;
  return std::clamp<int64_t>(s.macs() / s.n * images / macs_per_call(type, s), 1, images);
}

// Large weights of small planes are cut by output channels: shares of the images would need an array for each sum.
template <bool kLast, class T>
bool weights_by_channels(const ConvShape& s, const T* x, const T* dy, float* dw) {
  const int64_t units = s.oc / kChannelUnit, parts = std::clamp<int64_t>(s.macs() / kOneDnnMacsPerCall, 4, units);
  return split(units, parts, [&](int64_t, int64_t first, int64_t count) {
    const int64_t channel = first * kChannelUnit;
    ConvShape share = s;
    share.oc = first + count < units ? count * kChannelUnit : s.oc - channel;
    return onednn_conv_backward_weights(kType<T>, share, s.n, s.oc, kLast, x,
                                        dy + channel * (kLast ? 1 : s.out_plane()), dw + channel * s.ic * s.taps());
  });
}

}  // namespace

bool is_depthwise(const ConvShape& s) { return s.groups >= 8 && s.ic == s.groups && s.oc == s.groups; }

bool has_primitives(DType type) { return type == DType::kFloat32 || (type == DType::kBFloat16 && multiplies_bf16()); }

bool prefers_last(DType type, const ConvShape& s) {
  if (type == DType::kBFloat16) return s.groups == 1;
  if (isa() < Isa::kAvx2 || s.groups > 1 || s.ic < 8) return false;
  if (isa() < Isa::kAvx512 && s.macs() < 16 * kLargeMacs) return false;  // the reorders cost more than threads gain
  return s.n == 1 || s.ic * s.taps() > s.out_plane();
}

size_t copies_bytes(const ConvLast& conv, DType type, const ConvShape& s) {
  return image_bytes(type, s.n * s.ic * s.in_plane()) + image_bytes(type, s.n * s.oc * s.out_plane()) +
         conv.scratch_bytes();
}

void run_between_copies(const ConvLast& conv, DType type, const ConvShape& s, const void* x, const void* w,
                        const void* packed, const float* bias, ConvLast::FinishPart finish, void* y, void* scratch) {
  const int64_t in = s.in_plane(), out = s.out_plane(), size = size_of(type);
  char* const last_x = static_cast<char*>(scratch);
  char* const last_y = last_x + image_bytes(type, s.n * s.ic * in);
  char* const work = last_y + image_bytes(type, s.n * s.oc * out);
  copy_transposed(int(size), s.n, s.ic, in, x, last_x);
  conv.run(last_x, w, packed, bias, finish, last_y, work);
  copy_transposed(int(size), s.n, out, s.oc, last_y, y);
}

bool prefers_primitive(const ConvShape& s, ConvPart part) {
  if (s.macs() == 0) return false;
  if (is_depthwise(s)) return s.macs() >= kLargeMacs / 16;
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups;
  if (s.macs() < kLargeMacs || ocg < 16) return false;
  return icg >= 16 || (part != ConvPart::kInputGradient && s.macs() >= 8 * kLargeMacs);
}

int64_t weight_parts(int64_t size, int64_t most) {
  constexpr int64_t kParts = 4, kElements = 1 << 16;
  return std::min(most, std::clamp<int64_t>(kElements / std::max<int64_t>(size, 1), 2, kParts));
}

template <class T>
bool primitive_forward(const ConvShape& s, const T* x, const T* w, const float* bias, bool relu, T* y) {
  if (forward_by_last(s, x, w, bias, relu, y)) return true;
  return split(s.n, image_shares(kType<T>, s), [&](int64_t, int64_t first, int64_t images) {
    T* out = y + first * s.oc * s.out_plane();
    if (!onednn_conv_forward(kType<T>, s, images, x + first * s.ic * s.in_plane(), w, bias, out)) return false;
    if (relu) rectify(images * s.oc * s.out_plane(), out);  // not by oneDNN, whose relu turns NaN into 0
    return true;
  });
}

template <class T, bool kLast>
bool primitive_backward_data(const ConvShape& s, const T* dy, const T* w, T* dx) {
  return split(s.n, image_shares(kType<T>, s), [&](int64_t, int64_t first, int64_t images) {
    return onednn_conv_backward_data(kType<T>, s, images, kLast, dy + first * s.oc * s.out_plane(), w,
                                     dx + first * s.ic * s.in_plane());
  });
}

template <class T, bool kLast>
bool primitive_backward_weights(const ConvShape& s, const T* x, const T* dy, float* dw) {
  const int64_t size = s.oc * (s.ic / s.groups) * s.taps();
  if (s.groups == 1 && s.oc >= 4 * kChannelUnit && size >= kLargeWeights && s.out_plane() < kLargePlane)
    return weights_by_channels<kLast>(s, x, dy, dw);
  const int64_t parts = weight_parts(size, s.n);
  const bool sums = weight_calls(kType<T>, s, s.n / parts + 1) > 1;
  const int64_t arrays = parts - 1 + (sums ? parts : 0);
  const Scratch<float> partial_memory(arrays * size);
  float* const partial = partial_memory;
  float* terms = partial + (parts - 1) * size;
  const bool ok = split(s.n, parts, [&](int64_t part, int64_t first, int64_t images) {
    float* const sum = part == 0 ? dw : partial + (part - 1) * size;
    const int64_t calls = weight_calls(kType<T>, s, images);
    for (int64_t c = 0; c < calls; ++c) {
      const int64_t from = first + c * images / calls, count = first + (c + 1) * images / calls - from;
      float* const to = c == 0 ? sum : terms + part * size;
      if (!onednn_conv_backward_weights(kType<T>, s, count, s.oc, kLast, x + from * s.ic * s.in_plane(),
                                        dy + from * s.oc * s.out_plane(), to))
        return false;
      if (c > 0) add_parts(sum, to, 2, size);
      poll_kernel();
    }
    return true;
  });
  if (ok) add_parts(dw, partial, parts, size);
  return ok;
}

#define PG_PRIMITIVES(T)                                                                            \
  template bool primitive_forward<T>(const ConvShape&, const T*, const T*, const float*, bool, T*); \
  template bool primitive_backward_data<T>(const ConvShape&, const T*, const T*, T*);               \
  template bool primitive_backward_weights<T>(const ConvShape&, const T*, const T*, float*);
PG_PRIMITIVES(float)
PG_PRIMITIVES(BFloat16)
#undef PG_PRIMITIVES
template bool primitive_backward_data<BFloat16, true>(const ConvShape&, const BFloat16*, const BFloat16*, BFloat16*);
template bool primitive_backward_weights<BFloat16, true>(const ConvShape&, const BFloat16*, const BFloat16*, float*);

int64_t image_shares(DType type, const ConvShape& s) {
  const bool short_calls = s.out_plane() >= kLargePlane || watched_here().suspender;
  const int64_t macs = short_calls ? macs_per_call(type, s) : kOneDnnMacsPerCall;
  return std::min(std::max<int64_t>(num_threads(), s.macs() / macs), s.n);
}

bool conv_forward_prefers_channels_last(const ConvShape& s, bool reorders) {
  if (isa() < Isa::kAvx2 || s.macs() == 0) return false;
  const bool grows = s.macs() >= 2 * kLargeMacs && s.ic * s.in_plane() * 2 <= s.oc * s.out_plane();
  if (reorders && s.groups > 1) return false;
  if (reorders) return prefers_primitive(s, ConvPart::kForward) || (grows && s.oc / s.groups >= 16);  // a first layer
  return is_depthwise(s) || (s.macs() >= kLargeMacs / 16 && s.oc / s.groups >= 8 && s.ic / s.groups >= 8);
}

}  // namespace pg::cpu
