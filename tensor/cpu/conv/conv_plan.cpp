#include "tensor/cpu/conv/conv_plan.h"

#include <algorithm>

namespace pg::cpu {

ConvPlan::ConvPlan(const ConvShape& s, int64_t cols, int64_t group) : shape_(s), cols_(cols), group_(group) {
  padded_ = false;
  for (int i = 0; i < 3; ++i) {
    const int64_t reach = (s.out[i] - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + 1;
    padded_ = padded_ || s.pad[i] > 0 || reach > s.in[i];
  }
  for (int i = 0; i < 3; ++i) {
    const int64_t reach = (s.out[i] - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + 1;
    dims_[i] = padded_ ? std::max(s.in[i] + s.pad[i], reach) : s.in[i];
  }
  for (int64_t c = 0; c < s.ic / s.groups; ++c)
    for (int64_t z = 0; z < s.kernel[0]; ++z)
      for (int64_t y = 0; y < s.kernel[1]; ++y)
        for (int64_t x = 0; x < s.kernel[2]; ++x)
          offsets_.push_back(((c * dims_[0] + z * s.dilation[0]) * dims_[1] + y * s.dilation[1]) * dims_[2] +
                             x * s.dilation[2]);
  full_ = cut(group_);
  if (s.n % group_ != 0) last_ = cut(s.n % group_);
}

int64_t ConvPlan::images_of(int64_t group) const { return std::min(group_, shape_.n - group * group_); }

BlockRuns ConvPlan::runs(const BlockList& list, int64_t block) const {
  const int64_t first = list.begin[block];
  const int64_t count = list.begin[block + 1] - first;
  const bool full = list.piece > 0 && count * list.piece == cols_;
  return {list.runs.data() + first, count, shape_.stride[2], full ? list.piece : 0};
}

BlockList ConvPlan::cut(int64_t images) const {
  BlockList list;
  list.images = images;
  list.begin.push_back(0);
  const ConvShape& s = shape_;
  int64_t filled = 0;
  const int64_t piece = piece_length();
  list.piece = static_cast<int32_t>(piece);
  const auto add = [&](int64_t src, int64_t len) {
    const bool joins = !piece && filled > 0 && s.stride[2] == 1 && list.runs.back().src + list.runs.back().len == src;
    if (joins)
      list.runs.back().len += static_cast<int32_t>(len);
    else
      list.runs.push_back({src, static_cast<int32_t>(filled), static_cast<int32_t>(len)});
    filled += len;
    if (filled == cols_) {
      filled = 0;
      list.begin.push_back(static_cast<int64_t>(list.runs.size()));
    }
  };
  for (int64_t n = 0; n < images; ++n)
    for (int64_t z = 0; z < s.out[0]; ++z)
      for (int64_t y = 0; y < s.out[1]; ++y) {
        const int64_t row = n * padded_image() + (z * s.stride[0] * dims_[1] + y * s.stride[1]) * dims_[2];
        for (int64_t x = 0; x < s.out[2];) {
          int64_t len = std::min(s.out[2] - x, cols_ - filled);
          if (piece) len = piece;
          add(row + x * s.stride[2], len);
          x += len;
        }
      }
  if (filled > 0) list.begin.push_back(static_cast<int64_t>(list.runs.size()));
  return list;
}

int64_t ConvPlan::piece_length() const {
  if (shape_.stride[2] != 1) return 0;
  if (shape_.out[2] % 16 == 0) return 16;
  return shape_.out[2] % 8 == 0 ? 8 : 0;
}

template <class T>
void ConvPlan::pad(const T* x, int64_t images, T* out) const {
  const ConvShape& s = shape_;
  std::fill_n(out, images * padded_image(), T(0));
  for (int64_t c = 0; c < images * s.ic; ++c)
    for (int64_t z = 0; z < s.in[0]; ++z)
      for (int64_t y = 0; y < s.in[1]; ++y, x += s.in[2])
        std::copy_n(x, s.in[2], out + ((c * dims_[0] + z + s.pad[0]) * dims_[1] + y + s.pad[1]) * dims_[2] + s.pad[2]);
}

template <class T>
void ConvPlan::crop(const T* in, int64_t images, T* x) const {
  const ConvShape& s = shape_;
  for (int64_t c = 0; c < images * s.ic; ++c)
    for (int64_t z = 0; z < s.in[0]; ++z)
      for (int64_t y = 0; y < s.in[1]; ++y, x += s.in[2])
        std::copy_n(in + ((c * dims_[0] + z + s.pad[0]) * dims_[1] + y + s.pad[1]) * dims_[2] + s.pad[2], s.in[2], x);
}

template void ConvPlan::pad<float>(const float*, int64_t, float*) const;
template void ConvPlan::pad<double>(const double*, int64_t, double*) const;
template void ConvPlan::crop<float>(const float*, int64_t, float*) const;
template void ConvPlan::crop<double>(const double*, int64_t, double*) const;

}  // namespace pg::cpu
