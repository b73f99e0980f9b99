// Float32 convolutions by Winograd's algorithm: F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3) of Lavin and Gray, Fast algorithms
// for convolutional neural networks (2016). They need 4/9 and 1/4 of the multiplications.
//
// Their errors are of the size of those of plain sums. For 128 channels of numbers from -1 to 1, the mean error of
// plain sums is 6.7e-6, that of F(2 x 2) 3.9e-6 and that of F(4 x 4) 1.2e-5; the largest are 7.1e-5, 2.0e-5 and 8.5e-5.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/cpu/conv/conv.h"

namespace pg::cpu {

enum class ImageLayout { kChannelsFirst, kChannelsLast };

// One part of the convolutions of a shape. Immutable: runs may overlap. The bits depend neither on the number of
// threads nor on `packed` nor on the layout.
//
// A NaN reaches all results that depend on it, and may reach the others of their tile. An infinity may become NaN
// there.
class Winograd {
 public:
  // Images with two spatial dims, kernels of 3 x 3, stride and dilation 1, one group.
  static bool fits(const ConvShape& s);
  // `tile`: the outputs of a tile in each direction, 2 or 4. The shape must fit. It is that of the forward pass.
  Winograd(const ConvShape& s, ConvPart part, int tile, ImageLayout layout);

  int64_t tiles() const { return s_.n * tile_rows_ * tile_cols_; }
  // Multiplications, with those of tiles that are only partly filled.
  int64_t macs() const { return tiles() * t_ * t_ * s_.ic * s_.oc; }

  // The arguments are those of conv_forward(x, w, bias, relu, y), conv_backward_data(dy, w, dx) or
  // conv_backward_weights(x, dy, dw), with images in the layout. `packed`: the result of pack(w), or null.
  void run(const float* a, const float* b, const void* packed, const float* bias, bool relu, float* out) const;

  // The memory of a weight gradient for sums of products.
  size_t sums_bytes() const { return size_t(panel_size() * panels_of_sums()) * sizeof(float); }

  // Not for weight gradients.
  size_t packed_bytes() const;
  void pack(const float* w, void* packed) const;
  bool packs_like(const Winograd& other) const;

 private:
  struct Block;
  struct Panels {  // of weights, which are those of some of the output channels
    int64_t first, count;
  };
  void pack_panels(const float* w, const Panels& panels, float* u) const;
  void convolve(const float* x, const float* u, const Panels& panels, const float* bias, bool relu, float* y) const;
  void weight_gradient(const float* x, const float* dy, float* dw) const;
  void transform_tiles(int64_t begin, int64_t end, const float* x, const float* dy, const Block& block) const;
  void add_products(int64_t begin, int64_t end, const Panels& panels, const Block& block, float* sums) const;
  void transform_sums(const Panels& panels, const float* sums, float* dw) const;

  int64_t panels() const;
  int64_t panel_size() const;
  int64_t tiles_of_chunk() const;
  int64_t panels_of_sums() const;
  template <class F>
  void for_segments(int64_t begin, int64_t end, F f) const;
  void transform_input(const float* x, int64_t begin, int64_t end, const Block& block) const;
  void transform_gradient(const float* dy, int64_t begin, int64_t end, const Block& block) const;
  void transform_output(const Block& block, int64_t begin, int64_t end, int64_t channel, int64_t channels,
                        const float* bias, bool relu, float* y) const;

  ConvShape s_;  // an input gradient is the convolution of the output's gradient
  ConvPart part_;
  int64_t m_, t_;
  bool last_;
  int64_t tile_rows_, tile_cols_;       // of an image
  int64_t v_row_, m_row_;               // distances between tiles of transformed inputs and of products
  int64_t block_rows_;                  // tiles of a block, in units of kWinogradRows
  int64_t in_channels_, out_channels_;  // rounded up to whole vectors
};

}  // namespace pg::cpu
