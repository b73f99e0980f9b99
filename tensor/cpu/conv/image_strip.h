// Strips: some rows and columns of an image with the channels last, between zeros where the image has padding.
#pragma once
#include <algorithm>
#include <cstring>

#include "tensor/cpu/conv/winograd_simd.h"
#include "tensor/cpu/move/transpose_simd.h"

namespace pg::cpu {

// `channels` channels of an image of h x w pixels of `pixel` channels, in one of both layouts.
template <class T>
struct ImageView {
  T* data;
  int64_t h, w, pixel, channels;
  bool last;

  T* at(int64_t y, int64_t x) const { return data + (y * w + x) * (last ? pixel : 1); }
};

// Where a strip is: its first row and column in the image may be negative.
struct StripPlace {
  int64_t y, x, rows, cols;
  int64_t pixel;  // channels of the strip's pixels; those past the image's channels are zero
};

inline void copy_pixels(int64_t count, int64_t channels, const float* from, int64_t from_pixel, float* to,
                        int64_t to_pixel) {
  if (from_pixel == channels && to_pixel == channels) {
    std::memcpy(to, from, size_t(count * channels) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i, from += from_pixel, to += to_pixel)
    std::memcpy(to, from, size_t(channels) * sizeof(float));
}

inline void read_strip(const ImageView<const float>& image, const StripPlace& p, float* strip) {
  const int64_t begin = std::clamp<int64_t>(-p.x, 0, p.cols), end = std::clamp(image.w - p.x, begin, p.cols);
  for (int64_t i = 0; i < p.rows; ++i, strip += p.cols * p.pixel) {
    if (p.y + i < 0 || p.y + i >= image.h || begin == end) {
      std::fill_n(strip, p.cols * p.pixel, 0.0f);
      continue;
    }
    std::fill_n(strip, begin * p.pixel, 0.0f);
    std::fill_n(strip + end * p.pixel, (p.cols - end) * p.pixel, 0.0f);
    const float* from = image.at(p.y + i, p.x + begin);
    float* to = strip + begin * p.pixel;
    if (image.last)
      copy_pixels(end - begin, image.channels, from, image.pixel, to, p.pixel);
    else
      transpose(image.channels, end - begin, from, image.h * image.w, to, p.pixel);
    if (p.pixel > image.channels)
      for (int64_t x = begin; x < end; ++x, to += p.pixel) std::fill(to + image.channels, to + p.pixel, 0.0f);
  }
}

// Writes the part of the strip that is inside the image. The strip begins inside.
inline void write_strip(const float* strip, const StripPlace& p, const ImageView<float>& image) {
  const int64_t rows = std::min(p.rows, image.h - p.y), cols = std::min(p.cols, image.w - p.x);
  for (int64_t i = 0; i < rows; ++i, strip += p.cols * p.pixel) {
    float* to = image.at(p.y + i, p.x);
    if (image.last)
      copy_pixels(cols, image.channels, strip, p.pixel, to, image.pixel);
    else
      transpose(cols, image.channels, strip, p.pixel, to, image.h * image.w);
  }
}

}  // namespace pg::cpu
