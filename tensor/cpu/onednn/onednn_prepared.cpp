// Primitives that a plan keeps. They are made once, and their weights are packed once.
#include <atomic>
#include <unordered_map>

#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/isa.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/cpu/onednn/onednn_common.h"

namespace pg::cpu {
namespace {

using namespace onednn;  // internal to the adapter

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

memory empty_memory(const memory::desc& desc) { return memory(desc, engine(), nullptr); }

// The arguments of a primitive as objects of the library. Making them costs more than a small product.
class Arguments {
 public:
  void add(int name, const memory::desc& desc) { map_.emplace(name, empty_memory(desc)); }
  void set(int name, const void* data) { map_.at(name).set_data_handle(const_cast<void*>(data)); }
  memory& at(int name) { return map_.at(name); }
  void execute(const dnnl::primitive& primitive) const { primitive.execute(stream(), map_); }

 private:
  std::unordered_map<int, memory> map_;
};

// Lends one set of arguments to a run. A concurrent run makes its own set.
template <class Make>
class Borrowed {
 public:
  Borrowed(Arguments& shared, std::atomic<bool>& busy, Make make) : busy_(busy) {
    owns_flag_ = !busy.exchange(true, std::memory_order_acquire);
    if (!owns_flag_) own_ = make();
    arguments_ = owns_flag_ ? &shared : &own_;
  }
  ~Borrowed() {
    if (owns_flag_) busy_.store(false, std::memory_order_release);
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Arguments* operator->() { return arguments_; }

 private:
  std::atomic<bool>& busy_;
  bool owns_flag_;
  Arguments own_;
  Arguments* arguments_;
};

// Reorders images into the layout that the library chose, and results back.
class PreparedConv final : public OneDnnPrepared {
 public:
  PreparedConv(DType type, const ConvShape& s, bool bias, int last_dims)
      : has_bias_(bias), d_(describe(type, s, bias, last_dims)) {
    check_forward(type, s);
    const auto pd = usable(conv_forward_desc(d_.x, d_.w, d_.b, d_.y, d_.dims, user_scratchpad()));
    primitive_ = dnnl::convolution_forward(pd);
    x_ = pd.src_desc(), w_ = pd.weights_desc(), y_ = pd.dst_desc(), pad_ = pd.scratchpad_desc();
    place(x_ != d_.px, x_, &at_x_);
    place(y_ != d_.py, y_, &at_y_);
    place(true, pad_, &at_pad_);
    if (x_ != d_.px) to_x_ = dnnl::reorder(empty_memory(d_.px), empty_memory(x_));
    if (w_ != d_.pw) to_w_ = dnnl::reorder(empty_memory(d_.pw), empty_memory(w_)), packed_bytes = w_.get_size();
    if (y_ != d_.py) from_y_ = dnnl::reorder(empty_memory(y_), empty_memory(d_.py));
    shared_ = make_arguments();
  }

  void run(const void* x, const void* w, const float* bias, void* y, void* scratch) const override {
    const SingleThread single;
    char* base = static_cast<char*>(scratch);
    Borrowed args(shared_, busy_, [this] { return make_arguments(); });
    args->set(DNNL_ARG_SRC, bring_in(x, base + at_x_));
    args->set(DNNL_ARG_WEIGHTS, w);
    args->set(DNNL_ARG_DST, y_ == d_.py ? y : base + at_y_);
    args->set(DNNL_ARG_SCRATCHPAD, base + at_pad_);
    if (has_bias_) args->set(DNNL_ARG_BIAS, bias);
    args->execute(primitive_);
    if (y_ == d_.py) return;
    memory plain(d_.py, engine(), y);
    from_y_.execute(stream(), args->at(DNNL_ARG_DST), plain);
  }
  void pack(const void* w, void* packed) const override {
    const SingleThread single;
    memory from(d_.pw, engine(), const_cast<void*>(w)), to(w_, engine(), packed);
    to_w_.execute(stream(), from, to);
  }
  bool packs_like(const OneDnnPrepared& other) const override {
    const auto* o = dynamic_cast<const PreparedConv*>(&other);
    return o && w_ == o->w_;
  }

 private:
  void place(bool needed, const memory::desc& desc, size_t* at) {
    *at = scratch_bytes;
    if (needed) scratch_bytes += aligned(desc.get_size());
  }
  // Returns the images in the library's layout; copies them to `to` only if the layouts differ.
  const void* bring_in(const void* x, char* to) const {
    if (x_ == d_.px) return x;
    memory from(d_.px, engine(), const_cast<void*>(x)), out(x_, engine(), to);
    to_x_.execute(stream(), from, out);
    return to;
  }
  Arguments make_arguments() const {
    Arguments args;
    args.add(DNNL_ARG_SRC, x_);
    args.add(DNNL_ARG_WEIGHTS, w_);
    args.add(DNNL_ARG_DST, y_);
    args.add(DNNL_ARG_SCRATCHPAD, pad_);
    if (has_bias_) args.add(DNNL_ARG_BIAS, d_.b);
    return args;
  }

  bool has_bias_;
  ConvDescs d_;
  dnnl::convolution_forward primitive_;
  memory::desc x_, w_, y_, pad_;
  dnnl::reorder to_x_, to_w_, from_y_;
  size_t at_x_ = 0, at_y_ = 0, at_pad_ = 0;
  mutable Arguments shared_;
  mutable std::atomic<bool> busy_{false};
};

std::unique_ptr<const OneDnnPrepared> prepare(DType type, const ConvShape& s, bool bias, int last_dims) {
  if (isa() < Isa::kAvx2 || !available()) return nullptr;
  try {
    check_room();
    const SingleThread single;
    return std::make_unique<PreparedConv>(type, s, bias, last_dims);
  } catch (const dnnl::error&) {
    return nullptr;
  } catch (const NoKernel&) {
    return nullptr;
  } catch (const NoRoom&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv(DType type, const ConvShape& s, int64_t images, bool bias) {
  ConvShape share = s;
  share.n = images;
  return prepare(type, share, bias, 0);
}

std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv_last(DType type, const ConvShape& s, int dims, bool bias) {
  return prepare(type, s, bias, dims);
}

int64_t bfloat16_gain(DType type, const ConvShape& s) {
  if (type != DType::kBFloat16 || s.groups > 1) return 1;
  return bf16_unit() == Bf16Unit::kTiles ? 8 : 2;
}

int onednn_spatial_dims(const ConvShape& s) { return spatial_dims(s); }

}  // namespace pg::cpu
