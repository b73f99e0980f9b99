// The tiles of all images are numbered in one row. A block of them is transformed to t * t matrices V[tiles][ic], one
// for each element of a tile, which are multiplied by the matrices of the weights U[ic][oc]; the products are
// transformed to the outputs. A block is small enough for the second-level cache, and large enough that reading all
// weights for each block costs little.
#include "tensor/cpu/conv/winograd.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tensor/cpu/conv/image_strip.h"
#include "tensor/cpu/conv/winograd_parts.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

// The distance between rows of matrices is not a multiple of this, because rows at a power of two would share cache
// lines of the first level.
constexpr int64_t kSkew = 16;
// Weights that are not packed are transformed so many at a time that they stay in the last-level cache.
constexpr int64_t kUnpackedBytes = 8 << 20;
constexpr int64_t kBlockBytes = 700 << 10, kMostBlockRows = 8, kFewestBlockRows = 2;

// The parts of the output channels that are split over the threads, besides `rows` parts of the tiles. Few tiles are
// split by channels, so that each thread reads only some of the weights, and more of them if that is the fairer split.
int64_t channel_groups(int64_t tiles, int64_t rows, int64_t panels) {
  const int64_t threads = num_threads();
  if (rows < 2 * threads) return std::min(ceil_div(2 * threads, rows), panels);
  const int64_t most = ceil_div(rows, threads) * kWinogradRows - (rows * kWinogradRows - tiles);
  const bool fair = std::max(most, rows / threads * kWinogradRows) * threads * 10 <= tiles * 11;
  return fair || panels % threads ? 1 : threads;
}

// The convolution of the output's gradient that is the input's gradient. Its padding may be negative.
ConvShape transposed(ConvShape s) {
  std::swap(s.ic, s.oc);
  std::swap(s.in, s.out);
  for (size_t d = 1; d < 3; ++d) s.pad[d] = s.kernel[d] - 1 - s.pad[d];
  return s;
}

}  // namespace

bool Winograd::fits(const ConvShape& s) {
  const auto all = [](const std::array<int64_t, 3>& a, int64_t x, int64_t y) { return a == std::array{x, y, y}; };
  return s.groups == 1 && all(s.kernel, 1, 3) && all(s.stride, 1, 1) && all(s.dilation, 1, 1) && s.in[0] == 1 &&
         s.out[0] == 1 && s.macs() > 0;
}

Winograd::Winograd(const ConvShape& s, ConvPart part, int tile, ImageLayout layout)
    : s_(part == ConvPart::kInputGradient ? transposed(s) : s),
      part_(part),
      m_(tile),
      t_(tile + 2),
      last_(layout == ImageLayout::kChannelsLast),
      tile_rows_(ceil_div(s_.out[1], m_)),
      tile_cols_(ceil_div(s_.out[2], m_)),
      v_row_(round_up(s_.ic, kVector) + kSkew),
      m_row_(round_up(s_.oc, kWinogradColumns) + kSkew),
      in_channels_(round_up(s_.ic, kVector)),
      out_channels_(round_up(s_.oc, kVector)) {
  const int64_t unit_bytes = kWinogradRows * t_ * t_ * (v_row_ + m_row_) * int64_t(sizeof(float));
  block_rows_ = std::clamp(kBlockBytes / unit_bytes, kFewestBlockRows, kMostBlockRows);
  block_rows_ = std::min(block_rows_, ceil_div(tiles(), kWinogradRows));
}

int64_t Winograd::panels() const { return ceil_div(s_.oc, kWinogradColumns); }

int64_t Winograd::panel_size() const { return t_ * t_ * s_.ic * kWinogradColumns; }

size_t Winograd::packed_bytes() const { return size_t(panels() * panel_size()) * sizeof(float); }

void Winograd::pack(const float* w, void* packed) const { pack_panels(w, {0, panels()}, static_cast<float*>(packed)); }

