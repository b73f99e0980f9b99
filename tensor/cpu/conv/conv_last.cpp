#include "tensor/cpu/conv/conv_last.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tensor/cpu/gemm/gemm.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

using Share = ConvLast::Share;

constexpr int64_t kMacsPerShare = 1 << 19;  // less work than this does not repay a call of its own
constexpr int64_t kGainOfSmall = 4;         // of bfloat16, where a call takes some tens of microseconds
constexpr int64_t kMacsPerElement = 8;      // that take as long as to read or write one

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t result_size(const ConvShape& s) { return s.n * s.oc * s.out_plane(); }

// Strips are cut along the first spatial dim that has several outputs. Neighbours read some of the same input.
void add_strips(const ConvShape& s, int64_t count, size_t dim, std::vector<Share>* out) {
  for (int64_t p = 0; p < count; ++p) {
    const int64_t begin = p * s.out[dim] / count, end = (p + 1) * s.out[dim] / count;
    const int64_t from = begin * s.stride[dim] - s.pad[dim],
                  to = (end - 1) * s.stride[dim] - s.pad[dim] + s.dilation[dim] * (s.kernel[dim] - 1) + 1;
    Share share{s};
    share.shape.n = 1;
    share.shape.out[dim] = end - begin;
    share.shape.pad[dim] = std::max<int64_t>(0, -from);
    share.shape.in[dim] = std::min(to, s.in[dim]) - std::max<int64_t>(0, from);
    share.x = std::max<int64_t>(0, from) * (s.in_plane() / s.in[dim]) * s.ic;
    share.y = begin * (s.out_plane() / s.out[dim]) * s.oc;
    out->push_back(share);
  }
}

std::vector<Share> spatial_shares(const ConvShape& s, int64_t parts) {
  std::vector<Share> out;
  size_t dim = 0;
  while (dim < 2 && s.in[dim] == 1 && s.out[dim] == 1) ++dim;  // the outermost dim, so that strips are contiguous
  const int64_t strips = std::min((parts + s.n - 1) / s.n, s.out[dim]), images = std::min(parts, s.n);
  if (strips > 1) add_strips(s, strips, dim, &out);
  const auto reads_padding_only = [&](const Share& share) { return share.shape.in[dim] < 1; };
  if (std::any_of(out.begin(), out.end(), reads_padding_only)) out.clear();
  if (!out.empty()) {
    for (int64_t i = strips; i < s.n * strips; ++i) {
      out.push_back(out[size_t(i - strips)]);
      out.back().x += s.ic * s.in_plane();
      out.back().y += s.oc * s.out_plane();
    }
    return out;
  }
  for (int64_t p = 0; p < images; ++p) {
    const int64_t first = p * s.n / images;
    out.push_back({s, first * s.ic * s.in_plane(), first * s.oc * s.out_plane()});
    out.back().shape.n = (p + 1) * s.n / images - first;
  }
  return out;
}

std::vector<Share> channel_shares(const ConvShape& s, int64_t parts) {
  constexpr int64_t kUnit = 16;  // channels of a vector
  const int64_t units = (s.oc + kUnit - 1) / kUnit;
  parts = std::min(parts, units);
  std::vector<Share> out;
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t first = p * units / parts * kUnit, end = std::min((p + 1) * units / parts * kUnit, s.oc);
    out.push_back({s, 0, 0, first});
    out.back().shape.oc = end - first;
  }
  return out;
}

// The ways to cut a convolution, best first. They depend only on the shape: the library cuts the sums of a convolution
// depending on its size, so that otherwise the bits would depend on the number of threads. Each strip of an image reads
// all weights. Where these are larger than the result, each share therefore computes some of the channels. The library
// may pack the weights of strips of different sizes in different layouts, which one plan cannot use.
std::vector<std::vector<Share>> cuts(DType type, const ConvShape& s) {
  const int64_t weights = s.oc * (s.ic / s.groups) * s.taps(), image = s.oc * s.out_plane();
  const int64_t most = s.n > 2 ? std::clamp<int64_t>(s.n, 4, 16) : weights <= image ? 4 : 2;
  const int64_t elements = weights + s.n * (s.ic * s.in_plane() + s.oc * s.out_plane());
  const int64_t macs = s.macs() / std::min(bfloat16_gain(type, s), kGainOfSmall);
  const int64_t wanted = std::clamp<int64_t>((macs + kMacsPerElement * elements) / kMacsPerShare, 1, most);
  const int64_t parts = s.n == 1 ? int64_t(std::bit_floor(uint64_t(wanted))) : wanted;  // the same strips in all layers
  const int64_t calls = s.macs() / kOneDnnMacsPerCall;
  std::vector<std::vector<Share>> out;
  if (weights > image && s.n <= 2 && s.groups == 1 && parts > 1 && calls <= parts)
    out.push_back(channel_shares(s, parts));
  out.push_back(spatial_shares(s, std::max(parts, calls)));
  if (calls <= s.n) out.push_back(spatial_shares(s, s.n));  // whole images, all of one size
  return out;
}

}  // namespace

