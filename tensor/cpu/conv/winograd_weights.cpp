// The weight gradient: with V the transforms of the input's tiles and M those of the tiles of the output's gradient,
// both for all tiles, each of the t * t products V^T M is a sum over tiles, and its transform back is the gradient.
#include <algorithm>

#include "tensor/cpu/conv/image_strip.h"
#include "tensor/cpu/conv/winograd_parts.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

// The tiles whose transforms are held at a time.
constexpr int64_t kChunkBytes = 4 << 20, kFewestTiles = 128;
// Where all tiles are held at a time, sums of so many bytes are transformed before the next ones begin. Those of all
// channels take up to four times the memory of the weights.
constexpr int64_t kSumsBytes = 5 << 19;

}  // namespace

void Winograd::transform_gradient(const float* dy, int64_t begin, int64_t end, const Block& block) const {
  for_segments(begin, end, [&](int64_t first, int64_t count, int64_t image, int64_t row, int64_t column) {
    const ImageView<const float> view{dy + image * s_.oc * s_.out_plane(), s_.out[1], s_.out[2], s_.oc, s_.oc, last_};
    const StripPlace place{row, column, m_, count * m_, out_channels_};
    read_strip(view, place, block.strip);
    winograd_transform(int(m_), WinogradPart::kGradient,
                       {.from = block.strip,
                        .from_row = place.cols * place.pixel,
                        .from_col = place.pixel,
                        .from_tile = m_ * place.pixel,
                        .to = block.products + (first - begin) * block.product_row,
                        .to_row = t_ * block.product_plane,
                        .to_col = block.product_plane,
                        .to_tile = block.product_row,
                        .tiles = count,
                        .channels = out_channels_});
  });
}

int64_t Winograd::tiles_of_chunk() const {
  const int64_t tile_bytes = t_ * t_ * (v_row_ + m_row_) * int64_t(sizeof(float));
  return std::min(tiles(), std::max(kChunkBytes / tile_bytes, kFewestTiles));
}

int64_t Winograd::panels_of_sums() const {
  if (tiles_of_chunk() < tiles()) return panels();
  return std::clamp<int64_t>(kSumsBytes / int64_t(sizeof(float)) / panel_size(), 1, panels());
}

// The sums do not depend on the number of threads: each of them is computed by one, and chunks depend on the shape.
void Winograd::weight_gradient(const float* x, const float* dy, float* dw) const {
  const int64_t chunk = tiles_of_chunk(), part = panels_of_sums();
  const int64_t v_size = t_ * t_ * chunk * v_row_, m_size = t_ * t_ * chunk * m_row_;
  const Scratch<float> base(v_size + m_size + part * panel_size());
  const Block block{base, base + v_size, nullptr, chunk * v_row_, chunk * m_row_, m_row_};
  float* const sums = base + v_size + m_size;
  for (int64_t first = 0; first < tiles(); first += chunk) {
    const int64_t last = std::min(tiles(), first + chunk);
    transform_tiles(first, last, x, dy, block);
    for (int64_t panel = 0; panel < panels(); panel += part) {
      const Panels some{panel, std::min(part, panels() - panel)};
      add_products(first, last, some, block, sums);
      if (last == tiles()) transform_sums(some, sums, dw);
    }
  }
}

void Winograd::transform_tiles(int64_t first, int64_t last, const float* x, const float* dy, const Block& block) const {
  constexpr int64_t kTilesPerTask = 8;
  parallel_for(last - first, kTilesPerTask, [&](int64_t begin, int64_t end) {
    poll_kernel();
    const int64_t cols = std::min(end - begin, tile_cols_) * m_ + 2;
    const Scratch<float> strip(t_ * cols * std::max(in_channels_, out_channels_));
    Block own = block;
    own.strip = strip;
    own.v += begin * v_row_, own.products += begin * block.product_row;
    transform_input(x, first + begin, first + end, own);
    transform_gradient(dy, first + begin, first + end, own);
  });
}

// Adds the products of the tiles in the block to the sums of some panels. The first tile overwrites them.
void Winograd::add_products(int64_t first, int64_t last, const Panels& panels, const Block& block, float* sums) const {
  const int64_t strips = ceil_div(s_.ic, kWinogradRows), row = panels.count * kWinogradColumns;
  const int64_t column = panels.first * kWinogradColumns, columns = std::min(row, s_.oc - column);
  const int64_t macs = (last - first) * kWinogradRows * columns;
  parallel_for(t_ * t_ * strips, std::max<int64_t>(1, kMacsPerTask / macs), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      poll_kernel();
      const int64_t plane = i / strips, channel = i % strips * kWinogradRows;
      const int64_t count = std::min(end - i, strips - i % strips);
      winograd_multiply({.planes = 1,
                         .rows = std::min(s_.ic - channel, count * kWinogradRows),
                         .columns = columns,
                         .depth = last - first,
                         .a = block.v + plane * block.plane + channel,
                         .a_plane = 0,
                         .a_row = 1,
                         .a_step = v_row_,
                         .b = block.products + plane * block.product_plane + column,
                         .b_plane = 0,
                         .b_row = block.product_row,
                         .b_panel = kWinogradColumns,
                         .c = sums + (plane * s_.ic + channel) * row,
                         .c_plane = 0,
                         .c_row = row,
                         .adds = first > 0});
      i += count;
    }
  });
}

void Winograd::transform_sums(const Panels& panels, const float* sums, float* dw) const {
  constexpr int64_t kDepth = 64, kTaps = 9, kPixel = kWinogradColumns;
  const int64_t pieces = ceil_div(s_.ic, kDepth), row = panels.count * kPixel, plane = s_.ic * row;
  parallel_for(panels.count * pieces, ceil_div(kMacsPerTask, kDepth * kPixel * t_ * t_ * kTransformMacs),
               [&](int64_t begin, int64_t end) {
                 const Scratch<float> taps_memory(kDepth * kTaps * kPixel);
                 float* const taps = taps_memory;
                 for (int64_t i = begin; i < end; ++i) {
                   poll_kernel();
                   const int64_t own_column = i / pieces * kPixel, column = panels.first * kPixel + own_column;
                   const int64_t count = std::min(kPixel, s_.oc - column);
                   const int64_t first = i % pieces * kDepth, depth = std::min(kDepth, s_.ic - first);
                   winograd_transform(int(m_), WinogradPart::kWeightSums,
                                      {.from = sums + first * row + own_column,
                                       .from_row = t_ * plane,
                                       .from_col = plane,
                                       .from_tile = row,
                                       .to = taps,
                                       .to_row = 3 * kPixel,
                                       .to_col = kPixel,
                                       .to_tile = kTaps * kPixel,
                                       .tiles = depth,
                                       .channels = kPixel});
                   transpose(depth * kTaps, count, taps, kPixel, dw + (column * s_.ic + first) * kTaps, s_.ic * kTaps);
                 }
               });
}

}  // namespace pg::cpu
