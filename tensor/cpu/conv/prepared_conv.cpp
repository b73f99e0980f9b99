// The prepared kernels of convolutions.
#include <algorithm>
#include <optional>
#include <utility>

#include "tensor/cpu/conv/conv_choice.h"
#include "tensor/cpu/conv/conv_large.h"
#include "tensor/cpu/conv/conv_last.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/winograd.h"
#include "tensor/cpu/converted.h"
#include "tensor/cpu/gemm/prepared.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

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
    packed_bytes = small_->packed_bytes;
    packed_end_ = (packed_bytes + 63) / 64 * 64;
    scratch_bytes = packed_end_ + part_bytes_ * size_t(parts);
    if (packed_bytes) packed_input = 1;
  }
  bool ready() const { return small_ && large_ && small_->packs_like(*large_); }

  void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const override {
    const float *x = in[0].as<float>(), *bias = in[2].as<float>();
    float* y = out[0].as<float>();
    const void* w = packed_bytes ? packed : in[1].as<float>();
    if (!w) {
      small_->pack(in[1].as<float>(), scratch);
      w = scratch;
    }
    parallel_parts(parts_, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        poll_kernel();
        const int64_t first = p * rows_ / parts_, count = (p + 1) * rows_ / parts_ - first;
        const OneDnnPrepared& share = count == rows_ / parts_ ? *small_ : *large_;
        share.run(x + first * x_row_, w, bias, y + first * y_row_,
                  static_cast<char*>(scratch) + packed_end_ + size_t(p) * part_bytes_);
        finish_(count * y_row_, y + first * y_row_);
      }
    });
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
  size_t packed_end_ = 0, part_bytes_ = 0;
};

// Of images of `s` that have the channels first, if it is set.
class PreparedConvLast final : public PreparedKernel {
 public:
  PreparedConvLast(DType type, std::unique_ptr<const ConvLast> conv, const Finish& finish,
                   std::optional<ConvShape> s = std::nullopt)
      : type_(type), conv_(std::move(conv)), finish_(finish), first_(s) {
    packed_bytes = conv_->packed_bytes();
    if (packed_bytes) packed_input = 1;
    scratch_bytes = first_ ? copies_bytes(*conv_, type_, *first_) : conv_->scratch_bytes();
  }
  void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const override {
    const Converted<float> bias(in[2], DType::kFloat32);
    const auto finish = [&](int64_t n, void* part) {
      type_ == DType::kFloat32 ? finish_(n, static_cast<float*>(part)) : finish_(n, static_cast<BFloat16*>(part));
    };
    const void *x = in[0].data, *w = in[1].data;
    if (first_)
      run_between_copies(*conv_, type_, *first_, x, w, packed, bias.data(), finish, out[0].data, scratch);
    else
      conv_->run(x, w, packed, bias.data(), finish, out[0].data, scratch);
  }
  void pack(const View& w, void* packed) const override { conv_->pack(w.data, packed); }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const PreparedConvLast*>(&other);
    return o && type_ == o->type_ && conv_->packs_like(*o->conv_);
  }

 private:
  const DType type_;
  std::unique_ptr<const ConvLast> conv_;
  Finish finish_;
  const std::optional<ConvShape> first_;
};