void Winograd::pack_panels(const float* w, const Panels& panels, float* u) const {
  const bool transposed = part_ == ConvPart::kInputGradient;  // w is (in, out, 3, 3) with its taps in reverse order
  constexpr int64_t kDepth = 64, kTaps = 9, kPixel = kWinogradColumns;  // input channels of a piece
  const int64_t pieces = ceil_div(s_.ic, kDepth), plane = panels.count * s_.ic * kPixel;
  parallel_for(panels.count * pieces, ceil_div(kMacsPerTask, kDepth * kPixel * t_ * t_ * kTransformMacs),
               [&](int64_t begin, int64_t end) {
                 const Scratch<float> taps_memory(kDepth * kTaps * kPixel);
                 float* const taps = taps_memory;
                 for (int64_t i = begin; i < end; ++i) {
                   poll_kernel();
                   const int64_t column = (panels.first + i / pieces) * kPixel,
                                 count = std::min(kPixel, s_.oc - column);
                   const int64_t first = i % pieces * kDepth, depth = std::min(kDepth, s_.ic - first);
                   if (count < kPixel) std::fill_n(taps, depth * kTaps * kPixel, 0.0f);
                   if (!transposed)
                     transpose(count, depth * kTaps, w + (column * s_.ic + first) * kTaps, s_.ic * kTaps, taps, kPixel);
                   else
                     for (int64_t k = 0; k < depth; ++k)
                       transpose(count, kTaps, w + ((first + k) * s_.oc + column) * kTaps, kTaps,
                                 taps + k * kTaps * kPixel, kPixel);
                   const int64_t sign = transposed ? -1 : 1;
                   winograd_transform(int(m_), WinogradPart::kWeights,
                                      {.from = taps + (transposed ? (kTaps - 1) * kPixel : 0),
                                       .from_row = sign * 3 * kPixel,
                                       .from_col = sign * kPixel,
                                       .from_tile = kTaps * kPixel,
                                       .to = u + (i / pieces * s_.ic + first) * kPixel,
                                       .to_row = t_ * plane,
                                       .to_col = plane,
                                       .to_tile = kPixel,
                                       .tiles = depth,
                                       .channels = kPixel});
                 }
               });
}

bool Winograd::packs_like(const Winograd& other) const {
  const auto weights = [](const Winograd& c) { return std::tuple(c.m_, c.s_.ic, c.s_.oc, c.part_); };
  return weights(*this) == weights(other);
}

void Winograd::transform_input(const float* x, int64_t begin, int64_t end, const Block& block) const {
  for_segments(begin, end, [&](int64_t first, int64_t count, int64_t image, int64_t row, int64_t column) {
    const ImageView<const float> view{x + image * s_.ic * s_.in_plane(), s_.in[1], s_.in[2], s_.ic, s_.ic, last_};
    const StripPlace place{row - s_.pad[1], column - s_.pad[2], t_, count * m_ + 2, in_channels_};
    read_strip(view, place, block.strip);
    winograd_transform(int(m_), WinogradPart::kInput,
                       {.from = block.strip,
                        .from_row = place.cols * place.pixel,
                        .from_col = place.pixel,
                        .from_tile = m_ * place.pixel,
                        .to = block.v + (first - begin) * v_row_,
                        .to_row = t_ * block.plane,
                        .to_col = block.plane,
                        .to_tile = v_row_,
                        .tiles = count,
                        .channels = in_channels_});
  });
}

void Winograd::transform_output(const Block& block, int64_t begin, int64_t end, int64_t channel, int64_t channels,
                                const float* bias, bool relu, float* y) const {
  const int64_t pixel = round_up(channels, kVector);
  for_segments(begin, end, [&](int64_t first, int64_t count, int64_t image, int64_t row, int64_t column) {
    const ImageView<float> view{y + image * s_.oc * s_.out_plane() + channel * (last_ ? 1 : s_.out_plane()),
                                s_.out[1],
                                s_.out[2],
                                s_.oc,
                                channels,
                                last_};
    const StripPlace place{row, column, m_, count * m_, pixel};
    const bool whole = last_ && pixel == channels && row + m_ <= view.h && column + place.cols <= view.w;
    winograd_transform(int(m_), WinogradPart::kOutput,
                       {.from = block.products + (first - begin) * block.product_row,
                        .from_row = t_ * block.product_plane,
                        .from_col = block.product_plane,
                        .from_tile = block.product_row,
                        .to = whole ? view.at(row, column) : block.strip,
                        .to_row = whole ? view.w * view.pixel : place.cols * pixel,
                        .to_col = whole ? view.pixel : pixel,
                        .to_tile = m_ * (whole ? view.pixel : pixel),
                        .tiles = count,
                        .channels = pixel,
                        .bias = bias ? bias + channel : nullptr,
                        .relu = relu});
    if (!whole) write_strip(block.strip, place, view);
  });
}

