// The arguments of kernels/scan.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// Lines along the middle dim of outer x n x inner.
struct ScanArgs {
  const void* x;
  const void* factors;  // of scan_affine
  void* out;
  void* indices;  // of extremes
  void* states;   // of parts, kScanStateBytes each
  int64_t outer, n, inner;
  int64_t parts, length;  // of a line; elements of a part
  int64_t base;           // of indices
  int32_t reverse, lag;
};

constexpr int64_t kScanStateBytes = 24;
constexpr int kScanItems = 8;  // elements of a thread in a tile

}  // namespace pg::kernels
