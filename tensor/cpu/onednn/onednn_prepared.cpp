// Primitives that a plan keeps. They are made once, and their weights are packed once.
#include <algorithm>
#include <atomic>
#include <unordered_map>

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

// A matmul for one layout of the weights.
class Product {
 public:
  Product(const LinearShape& s, const memory::desc& w) {
    const memory::desc x({s.m, s.k}, Type::f32, Tag::ab), y({s.m, s.n}, Type::f32, Tag::ab);
    const memory::desc bias = s.bias ? memory::desc({1, s.n}, Type::f32, Tag::ab) : memory::desc();
    const auto pd = usable(matmul_desc(x, w, bias, y, user_scratchpad()));
    primitive_ = dnnl::matmul(pd);
    x_ = x, y_ = y, w_ = pd.weights_desc(), bias_ = bias, pad_ = pd.scratchpad_desc(), has_bias_ = s.bias;
    shared_ = make_arguments();
  }
  const memory::desc& weights() const { return w_; }
  size_t scratch_bytes() const { return pad_.get_size(); }

  void run(const float* x, const void* w, const float* bias, float* y, void* scratch) const {
    Borrowed args(shared_, busy_, [this] { return make_arguments(); });
    args->set(DNNL_ARG_SRC, x);
    args->set(DNNL_ARG_WEIGHTS, w);
    args->set(DNNL_ARG_DST, y);
    args->set(DNNL_ARG_SCRATCHPAD, scratch);
    if (has_bias_) args->set(DNNL_ARG_BIAS, bias);
    args->execute(primitive_);
  }

 private:
  Arguments make_arguments() const {
    Arguments args;
    args.add(DNNL_ARG_SRC, x_);
    args.add(DNNL_ARG_WEIGHTS, w_);
    args.add(DNNL_ARG_DST, y_);
    args.add(DNNL_ARG_SCRATCHPAD, pad_);
    if (has_bias_) args.add(DNNL_ARG_BIAS, bias_);
    return args;
  }

  dnnl::matmul primitive_;
  memory::desc x_, w_, y_, bias_, pad_;
  bool has_bias_ = false;
  mutable Arguments shared_;
  mutable std::atomic<bool> busy_{false};
};

class PreparedLinear final : public OneDnnPrepared {
 public:
  PreparedLinear(const LinearShape& s, bool packs) : plain_(s, memory::desc({s.k, s.n}, Type::f32, Tag::ba)) {
    scratch_bytes = plain_.scratch_bytes();
    if (!packs) return;
    packed_ = std::make_unique<Product>(s, memory::desc({s.k, s.n}, Type::f32, Tag::any));
    if (packed_->weights() == plain_.weights()) {
      packed_.reset();
      return;
    }
    to_packed_ = dnnl::reorder(empty_memory(plain_.weights()), empty_memory(packed_->weights()));
    packed_bytes = packed_->weights().get_size();
    scratch_bytes = std::max(scratch_bytes, packed_->scratch_bytes());
  }
  void run(const float* x, const float* w, const void* packed, const float* bias, float* y,
           void* scratch) const override {
    const SingleThread single;
    if (packed)
      packed_->run(x, packed, bias, y, scratch);
    else
      plain_.run(x, w, bias, y, scratch);
  }
  void pack(const float* w, void* packed) const override {
    const SingleThread single;
    memory from(plain_.weights(), engine(), const_cast<float*>(w)), to(packed_->weights(), engine(), packed);
    to_packed_.execute(stream(), from, to);
  }
  bool packs_like(const OneDnnPrepared& other) const override {
    const auto* o = dynamic_cast<const PreparedLinear*>(&other);
    return o && bool(packed_) == bool(o->packed_) && (!packed_ || packed_->weights() == o->packed_->weights());
  }

 private:
  Product plain_;
  std::unique_ptr<Product> packed_;
  dnnl::reorder to_packed_;
};