void Winograd::run(const float* a, const float* b, const void* packed, const float* bias, bool relu, float* out) const {
  if (part_ == ConvPart::kWeightGradient) return weight_gradient(a, b, out);
  if (packed) return convolve(a, static_cast<const float*>(packed), {0, panels()}, bias, relu, out);
  const int64_t panel = panel_size(), panel_bytes = panel * int64_t(sizeof(float));
  const int64_t groups = ceil_div(panels(), std::max<int64_t>(1, kUnpackedBytes / panel_bytes));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * panels() / groups, count = (g + 1) * panels() / groups - first;
    const Scratch<float> u(count * panel);
    pack_panels(b, {first, count}, u);
    convolve(a, u, {first, count}, bias, relu, out);
  }
}

void Winograd::convolve(const float* x, const float* u, const Panels& panels, const float* bias, bool relu,
                        float* y) const {
  const int64_t rows = ceil_div(tiles(), kWinogradRows);
  const int64_t missing = rows * kWinogradRows - tiles();  // in the first row, since the first thread may have one more
  const int64_t groups = channel_groups(tiles(), rows, panels.count);
  const int64_t unit_macs = std::max<int64_t>(1, macs() * panels.count / (this->panels() * rows * groups));
  parallel_for(rows * groups, std::max<int64_t>(1, kMacsPerTask / unit_macs), [&](int64_t begin, int64_t end) {
    const int64_t most_rows = block_rows_ * 3 / 2;  // of the last block, since one of few tiles reads all weights too
    const int64_t tiles_of_block = std::min(rows, most_rows) * kWinogradRows;
    const int64_t product_row = ceil_div(panels.count, groups) * kWinogradColumns + kSkew;
    const int64_t v_size = t_ * t_ * tiles_of_block * v_row_, m_size = t_ * t_ * tiles_of_block * product_row;
    const int64_t cols = std::min(tiles_of_block, tile_cols_) * m_ + 2;
    const Scratch<float> base(v_size + m_size + t_ * cols * std::max(in_channels_, out_channels_) + out_channels_);
    const Block block{.v = base,
                      .products = base + v_size,
                      .strip = base + v_size + m_size,
                      .plane = tiles_of_block * v_row_,
                      .product_plane = tiles_of_block * product_row,
                      .product_row = product_row};
    float* const own_bias = bias ? block.strip + t_ * cols * std::max(in_channels_, out_channels_) : nullptr;
    if (bias) std::copy(bias, bias + s_.oc, own_bias);
    int64_t transformed = -1;  // the first tile of what block.v holds
    for (int64_t i = begin; i < end;) {
      poll_kernel();
      const int64_t group = i / rows, row = i % rows, left = std::min(end - i, rows - row);
      const int64_t count = left > most_rows ? block_rows_ : left;
      const int64_t first = std::max<int64_t>(0, row * kWinogradRows - missing);
      const int64_t last = (row + count) * kWinogradRows - missing;
      if (transformed != first) transform_input(x, first, last, block);
      transformed = count == rows ? first : -1;
      const int64_t panel = group * panels.count / groups, end_panel = (group + 1) * panels.count / groups;
      const int64_t channel = (panels.first + panel) * kWinogradColumns;
      const int64_t channels = std::min(s_.oc, (panels.first + end_panel) * kWinogradColumns) - channel;
      winograd_multiply({.planes = t_ * t_,
                         .rows = last - first,
                         .columns = channels,
                         .depth = s_.ic,
                         .a = block.v,
                         .a_plane = block.plane,
                         .a_row = v_row_,
                         .a_step = 1,
                         .b = u + panel * s_.ic * kWinogradColumns,
                         .b_plane = panels.count * s_.ic * kWinogradColumns,
                         .b_row = kWinogradColumns,
                         .b_panel = s_.ic * kWinogradColumns,
                         .c = block.products,
                         .c_plane = block.product_plane,
                         .c_row = product_row,
                         .adds = false});
      transform_output(block, first, last, channel, channels, own_bias, relu, y);
      i += count;
    }
  });
}

}  // namespace pg::cpu
