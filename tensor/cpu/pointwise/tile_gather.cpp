#include "tensor/cpu/pointwise/tile_gather.h"

#include <algorithm>

#include "tensor/cpu/move/runs_simd.h"

namespace pg::cpu {

Gather::Gather(const char* data, int64_t size, const Dims& shape, const Dims& strides, bool copies)
    : data_(data), size_(size), copies_(copies) {
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const bool merges = !shape_.empty() && strides_.back() == strides[d] * shape[d];
    if (!merges) {
      shape_.push_back(shape[d]);
      strides_.push_back(strides[d]);
      continue;
    }
    shape_[shape_.size() - 1] *= shape[d];
    strides_[strides_.size() - 1] = strides[d];
  }
  while (shape_.size() < 2) {
    shape_.insert(0, 1);
    strides_.insert(0, 0);
  }
}

template <class T>
const T* Gather::read_as(int64_t position, int64_t n, T* out) const {
  const int last = shape_.size() - 1, outer = last - 1;
  const int64_t stride = strides_[last], inner = shape_[last];
  int64_t index[kMaxRank];
  const T* at = reinterpret_cast<const T*>(data_);
  for (int d = last; d >= 0; --d) {
    index[d] = position % shape_[d];
    position /= shape_[d];
    at += index[d] * strides_[d];
  }
  if (!copies_ && stride == 1 && n <= inner - index[last]) return at;
  T* const tile = out;
  const CopyRuns<T> copy = runs_copier<T>(inner, stride);
  while (true) {
    const int64_t run = std::min(n, inner - index[last]);
    const int64_t count = run < inner ? 1 : std::min(n / inner, shape_[outer] - index[outer]);
    (run < inner ? runs_copier<T>(run, stride) : copy)(run, count, at, stride, strides_[outer], out, inner);
    n -= run * count;
    if (n == 0) return tile;
    out += run * count;
    at += strides_[outer] * count - stride * index[last];
    index[last] = 0;
    index[outer] += count;
    for (int d = outer; d > 0 && index[d] == shape_[d]; --d) {
      at += strides_[d - 1] - strides_[d] * shape_[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

const char* Gather::read(int64_t position, int64_t n, char* out) const {
  const auto read = [&]<class T>(T* to) { return reinterpret_cast<const char*>(read_as(position, n, to)); };
  switch (size_) {
    case 1:
      return read(reinterpret_cast<uint8_t*>(out));
    case 2:
      return read(reinterpret_cast<uint16_t*>(out));
    case 4:
      return read(reinterpret_cast<uint32_t*>(out));
    default:
      return read(reinterpret_cast<uint64_t*>(out));
  }
}

}  // namespace pg::cpu
