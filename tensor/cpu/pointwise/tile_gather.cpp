#include "tensor/cpu/pointwise/tile_gather.h"

#include <algorithm>

namespace pg::cpu {
namespace {

constexpr int64_t kLongRun = 32;  // elements worth a call of memmove

}  // namespace

Gather::Gather(const char* data, int64_t size, const Dims& shape, const Dims& strides) : data_(data), size_(size) {
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
  if (shape_.empty()) {
    shape_.push_back(1);
    strides_.push_back(0);
  }
}

template <class T>
void Gather::read_as(int64_t position, int64_t n, T* out) const {
  const int last = shape_.size() - 1;
  const int64_t stride = strides_[last], inner = shape_[last];
  int64_t index[kMaxRank];
  const T* at = reinterpret_cast<const T*>(data_);
  for (int d = last; d >= 0; --d) {
    index[d] = position % shape_[d];
    position /= shape_[d];
    at += index[d] * strides_[d];
  }
  while (true) {
    const int64_t run = std::min(n, inner - index[last]);
    if (stride == 1 && run >= kLongRun)
      std::copy_n(at, run, out);
    else if (stride == 0)
      std::fill_n(out, run, *at);
    else
      for (int64_t i = 0; i < run; ++i) out[i] = at[i * stride];
    n -= run;
    if (n == 0) return;
    out += run;
    at -= index[last] * stride;
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      at += strides_[d];
      if (++index[d] < shape_[d]) break;
      at -= shape_[d] * strides_[d];
      index[d] = 0;
    }
  }
}

void Gather::read(int64_t position, int64_t n, char* out) const {
  switch (size_) {
    case 1:
      return read_as(position, n, reinterpret_cast<uint8_t*>(out));
    case 2:
      return read_as(position, n, reinterpret_cast<uint16_t*>(out));
    case 4:
      return read_as(position, n, reinterpret_cast<uint32_t*>(out));
    default:
      return read_as(position, n, reinterpret_cast<uint64_t*>(out));
  }
}

}  // namespace pg::cpu