// Weights that are not packed are transformed in memory of the thread. Arrays of bfloat16 are copied to float32.
class WinogradKernel final : public PreparedKernel {
 public:
  WinogradKernel(DType type, const ConvShape& s, int tile, ImageLayout layout, const Finish& finish)
      : type_(type), conv_(s, ConvPart::kForward, tile, layout), finish_(finish) {
    packed_input = 1;
    packed_bytes = conv_.packed_bytes();
    if (type == DType::kFloat32) return;
    const int64_t x = s.n * s.ic * s.in_plane(), y = s.n * s.oc * s.out_plane();
    at_y_ = (size_t(x) * sizeof(float) + 63) / 64 * 64;
    scratch_bytes = at_y_ + size_t(y) * sizeof(float);
  }
  void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const override {
    const Converted<float> bias(in[2], DType::kFloat32), w(packed ? View() : in[1], DType::kFloat32);
    const float* x = in[0].as<float>();
    float* y = out[0].as<float>();
    if (type_ != DType::kFloat32) {
      float* const wide = static_cast<float*>(scratch);
      convert(type_, in[0].data, DType::kFloat32, wide, in[0].numel());
      x = wide, y = reinterpret_cast<float*>(static_cast<char*>(scratch) + at_y_);
    }
    conv_.run(x, w.data(), packed, bias.data(), finish_.relu(), y);
    if (type_ != DType::kFloat32) convert(DType::kFloat32, y, type_, out[0].data, out[0].numel());
    if (!finish_.relu()) finish_(out);
  }
  void pack(const View& w, void* packed) const override {
    conv_.pack(Converted<float>(w, DType::kFloat32).data(), packed);
  }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const WinogradKernel*>(&other);
    return o && type_ == o->type_ && conv_.packs_like(o->conv_);
  }

 private:
  const DType type_;
  Winograd conv_;
  size_t at_y_ = 0;
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

std::unique_ptr<const PreparedKernel> prepare_between_copies(DType type, const ConvShape& s, bool bias,
                                                             const Finish& finish) {
  if (!prefers_last(type, s)) return nullptr;
  auto conv = ConvLast::make(type, s, bias);
  if (!conv) return nullptr;
  return std::make_unique<PreparedConvLast>(type, std::move(conv), finish, s);
}

}  // namespace

std::unique_ptr<const PreparedKernel> prepare_conv(DType type, const ConvShape& s, bool bias, bool packs,
                                                   const Finish& finish) {
  const bool wide = type == DType::kFloat32;
  if (!wide && (!packs || !has_primitives(type) || !prefers_primitive(s, ConvPart::kForward))) return nullptr;
  if (!wide && !widening_pays(s, ConvPart::kForward)) return prepare_between_copies(type, s, bias, finish);
  if (const int tile = packs ? winograd_tile(s, ConvPart::kForward) : 0)
    return std::make_unique<WinogradKernel>(type, s, tile, ImageLayout::kChannelsFirst, finish);
  if (prefers_unpacked(s, ConvPart::kForward)) return nullptr;
  if (auto direct = DirectConv::make(s, ConvPart::kForward))
    return std::make_unique<DirectConvKernel>(std::move(*direct), finish);
  if (!packs || !prefers_primitive(s, ConvPart::kForward)) return nullptr;
  if (auto kernel = prepare_between_copies(type, s, bias, finish)) return kernel;
  return row_wise(s.n, image_shares(DType::kFloat32, s), s.ic * s.in_plane(), s.oc * s.out_plane(), finish,
                  [&](int64_t images) { return Primitive(onednn_prepare_conv(DType::kFloat32, s, images, bias)); });
}

std::unique_ptr<const PreparedKernel> prepare_conv_last(DType type, const ConvShape& s, bool bias,
                                                        const Finish& finish) {
  const bool wide = type == DType::kFloat32;
  if (const int tile = wide || widening_pays(s, ConvPart::kForward) ? winograd_tile(s, ConvPart::kForward) : 0)
    return std::make_unique<WinogradKernel>(type, s, tile, ImageLayout::kChannelsLast, finish);
  if (wide && product_pays(s, ConvPart::kForward, ImageLayout::kChannelsLast))
    return prepare_linear(s.n * s.out_plane(), s.oc, s.ic, true, finish);
  auto conv = ConvLast::make(type, s, bias);
  if (!conv) return nullptr;
  return std::make_unique<PreparedConvLast>(type, std::move(conv), finish);
}

std::unique_ptr<const PreparedKernel> prepare_conv_gradient(const ConvShape& s, ConvPart part) {
  auto direct = DirectConv::make(s, part);
  if (!direct) return nullptr;
  return std::make_unique<DirectConvKernel>(std::move(*direct), std::nullopt);
}

}  // namespace pg::cpu
