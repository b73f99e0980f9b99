#include "tensor/cpu/gemm/prepared.h"

#include <algorithm>
#include <optional>

#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kMacsPerTask = 1 << 20;  // less work than this does not repay waking a thread

using Primitive = std::shared_ptr<const OneDnnPrepared>;

// One primitive per share of the rows (or images). Rows are split evenly over the threads that exist when it is made.
class RowWise final : public PreparedKernel {
 public:
  // `make(rows)` prepares the primitive of a share. ready() returns false when the library has none, or when the two
  // sizes of shares pack differently.
  template <class Make>
  RowWise(int64_t rows, int64_t parts, int64_t x_row, int64_t y_row, const Finish& finish, Make make)
      : rows_(rows), parts_(parts), x_row_(x_row), y_row_(y_row), finish_(finish) {
    small_ = make(rows / parts);
    large_ = rows % parts ? Primitive(make(rows / parts + 1)) : small_;
    if (!ready()) return;
    part_bytes_ = (std::max(small_->scratch_bytes, large_->scratch_bytes) + 63) / 64 * 64;
    scratch_bytes = part_bytes_ * size_t(parts);
    packed_bytes = small_->packed_bytes;
    if (packed_bytes) packed_input = 1;
  }
  bool ready() const { return small_ && large_ && small_->packs_like(*large_); }

  void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const override {
    const float *x = in[0].as<float>(), *w = in[1].as<float>(), *bias = in[2].as<float>();
    float* y = out[0].as<float>();
    parallel_parts(parts_, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        poll_kernel();
        const int64_t first = p * rows_ / parts_, count = (p + 1) * rows_ / parts_ - first;
        const OneDnnPrepared& share = count == rows_ / parts_ ? *small_ : *large_;
        share.run(x + first * x_row_, w, packed, bias, y + first * y_row_,
                  static_cast<char*>(scratch) + size_t(p) * part_bytes_);
      }
    });
    finish_(out);
  }
  void pack(const View& w, void* packed) const override { small_->pack(w.as<float>(), packed); }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const RowWise*>(&other);
    return o && packed_bytes == o->packed_bytes && small_->packs_like(*o->small_);
  }

 private:
  int64_t rows_, parts_, x_row_, y_row_;
  Finish finish_;
  Primitive small_, large_;
  size_t part_bytes_ = 0;
};

// A share of a convolution of images (N, spatial..., C): some images, or a strip of one. Both are contiguous arrays.
struct Share {
  ConvShape shape;
  int64_t x = 0, y = 0;  // the first element of the share
};

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

std::vector<Share> shares(const ConvShape& s, int64_t parts) {
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

// The number of shares. It depends only on the shape: the library cuts the sums of a convolution depending on its size,
// so that otherwise the bits would depend on the number of threads. Each strip of an image reads all weights, so large
// weights allow only two.
int64_t parts_of(const ConvShape& s) {
  const int64_t weights = s.oc * (s.ic / s.groups) * s.taps(), image = s.oc * s.out_plane();
  const int64_t most = s.n > 2 ? std::clamp<int64_t>(s.n, 4, 16) : weights <= image ? 4 : 2;
  return std::clamp<int64_t>(s.macs() / (4 * kMacsPerTask), 1, most);
}

class ConvLast final : public PreparedKernel {
 public:
  ConvLast(const ConvShape& s, bool bias, const Finish& finish) : finish_(finish) {
    shares_ = shares(s, std::max(parts_of(s), s.macs() / kOneDnnMacsPerCall));
    const int dims = onednn_spatial_dims(s);
    for (const Share& share : shares_) {
      primitives_.push_back(onednn_prepare_conv_last(share.shape, dims, bias));
      if (!ready()) return;
      part_bytes_ = std::max(part_bytes_, (primitives_.back()->scratch_bytes + 63) / 64 * 64);
    }
    packed_bytes = primitives_[0]->packed_bytes;
    if (packed_bytes) packed_input = 1;
    weight_bytes_ = (packed_bytes + 63) / 64 * 64;
    scratch_bytes = weight_bytes_ + part_bytes_ * shares_.size();
  }
  bool ready() const { return primitives_.back() && primitives_[0]->packs_like(*primitives_.back()); }

  void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const override {
    const float *x = in[0].as<float>(), *w = in[1].as<float>(), *bias = in[2].as<float>();
    float* y = out[0].as<float>();
    char* base = static_cast<char*>(scratch);
    if (!packed && packed_bytes) {
      pack(in[1], base);
      packed = base;
    }
    parallel_parts(int64_t(shares_.size()), [&](int64_t begin, int64_t end) {
      for (size_t p = size_t(begin); p < size_t(end); ++p) {
        poll_kernel();
        const ConvShape& s = shares_[p].shape;
        float* to = y + shares_[p].y;
        primitives_[p]->run(x + shares_[p].x, w, packed, bias, to, base + weight_bytes_ + p * part_bytes_);
        if (finish_.relu()) rectify(s.n * s.oc * s.out_plane(), to);  // the library's relu turns NaN into 0
      }
    });
    if (!finish_.relu()) finish_(out);
  }
  void pack(const View& w, void* packed) const override { primitives_[0]->pack(w.as<float>(), packed); }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const ConvLast*>(&other);
    return o && packed_bytes == o->packed_bytes && primitives_[0]->packs_like(*o->primitives_[0]);
  }

 private:
  Finish finish_;
  std::vector<Share> shares_;
  std::vector<Primitive> primitives_;
  size_t part_bytes_ = 0, weight_bytes_ = 0;
};

