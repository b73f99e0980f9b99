#include <algorithm>

#include "tensor/cpu/pointwise/tile_program.h"

namespace pg::cpu {
namespace {

// Shorter runs are cheaper copied together than walked one by one. Copies of periodic operands serve all tiles.
constexpr int64_t kShortestRun = 128, kShortestPeriod = 512;

bool merges(const TileLayout& l, int outer) {
  for (const Dims& s : l.strides)
    if (s[outer] != s[outer + 1] * l.shape[outer + 1]) return false;
  return true;
}

void collapse(TileLayout& l) {
  for (int d = l.shape.size() - 1; d >= 0; --d) {
    if (l.shape[d] != 1) continue;
    l.shape.erase(d);
    for (Dims& s : l.strides) s.erase(d);
  }
  if (l.size == 0) return;  // nothing will be read
  for (int d = l.shape.size() - 2; d >= 0; --d) {
    if (!merges(l, d)) continue;
    l.shape[d] *= l.shape[d + 1];
    l.shape.erase(d + 1);
    for (Dims& s : l.strides) {
      s[d] = s[d + 1];
      s.erase(d + 1);
    }
  }
}

}  // namespace

TileLayout::TileLayout(const TileBody& body) : shape(body.space), size(numel(body.space)) {
  for (const TileInput& in : body.inputs)
    strides.emplace_back(broadcast_strides(in.shape, contiguous_strides(in.shape), shape));
  find_access();
}

TileLayout::TileLayout(const Dims& space, std::span<const View> in) : shape(space), size(numel(space)) {
  for (const View& v : in) strides.emplace_back(broadcast_strides(v.shape(), *v.strides, shape));
  find_access();
}

void TileLayout::find_access() {
  collapse(*this);
  inner = shape.empty() ? 1 : shape.back();
  const Dims dense = contiguous_strides(shape);
  bool plain = true, periods = true;
  for (const Dims& s : strides) {
    const bool single = std::count(s.begin(), s.end(), 0) == s.size();
    access.push_back(single ? Access::kSingle : s == dense ? Access::kLinear : Access::kGather);
    if (access.back() != Access::kGather) continue;
    plain = false;
    periods &= periodic(access.size() - 1);
  }
  runs = !plain && inner >= (periods ? kShortestPeriod : kShortestRun);
  if (!runs) return;
  for (size_t k = 0; k < access.size(); ++k) {
    if (access[k] != Access::kGather) continue;
    const int64_t step = strides[k].back();
    access[k] = step == 0 ? Access::kColumn : step == 1 ? Access::kRun : Access::kGather;
  }
}

int8_t TileLayout::level(size_t input) const {
  return access[input] == Access::kSingle ? 0 : access[input] == Access::kColumn ? 1 : 2;
}

int64_t TileLayout::offset(size_t input, int64_t position) const {
  int64_t out = 0;
  for (int d = shape.size() - 1; d >= 0; --d) {
    out += position % shape[d] * strides[input][d];
    position /= shape[d];
  }
  return out;
}

bool TileLayout::periodic(size_t input) const {
  if (access[input] != Access::kGather) return false;
  const Dims& s = strides[input];
  return std::count(s.begin(), s.end(), 0) == s.size() - 1 && s.back() != 0;
}

}  // namespace pg::cpu
