#include "tensor/cpu/gemm/prepared.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kMacsPerTask = 1 << 20;  // less work than this does not repay waking a thread

using Primitive = std::shared_ptr<const OneDnnPrepared>;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

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

// A linear layer, cut by its grid. Each column block has weights of its own; every row block reads them.
class PreparedGrid final : public PreparedKernel {
 public:
  PreparedGrid(const ProductGrid& grid, int64_t m, int64_t n, int64_t k, bool bias, bool packs, const Finish& finish)
      : grid_(grid), m_(m), n_(n), k_(k), finish_(finish) {
    for (int64_t i = 0; i < 4; ++i) {  // the last row and the last column have blocks of their own sizes
      const int64_t rows = i / 2 ? last_rows() : grid.rows, columns = i % 2 ? last_columns() : grid.columns;
      const bool again = (i % 2 && columns == grid.columns) || (i / 2 && rows == grid.rows);
      sizes_[size_t(i)] = again ? sizes_[size_t(i % 2 && columns == grid.columns ? i - 1 : i - 2)]
                                : Primitive(onednn_prepare_linear({rows, columns, k, bias}, packs));
      if (!sizes_[size_t(i)]) return;
      const size_t result = columns < n ? aligned(size_t(rows * columns) * sizeof(float)) : 0;
      block_bytes_ = std::max(block_bytes_, result + aligned(sizes_[size_t(i)]->scratch_bytes));
    }
    scratch_bytes = block_bytes_ * size_t(grid.count());
    column_bytes_ = aligned(sizes_[0]->packed_bytes);
    packed_bytes = column_bytes_ * size_t(grid.column_blocks - 1) + sizes_[1]->packed_bytes;
    if (packed_bytes) packed_input = 1;
  }
  bool ready() const {
    return sizes_[3] && sizes_[0]->packs_like(*sizes_[2]) && sizes_[1]->packs_like(*sizes_[3]) &&
           bool(sizes_[0]->packed_bytes) == bool(sizes_[1]->packed_bytes);
  }

  void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const override {
    const float *x = in[0].as<float>(), *w = in[1].as<float>(), *bias = in[2].as<float>();
    float* y = out[0].as<float>();
    parallel_parts(grid_.count(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        poll_kernel();
        const int64_t row = i / grid_.column_blocks * grid_.rows, block = i % grid_.column_blocks;
        const int64_t rows = std::min(grid_.rows, m_ - row), column = block * grid_.columns;
        const int64_t columns = std::min(grid_.columns, n_ - column);
        char* own = static_cast<char*>(scratch) + size_t(i) * block_bytes_;
        const size_t result = columns < n_ ? aligned(size_t(rows * columns) * sizeof(float)) : 0;
        float* to = result ? reinterpret_cast<float*>(own) : y + row * n_;
        primitive(rows, columns)
            .run(x + row * k_, w + column * k_,
                 packed ? static_cast<const char*>(packed) + size_t(block) * column_bytes_ : nullptr,
                 bias ? bias + column : nullptr, to, own + result);
        if (result) place_columns(rows, columns, to, n_, y + row * n_ + column);
      }
    });
    finish_(out);
  }
  void pack(const View& w, void* packed) const override {
    for (int64_t block = 0; block < grid_.column_blocks; ++block) {
      const int64_t column = block * grid_.columns;
      primitive(grid_.rows, std::min(grid_.columns, n_ - column))
          .pack(w.as<float>() + column * k_, static_cast<char*>(packed) + size_t(block) * column_bytes_);
    }
  }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const PreparedGrid*>(&other);
    return o && packed_bytes == o->packed_bytes && grid_.columns == o->grid_.columns && n_ == o->n_ &&
           sizes_[0]->packs_like(*o->sizes_[0]) && sizes_[1]->packs_like(*o->sizes_[1]);
  }

 private:
  int64_t last_rows() const { return m_ - (grid_.row_blocks - 1) * grid_.rows; }
  int64_t last_columns() const { return n_ - (grid_.column_blocks - 1) * grid_.columns; }
  const OneDnnPrepared& primitive(int64_t rows, int64_t columns) const {
    return *sizes_[(rows == grid_.rows ? 0 : 2) + (columns == grid_.columns ? 0 : 1)];
  }

  ProductGrid grid_;
  int64_t m_, n_, k_;
  Finish finish_;
  std::array<Primitive, 4> sizes_;  // by whether it is in the last row, and in the last column
  size_t block_bytes_ = 0;          // of scratch memory
  size_t column_bytes_ = 0;         // of the packed weights of a column block
};

