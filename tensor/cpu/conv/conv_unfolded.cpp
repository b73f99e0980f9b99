#include "tensor/cpu/conv/conv_unfolded.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kUnfolded = 1 << 17;  // elements of windows at a time: they stay in the second-level cache
constexpr int64_t kGrain = 1 << 15;
constexpr int64_t kLargeSums = 1 << 17;  // elements; smaller weights have sums for each part of the positions

// The first and the last kHalf of n bytes, kHalf <= n <= 2 kHalf.
template <size_t kHalf>
void copy_ends(const char* from, size_t n, char* to) {
  char first[kHalf], last[kHalf];
  std::memcpy(first, from, kHalf);
  std::memcpy(last, from + n - kHalf, kHalf);
  std::memcpy(to, first, kHalf);
  std::memcpy(to + n - kHalf, last, kHalf);
}

// Runs are often shorter than a call of memcpy takes.
void copy_run(const BFloat16* from, int64_t count, BFloat16* to) {
  const size_t n = size_t(count) * sizeof(BFloat16);
  const auto* const source = reinterpret_cast<const char*>(from);
  auto* const target = reinterpret_cast<char*>(to);
  if (n > 64 || n < 8)
    std::memcpy(target, source, n);
  else if (n > 32)
    copy_ends<32>(source, n, target);
  else if (n > 16)
    copy_ends<16>(source, n, target);
  else
    copy_ends<8>(source, n, target);
}

// Copies the elements of the windows of positions [first, last) of all images: (positions, taps, channels).
void unfold(const ConvShape& s, const BFloat16* x, int64_t first, int64_t last, BFloat16* to) {
  const int64_t run = s.kernel[2] * s.ic, width = s.taps() * s.ic, step = s.dilation[2];
  for (int64_t p = first, end; p < last; p = end) {  // positions of a row
    const int64_t begin = p % s.out[2], row = p / s.out[2] % s.out[1], plane = p / (s.out[2] * s.out[1]) % s.out[0];
    const BFloat16* const image = x + p / s.out_plane() * s.in_plane() * s.ic;
    end = std::min(last, p - begin + s.out[2]);
    for (int64_t k = 0; k < s.kernel[0] * s.kernel[1]; ++k) {
      const int64_t d = plane * s.stride[0] - s.pad[0] + k / s.kernel[1] * s.dilation[0],
                    h = row * s.stride[1] - s.pad[1] + k % s.kernel[1] * s.dilation[1];
      const bool is_padding = d < 0 || d >= s.in[0] || h < 0 || h >= s.in[1];
      const BFloat16* const line = is_padding ? nullptr : image + (d * s.in[1] + h) * s.in[2] * s.ic;
      BFloat16* window = to + (p - first) * width + k * run;
      for (int64_t i = 0; i < end - p; ++i, window += width) {
        const int64_t w = (begin + i) * s.stride[2] - s.pad[2];
        if (line && step == 1 && w >= 0 && w + s.kernel[2] <= s.in[2]) {
          copy_run(line + w * s.ic, run, window);
          continue;
        }
        for (int64_t kw = 0; kw < s.kernel[2]; ++kw) {
          const int64_t at = w + kw * step;
          if (line && at >= 0 && at < s.in[2])
            copy_run(line + at * s.ic, s.ic, window + kw * s.ic);
          else
            std::fill_n(window + kw * s.ic, s.ic, BFloat16());
        }
      }
    }
  }
}

// sums (oc, taps, ic) = the product of positions [begin, end) of all images.
void multiply(const ConvShape& s, const BFloat16* x, const BFloat16* dy, int64_t begin, int64_t end, float* sums) {
  const int64_t width = s.ic * s.taps();
  // Each product after the first reads and writes all sums, which many rows repay.
  const int64_t rows = std::min(end - begin, std::max(kUnfolded / width, 2 * s.oc));
  const Scratch<BFloat16> windows(s.is_pointwise() ? 0 : rows * width);
  for (int64_t first = begin; first < end; first += rows) {
    const int64_t count = std::min(rows, end - first);
    const BFloat16* matrix = x + first * s.ic;
    if (!s.is_pointwise()) {
      parallel_for(count, kGrain / width + 1, [&](int64_t from, int64_t to) {
        poll_kernel();
        unfold(s, x, first + from, first + to, windows + from * width);
      });
      matrix = windows;
    }
    gemm_bf16(true, false, s.oc, width, count, dy + first * s.oc, s.oc, matrix, width,
              Bf16Result<float>{sums, width, first > begin, {}});
  }
}

// Rounds sums (oc, taps, ic) to weights (oc, ic, taps).
void store_weights(const ConvShape& s, const float* sums, BFloat16* dw) {
  const int64_t taps = s.taps(), size = s.ic * taps;
  const Scratch<BFloat16> rounded(taps == 1 ? 0 : s.oc * size);
  BFloat16* const to = taps == 1 ? dw : rounded;
  convert(DType::kFloat32, sums, DType::kBFloat16, to, s.oc * size);
  if (to != dw) copy_transposed(sizeof(BFloat16), s.oc, taps, s.ic, to, dw);
}

}  // namespace

bool prefers_unfolded(const ConvShape& s) {
  constexpr int64_t kUnit = 16, kLargeWeights = 1 << 18;  // channels of the library's blocks; elements
  if (s.groups > 1) return false;
  return s.stride != std::array<int64_t, 3>{1, 1, 1} || s.is_pointwise() || s.ic % kUnit || s.oc % kUnit ||
         s.oc * s.ic * s.taps() > kLargeWeights;
}

void unfolded_backward_weights(const ConvShape& s, bool last, const BFloat16* x, const BFloat16* dy, BFloat16* dw) {
  if (!last) {
    const Scratch<BFloat16> last_x(s.n * s.ic * s.in_plane()), last_dy(s.n * s.oc * s.out_plane());
    copy_transposed(sizeof(BFloat16), s.n, s.ic, s.in_plane(), x, last_x);
    copy_transposed(sizeof(BFloat16), s.n, s.oc, s.out_plane(), dy, last_dy);
    return unfolded_backward_weights(s, true, last_x, last_dy, dw);
  }
  const int64_t positions = s.n * s.out_plane(), size = s.oc * s.ic * s.taps();
  const int64_t most = size > kLargeSums ? 1 : std::clamp<int64_t>(2 * kLargeSums / size, 2, 16);
  const int64_t wanted = std::clamp<int64_t>(positions * s.ic * s.taps() / kUnfolded, 1, most);
  const int64_t parts = int64_t(std::bit_floor(uint64_t(wanted)));  // which two threads share evenly
  const Scratch<float> sums(parts * size);
  if (parts == 1)
    multiply(s, x, dy, 0, positions, sums);
  else
    parallel_parts(parts, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        multiply(s, x, dy, p * positions / parts, (p + 1) * positions / parts, sums + p * size);
    });
  add_parts<float>(sums, sums + size, parts, size);
  store_weights(s, sums, dw);
}

}  // namespace pg::cpu