class SmallLinear final : public PreparedKernel {
 public:
  SmallLinear(int64_t m, int64_t n, int64_t k, const Finish& finish) : m_(m), n_(n), k_(k), finish_(finish) {}
  void run(std::span<const View> in, std::span<const View> out, void*, const void*) const override {
    const float* bias = in[2] ? in[2].as<float>() : nullptr;
    linear(m_, n_, k_, in[0].as<float>(), in[1].as<float>(), bias, finish_.relu(), out[0].as<float>());
    if (!finish_.relu()) finish_(out);
  }

 private:
  int64_t m_, n_, k_;
  Finish finish_;
};

class DirectConvKernel final : public PreparedKernel {
 public:
  DirectConvKernel(DirectConv conv, std::optional<Finish> finish)
      : conv_(std::move(conv)), finish_(std::move(finish)) {}
  void run(std::span<const View> in, std::span<const View> out, void*, const void*) const override {
    const float* bias = in.size() > 2 && in[2] ? in[2].as<float>() : nullptr;
    const bool relu = finish_ && finish_->relu();
    conv_.run(in[0].as<float>(), in[1].as<float>(), bias, relu, out[0].as<float>());
    if (finish_ && !relu) (*finish_)(out);
  }

 private:
  DirectConv conv_;
  std::optional<Finish> finish_;
};

template <class Make>
std::unique_ptr<const PreparedKernel> row_wise(int64_t rows, int64_t parts, int64_t x_row, int64_t y_row,
                                               const Finish& finish, Make make) {
  auto kernel = std::make_unique<RowWise>(rows, parts, x_row, y_row, finish, make);
  if (!kernel->ready()) return nullptr;
  return kernel;
}

}  // namespace

Finish::Finish(const KernelArgs& args)
    : op_(args.op),
      attrs_(args.attrs),
      activates_(args.op.attr_index("activation") >= 0),
      relu_(activates_ && asks_relu(args)) {}

void Finish::operator()(std::span<const View> out) const {
  if (relu_) return rectify(out[0].numel(), out[0].as<float>());
  auto no_allocation = [](int, const Dims&) -> View { return {}; };
  if (activates_) activate(KernelArgs{op_, out, out, attrs_, no_allocation});
}

std::unique_ptr<const PreparedKernel> prepare_linear(int64_t m, int64_t n, int64_t k, bool bias, bool packs,
                                                     const Finish& finish) {
  if (!linear_prefers_primitive(m, n, k)) return std::make_unique<SmallLinear>(m, n, k, finish);
  const int64_t parts = m * n * k < 2 * kMacsPerTask ? 1 : std::clamp<int64_t>(m / 16, 1, num_threads());
  return row_wise(m, parts, k, n, finish, [&](int64_t rows) {
    return Primitive(onednn_prepare_linear({rows, n, k, bias}, packs));
  });
}

std::unique_ptr<const PreparedKernel> prepare_conv(const ConvShape& s, bool bias, bool packs, const Finish& finish) {
  if (auto direct = DirectConv::make(s, ConvPart::kForward))
    return std::make_unique<DirectConvKernel>(std::move(*direct), finish);
  if (!packs || !conv_forward_prefers_primitive(s)) return nullptr;
  const int64_t parts = std::min<int64_t>(std::max<int64_t>(num_threads(), s.macs() / kOneDnnMacsPerCall), s.n);
  return row_wise(s.n, parts, s.ic * s.in_plane(), s.oc * s.out_plane(), finish,
                  [&](int64_t images) { return Primitive(onednn_prepare_conv(s, images, bias)); });
}

std::unique_ptr<const PreparedKernel> prepare_conv_last(const ConvShape& s, bool bias, const Finish& finish) {
  auto kernel = std::make_unique<ConvLast>(s, bias, finish);
  if (!kernel->ready()) return nullptr;
  return kernel;
}

std::unique_ptr<const PreparedKernel> prepare_conv_gradient(const ConvShape& s, ConvPart part) {
  auto direct = DirectConv::make(s, part);
  if (!direct) return nullptr;
  return std::make_unique<DirectConvKernel>(std::move(*direct), std::nullopt);
}

}  // namespace pg::cpu