// A share of a convolution of images (N, spatial..., C): some images, a strip of one, or some output channels.
struct Share {
  ConvShape shape;
  int64_t x = 0, y = 0;  // the first element of the share in both arrays
  int64_t channel = 0;   // its first output channel
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
  constexpr int64_t kUnit = 64;  // channels that the library's kernels compute together
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
std::vector<std::vector<Share>> cuts(const ConvShape& s) {
  const int64_t weights = s.oc * (s.ic / s.groups) * s.taps(), image = s.oc * s.out_plane();
  const int64_t most = s.n > 2 ? std::clamp<int64_t>(s.n, 4, 16) : weights <= image ? 4 : 2;
  const int64_t parts = std::clamp<int64_t>(s.macs() / (4 * kMacsPerTask), 1, most);
  const int64_t calls = s.macs() / kOneDnnMacsPerCall;
  std::vector<std::vector<Share>> out;
  if (weights > image && s.n <= 2 && s.groups == 1 && parts > 1 && calls <= parts)
    out.push_back(channel_shares(s, parts));
  out.push_back(spatial_shares(s, std::max(parts, calls)));
  if (calls <= s.n) out.push_back(spatial_shares(s, s.n));  // whole images, all of one size
  return out;
}

class ConvLast final : public PreparedKernel {
 public:
  ConvLast(const ConvShape& s, std::vector<Share> shares, bool bias, const Finish& finish)
      : finish_(finish), channels_(s.oc), weights_(s.ic / s.groups * s.taps()), shares_(std::move(shares)) {
    const int dims = onednn_spatial_dims(s);
    for (const Share& share : shares_) {
      primitives_.push_back(onednn_prepare_conv_last(share.shape, dims, bias));
      if (!primitives_.back()) return;
      const size_t result = splits_channels() ? size_t(result_size(share.shape)) * sizeof(float) : 0;
      result_bytes_ = std::max(result_bytes_, aligned(result));
      part_bytes_ = std::max(part_bytes_, result_bytes_ + aligned(primitives_.back()->scratch_bytes));
    }
    packed_bytes = packed_at(splits_channels() ? shares_.size() : 1);
    if (packed_bytes) packed_input = 1;
    scratch_bytes = packed_bytes + part_bytes_ * shares_.size();
  }
  bool ready() const {
    if (!primitives_.back()) return false;
    const auto same = [&](const Primitive& p) { return primitives_[0]->packs_like(*p); };
    return splits_channels() || std::all_of(primitives_.begin(), primitives_.end(), same);
  }

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
        const Share& share = shares_[p];
        char* own = base + packed_bytes + p * part_bytes_;
        float* to = splits_channels() ? reinterpret_cast<float*>(own) : y + share.y;
        const char* weights =
            packed ? static_cast<const char*>(packed) + packed_at(splits_channels() ? p : 0) : nullptr;
        primitives_[p]->run(x + share.x, w + share.channel * weights_, weights, bias ? bias + share.channel : nullptr,
                            to, own + result_bytes_);
        if (finish_.relu()) rectify(result_size(share.shape), to);  // the library's relu turns NaN into 0
        if (splits_channels()) {
          const int64_t pixels = share.shape.n * share.shape.out_plane();
          place_columns(pixels, share.shape.oc, to, channels_, y + share.channel);
        }
      }
    });
    if (!finish_.relu()) finish_(out);
  }
  void pack(const View& w, void* packed) const override {
    for (size_t p = 0; p < (splits_channels() ? shares_.size() : 1); ++p)
      primitives_[p]->pack(w.as<float>() + shares_[p].channel * weights_, static_cast<char*>(packed) + packed_at(p));
  }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const ConvLast*>(&other);
    if (!o || packed_bytes != o->packed_bytes || splits_channels() != o->splits_channels()) return false;
    if (!splits_channels()) return primitives_[0]->packs_like(*o->primitives_[0]);
    const auto same = [](const Primitive& a, const Primitive& b) { return a->packs_like(*b); };
    return std::equal(primitives_.begin(), primitives_.end(), o->primitives_.begin(), o->primitives_.end(), same);
  }

 private:
  static int64_t result_size(const ConvShape& s) { return s.n * s.oc * s.out_plane(); }
  bool splits_channels() const { return shares_.back().channel > 0; }
  // The bytes of the packed weights of the first `count` shares.
  size_t packed_at(size_t count) const {
    size_t bytes = 0;
    for (size_t p = 0; p < count; ++p) bytes += aligned(primitives_[p]->packed_bytes);
    return bytes;
  }
  Finish finish_;
  int64_t channels_, weights_;  // output channels; weights of each
  std::vector<Share> shares_;
  std::vector<Primitive> primitives_;
  size_t result_bytes_ = 0, part_bytes_ = 0;  // of a share: its result where it has to be copied; all its scratch
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
  const auto grid = linear_grid(m, n, k);
  if (!grid) return std::make_unique<SmallLinear>(m, n, k, finish);
  auto kernel = std::make_unique<PreparedGrid>(*grid, m, n, k, bias, packs, finish);
  if (!kernel->ready()) return nullptr;
  return kernel;
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
  for (std::vector<Share>& shares : cuts(s)) {
    auto kernel = std::make_unique<ConvLast>(s, std::move(shares), bias, finish);
    if (kernel->ready()) return kernel;
  }
  return nullptr;
}

std::unique_ptr<const PreparedKernel> prepare_conv_gradient(const ConvShape& s, ConvPart part) {
  auto direct = DirectConv::make(s, part);
  if (!direct) return nullptr;
  return std::make_unique<DirectConvKernel>(std::move(*direct), std::nullopt);
}

}  // namespace pg::cpu
