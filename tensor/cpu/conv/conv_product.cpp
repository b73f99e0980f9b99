#include "tensor/cpu/conv/conv_product.h"

#include <algorithm>

#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kMacsPerTask = 1 << 19;

void add_bias(const ConvShape& s, const float* bias, bool relu, float* y) {
  const int64_t plane = s.out_plane(), grain = std::max<int64_t>(1, (1 << 15) / plane);
  parallel_for(s.n * s.oc, grain, [&](int64_t begin, int64_t end) {
    Poller poll;
    for (int64_t i = begin; i < end; ++i, poll(plane)) {
      float* const row = y + i * plane;
      if (bias)
        for (int64_t p = 0; p < plane; ++p) row[p] += bias[i % s.oc];
      if (relu) rectify(plane, row);
    }
  });
}

}  // namespace

void pointwise_forward(const ConvShape& s, const float* x, const float* w, const float* bias, bool relu, float* y) {
  const int64_t plane = s.out_plane();
  gemm_batched(s.n, {.b = s.ic * plane, .c = s.oc * plane}, false, false, s.oc, plane, s.ic, w, s.ic, x, plane, y,
               plane);
  if (bias || relu) add_bias(s, bias, relu, y);
}

void pointwise_backward_data(const ConvShape& s, const float* dy, const float* w, float* dx) {
  const int64_t plane = s.out_plane();
  gemm_batched(s.n, {.b = s.oc * plane, .c = s.ic * plane}, true, false, s.ic, plane, s.oc, w, s.ic, dy, plane, dx,
               plane);
}

// Each thread adds the products of the images for its output channels.
void pointwise_backward_weights(const ConvShape& s, const float* x, const float* dy, float* dw) {
  constexpr int64_t kUnit = 24;  // output channels: rows of two tiles
  const int64_t plane = s.out_plane(), units = (s.oc + kUnit - 1) / kUnit;
  const int64_t parts = std::clamp<int64_t>(s.macs() / kMacsPerTask, 1, std::min<int64_t>(units, num_threads()));
  for (int64_t i = 0; i < s.n; ++i)  // a region each, so that a job can be suspended between images
    parallel_parts(parts, [&](int64_t begin, int64_t end) {
      poll_kernel();
      const int64_t first = begin * units / parts * kUnit, last = std::min(s.oc, end * units / parts * kUnit);
      gemm_simd(false, true, last - first, s.ic, plane, dy + (i * s.oc + first) * plane, plane, x + i * s.ic * plane,
                plane, dw + first * s.ic, s.ic, i > 0, {});
    });
}

}  // namespace pg::cpu
