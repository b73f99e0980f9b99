// The parts of Winograd's convolutions that are written with Highway. They run on the calling thread.
#pragma once
#include <cstdint>

namespace pg::cpu {

// The transforms of a tile, for F(m x m, 3 x 3) and its gradients; t = m + 2.
enum class WinogradPart {
  kInput,      // t x t of the input -> t x t
  kWeights,    // 3 x 3 -> t x t
  kOutput,     // t x t sums of products -> m x m, plus a bias, then relu
  kGradient,   // m x m of the output's gradient -> t x t
  kWeightSums  // t x t sums of products -> 3 x 3, the weights' gradient
};

// Where the elements of tiles are. Those of a tile are vectors over `channels`, a multiple of 16.
struct WinogradTiles {
  const float* from;
  int64_t from_row, from_col, from_tile;  // distances between elements of a tile and between tiles
  float* to;
  int64_t to_row, to_col, to_tile;
  int64_t tiles, channels;
  const float* bias = nullptr;
  bool relu = false;
};
// m is 2 or 4.
void winograd_transform(int m, WinogradPart part, const WinogradTiles& tiles);

// The columns of a panel of transformed weights.
constexpr int64_t kWinogradColumns = 32;
// Rows that a product computes together. It reads a multiple of them.
constexpr int64_t kWinogradRows = 12;

// `planes` products c[rows, columns] = a[rows, depth] * b[depth, columns], with the distances between planes and rows.
struct WinogradProducts {
  int64_t planes, rows, columns, depth;
  const float* a;
  int64_t a_plane, a_row, a_step;  // element (i, l) is at i * a_row + l * a_step
  const float* b;
  int64_t b_plane, b_row, b_panel;  // panels of kWinogradColumns columns
  float* c;
  int64_t c_plane, c_row;
  bool adds;  // to c
};
// Writes whole panels of columns.
void winograd_multiply(const WinogradProducts& p);

}  // namespace pg::cpu
