// What winograd.cpp and winograd_weights.cpp share.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tensor/cpu/conv/winograd.h"
#include "tensor/cpu/conv/winograd_simd.h"

namespace pg::cpu {

constexpr int64_t kVector = 16;            // elements of the widest vectors
constexpr int64_t kMacsPerTask = 1 << 19;  // less work than this does not repay waking a thread
constexpr int64_t kTransformMacs = 32;     // what an element of transformed weights costs: it moves through memory

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

// Memory for the transforms of a block of tiles.
struct Winograd::Block {
  float *v, *products, *strip;
  int64_t plane, product_plane;  // distances between the t * t matrices
  int64_t product_row;           // distance between the products of two tiles
};

// Calls f(first, count, image, row, column) for pieces of tiles [begin, end) that lie in one row of an image.
template <class F>
void Winograd::for_segments(int64_t begin, int64_t end, F f) const {
  while (begin < end) {
    const int64_t column = begin % tile_cols_, row = begin / tile_cols_ % tile_rows_;
    const int64_t count = std::min(end - begin, tile_cols_ - column);
    f(begin, count, begin / tile_cols_ / tile_rows_, row * m_, column * m_);
    begin += count;
  }
}

}  // namespace pg::cpu