ConvLast::ConvLast(DType type, const ConvShape& s, std::vector<Share> shares, bool bias)
    : channels_(s.oc), weights_(s.ic / s.groups * s.taps()), element_(size_of(type)), shares_(std::move(shares)) {
  const int dims = onednn_spatial_dims(s);
  size_t scratch = 0;
  for (const Share& share : shares_) {
    primitives_.push_back(onednn_prepare_conv_last(type, share.shape, dims, bias));
    if (!primitives_.back()) return;
    const size_t result = splits_channels() ? size_t(result_size(share.shape) * element_) : 0;
    result_bytes_ = std::max(result_bytes_, aligned(result));
    scratch = std::max(scratch, aligned(primitives_.back()->scratch_bytes));
  }
  part_bytes_ = result_bytes_ + scratch;
  packed_bytes_ = packed_at(packs());
}

std::unique_ptr<const ConvLast> ConvLast::make(DType type, const ConvShape& s, bool bias) {
  for (std::vector<Share>& shares : cuts(type, s)) {
    std::unique_ptr<const ConvLast> conv(new ConvLast(type, s, std::move(shares), bias));
    if (conv->ready()) return conv;
  }
  return nullptr;
}

bool ConvLast::ready() const {
  if (!primitives_.back()) return false;
  const auto fits = [&](const auto& p) {
    return splits_channels() ? bool(p->packed_bytes) == bool(packed_bytes_) : primitives_[0]->packs_like(*p);
  };
  return std::all_of(primitives_.begin(), primitives_.end(), fits);
}

void ConvLast::run(const void* x, const void* w, const void* packed, const float* bias, FinishPart finish, void* y,
                   void* scratch) const {
  char *base = static_cast<char*>(scratch), *result = static_cast<char*>(y);
  const char* images = static_cast<const char*>(x);
  if (!packed && packed_bytes_) {
    pack(w, base);
    packed = base;
  }
  parallel_parts(int64_t(shares_.size()), [&](int64_t begin, int64_t end) {
    for (size_t p = size_t(begin); p < size_t(end); ++p) {
      poll_kernel();
      const Share& share = shares_[p];
      char* own = base + packed_bytes_ + p * part_bytes_;
      char* to = splits_channels() ? own : result + share.y * element_;
      const void* weights = static_cast<const char*>(w) + share.channel * weights_ * element_;
      if (packed) weights = static_cast<const char*>(packed) + packed_at(splits_channels() ? p : 0);
      primitives_[p]->run(images + share.x * element_, weights, bias ? bias + share.channel : nullptr, to,
                          own + result_bytes_);
      finish(result_size(share.shape), to);
      if (splits_channels()) {
        const int64_t pixels = share.shape.n * share.shape.out_plane(), bytes = share.shape.oc * element_;
        for (int64_t i = 0; i < pixels; ++i)
          std::copy_n(to + i * bytes, bytes, result + (i * channels_ + share.channel) * element_);
      }
    }
  });
}

void ConvLast::pack(const void* w, void* packed) const {
  parallel_parts(int64_t(packs()), [&](int64_t begin, int64_t end) {
    for (size_t p = size_t(begin); p < size_t(end); ++p)
      primitives_[p]->pack(static_cast<const char*>(w) + shares_[p].channel * weights_ * element_,
                           static_cast<char*>(packed) + packed_at(p));
  });
}

bool ConvLast::packs_like(const ConvLast& other) const {
  if (packed_bytes_ != other.packed_bytes_ || packs() != other.packs()) return false;
  for (size_t p = 0; p < packs(); ++p)
    if (!primitives_[p]->packs_like(*other.primitives_[p])) return false;
  return true;
}

size_t ConvLast::packed_at(size_t count) const {
  size_t bytes = 0;
  for (size_t p = 0; p < count; ++p) bytes += aligned(primitives_[p]->packed_bytes);
  return bytes;
}

}  // namespace pg::cpu