// Reorders images into the layout that the library chose, and results back. Weights too, unless they are packed.
class PreparedConv final : public OneDnnPrepared {
 public:
  PreparedConv(const ConvShape& s, bool bias, int last_dims) : has_bias_(bias), d_(describe(s, bias, last_dims)) {
    const auto pd = usable(conv_forward_desc(d_.x, d_.w, d_.b, d_.y, d_.dims, user_scratchpad()));
    primitive_ = dnnl::convolution_forward(pd);
    x_ = pd.src_desc(), w_ = pd.weights_desc(), y_ = pd.dst_desc(), pad_ = pd.scratchpad_desc();
    place(x_ != d_.px, x_, &at_x_);
    place(w_ != d_.pw, w_, &at_w_);
    place(y_ != d_.py, y_, &at_y_);
    place(true, pad_, &at_pad_);
    if (x_ != d_.px) to_x_ = dnnl::reorder(empty_memory(d_.px), empty_memory(x_));
    if (w_ != d_.pw) to_w_ = dnnl::reorder(empty_memory(d_.pw), empty_memory(w_)), packed_bytes = w_.get_size();
    if (y_ != d_.py) from_y_ = dnnl::reorder(empty_memory(y_), empty_memory(d_.py));
    shared_ = make_arguments();
  }

  void run(const float* x, const float* w, const void* packed, const float* bias, float* y,
           void* scratch) const override {
    const SingleThread single;
    char* base = static_cast<char*>(scratch);
    Borrowed args(shared_, busy_, [this] { return make_arguments(); });
    args->set(DNNL_ARG_SRC, bring_in(d_.px, x_, to_x_, x, base + at_x_));
    args->set(DNNL_ARG_WEIGHTS, packed ? packed : bring_in(d_.pw, w_, to_w_, w, base + at_w_));
    args->set(DNNL_ARG_DST, y_ == d_.py ? static_cast<void*>(y) : base + at_y_);
    args->set(DNNL_ARG_SCRATCHPAD, base + at_pad_);
    if (has_bias_) args->set(DNNL_ARG_BIAS, bias);
    args->execute(primitive_);
    if (y_ == d_.py) return;
    memory plain(d_.py, engine(), y);
    from_y_.execute(stream(), args->at(DNNL_ARG_DST), plain);
  }
  void pack(const float* w, void* packed) const override {
    const SingleThread single;
    memory from(d_.pw, engine(), const_cast<float*>(w)), to(w_, engine(), packed);
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
  // Returns the array in the library's layout; copies it to `to` only if the layouts differ.
  static const void* bring_in(const memory::desc& plain, const memory::desc& inner, const dnnl::reorder& reorder,
                              const float* data, char* to) {
    if (plain == inner) return data;
    memory from(plain, engine(), const_cast<float*>(data)), out(inner, engine(), to);
    reorder.execute(stream(), from, out);
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
  size_t at_x_ = 0, at_w_ = 0, at_y_ = 0, at_pad_ = 0;
  mutable Arguments shared_;
  mutable std::atomic<bool> busy_{false};
};

template <class T, class... Args>
std::unique_ptr<const OneDnnPrepared> prepare(Isa least, const Args&... args) {
  if (isa() < least || !available()) return nullptr;
  try {
    check_room();
    const SingleThread single;
    return std::make_unique<T>(args...);
  } catch (const dnnl::error&) {
    return nullptr;
  } catch (const NoRoom&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<const OneDnnPrepared> onednn_prepare_linear(const LinearShape& s, bool packs) {
  return prepare<PreparedLinear>(Isa::kAvx512, s, packs);
}

std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv(const ConvShape& s, int64_t images, bool bias) {
  ConvShape share = s;
  share.n = images;
  return prepare<PreparedConv>(Isa::kAvx2, share, bias, 0);
}

std::unique_ptr<const OneDnnPrepared> onednn_prepare_conv_last(const ConvShape& s, int dims, bool bias) {
  return prepare<PreparedConv>(Isa::kAvx2, s, bias, dims);
}

int onednn_spatial_dims(const ConvShape& s) { return spatial_dims(s); }

}  // namespace pg::cpu
