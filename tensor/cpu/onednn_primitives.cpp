#include <dnnl.hpp>

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <optional>
#include <unordered_map>

#include "tensor/cpu/conv.h"
#include "tensor/cpu/onednn.h"
#include "tensor/cpu/scratch.h"

namespace pg::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

// oneDNN asks OpenMP for the team size of the calling thread; one keeps it from starting (and spinning) a team.
class SingleThread {
 public:
  SingleThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~SingleThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int before_;
};

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// A bounded map that forgets the least recently used entry. One per thread, so that lookups take no lock;
// oneDNN's own global cache makes the second thread's entry cheap.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  // The entry of `key`, made by `make` on a miss. `make` may throw; nothing is kept then.
  template <class Make>
  Value& get(const Key& key, Make make) {
    const auto bytes = std::string_view(reinterpret_cast<const char*>(&key), sizeof(Key));
    if (auto it = index_.find(bytes); it != index_.end()) {
      order_.splice(order_.begin(), order_, it->second);
      return it->second->value;
    }
    order_.push_front({key, make()});
    Entry& entry = order_.front();
    index_[std::string_view(reinterpret_cast<const char*>(&entry.key), sizeof(Key))] = order_.begin();
    if (order_.size() > capacity_) {
      index_.erase(std::string_view(reinterpret_cast<const char*>(&order_.back().key), sizeof(Key)));
      order_.pop_back();
    }
    return entry.value;
  }

 private:
  struct Entry {
    Key key;
    Value value;
  };
  size_t capacity_;
  std::list<Entry> order_;
  std::unordered_map<std::string_view, typename std::list<Entry>::iterator> index_;
};

constexpr size_t kCacheEntries = 128;

// The differences between oneDNN 2.x (operation descriptors) and 3.x (arguments of the primitive descriptor).
#if DNNL_VERSION_MAJOR >= 3
dnnl::matmul::primitive_desc matmul_desc(const memory::desc& a, const memory::desc& b, const memory::desc& c) {
  return {engine(), a, b, c, user_scratchpad()};
}
#else
dnnl::matmul::primitive_desc matmul_desc(const memory::desc& a, const memory::desc& b, const memory::desc& c) {
  return {dnnl::matmul::desc(a, b, c), user_scratchpad(), engine()};
}
#endif

struct ConvDims {
  memory::dims strides, dilates, pad_lo, pad_hi;
};

#if DNNL_VERSION_MAJOR >= 3
dnnl::convolution_forward::primitive_desc conv_forward_desc(const memory::desc& x, const memory::desc& w,
                                                            const memory::desc& b, const memory::desc& y,
                                                            const ConvDims& d, const dnnl::primitive_attr& attr) {
  return {engine(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, x, w, b, y,
          d.strides, d.dilates, d.pad_lo, d.pad_hi, attr};
}
dnnl::convolution_backward_data::primitive_desc conv_data_desc(
    const memory::desc& x, const memory::desc& w, const memory::desc& y, const ConvDims& d,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {engine(), dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates, d.pad_lo, d.pad_hi, hint,
          user_scratchpad()};
}
dnnl::convolution_backward_weights::primitive_desc conv_weights_desc(
    const memory::desc& x, const memory::desc& w, const memory::desc& y, const ConvDims& d,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {engine(), dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates, d.pad_lo, d.pad_hi, hint,
          user_scratchpad()};
}
void append_relu(dnnl::post_ops& ops) { ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.f, 0.f); }
#else
dnnl::convolution_forward::primitive_desc conv_forward_desc(const memory::desc& x, const memory::desc& w,
                                                            const memory::desc& b, const memory::desc& y,
                                                            const ConvDims& d, const dnnl::primitive_attr& attr) {
  return {dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, x, w,
                                          b, y, d.strides, d.dilates, d.pad_lo, d.pad_hi),
          attr, engine()};
}
dnnl::convolution_backward_data::primitive_desc conv_data_desc(
    const memory::desc& x, const memory::desc& w, const memory::desc& y, const ConvDims& d,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {dnnl::convolution_backward_data::desc(dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates,
                                                d.pad_lo, d.pad_hi),
          user_scratchpad(), engine(), hint};
}
dnnl::convolution_backward_weights::primitive_desc conv_weights_desc(
    const memory::desc& x, const memory::desc& w, const memory::desc& y, const ConvDims& d,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {dnnl::convolution_backward_weights::desc(dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates,
                                                   d.pad_lo, d.pad_hi),
          user_scratchpad(), engine(), hint};
}
void append_relu(dnnl::post_ops& ops) { ops.append_eltwise(1.f, dnnl::algorithm::eltwise_relu, 0.f, 0.f); }
#endif

struct MatmulKey {
  int64_t m, n, k, lda, ldb, ldc, trans_b, type;
};

struct PreparedMatmul {
  dnnl::matmul primitive;
  memory a, b, c;
  size_t scratchpad_bytes;
  memory::desc scratchpad;
};

std::optional<PreparedMatmul> make_matmul(const MatmulKey& q) {
  try {
    const Type type = static_cast<Type>(q.type);
    const memory::desc a({q.m, q.k}, type, memory::dims{q.lda, 1});
    const memory::desc b({q.k, q.n}, type, q.trans_b ? memory::dims{1, q.ldb} : memory::dims{q.ldb, 1});
    const memory::desc c({q.m, q.n}, type, memory::dims{q.ldc, 1});
    const auto pd = matmul_desc(a, b, c);
    const memory::desc pad = pd.scratchpad_desc();
    return PreparedMatmul{dnnl::matmul(pd),          memory(a, engine(), nullptr), memory(b, engine(), nullptr),
                          memory(c, engine(), nullptr), pad.get_size(),              pad};
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

bool run_matmul(const MatmulKey& key, const void* a, const void* b, void* c) {
  thread_local LruCache<MatmulKey, std::optional<PreparedMatmul>> cache(kCacheEntries);
  const SingleThread single;
  auto& entry = cache.get(key, [&] { return make_matmul(key); });
  if (!entry) return false;
  entry->a.set_data_handle(const_cast<void*>(a));
  entry->b.set_data_handle(const_cast<void*>(b));
  entry->c.set_data_handle(c);
  const memory pad(entry->scratchpad, engine(), scratch_bytes(ScratchSlot::kOneDnn, entry->scratchpad_bytes));
  entry->primitive.execute(stream(), {{DNNL_ARG_SRC, entry->a},
                                      {DNNL_ARG_WEIGHTS, entry->b},
                                      {DNNL_ARG_DST, entry->c},
                                      {DNNL_ARG_SCRATCHPAD, pad}});
  return true;
}

enum class ConvKind : int64_t { kForward, kBackwardData, kBackwardWeights };

struct ConvKey {
  ConvShape shape;
  ConvKind kind;
  int64_t bias, relu;
};

// One convolution with the reorders between the plain layouts outside and the chosen ones inside. Roles: `first` and
// `second` are the operands, `result` what is computed, each with the argument name of the primitive.
struct ConvOperand {
  int arg = 0;
  memory::desc plain, inner;
  bool same = true;
  dnnl::reorder to_inner;  // or from it, for the result
  size_t offset = 0;       // of the inner copy in the scratch memory
};

struct PreparedConv {
  dnnl::primitive primitive;
  ConvOperand first, second, result;
  memory::desc bias, scratchpad;
  size_t scratchpad_offset = 0, scratch_bytes = 0;
};

struct ConvDescs {
  memory::desc x, w, b, y;          // with layouts left open
  memory::desc px, pw, py;          // plain
  ConvDims dims;
};

// Spatial dims without the leading ones, at least `nd` of them.
memory::dims tail_dims(const std::array<int64_t, 3>& v, int nd) { return memory::dims(v.begin() + (3 - nd), v.end()); }

int spatial_dims(const ConvShape& s) {
  const auto trivial = [&](int i) { return s.in[i] == 1 && s.kernel[i] == 1 && s.out[i] == 1 && s.pad[i] == 0; };
  if (!trivial(0)) return 3;
  return trivial(1) ? 1 : 2;
}

ConvDescs describe(const ConvShape& s, bool with_bias) {
  const int nd = spatial_dims(s);
  const Tag plain_x = nd == 1 ? Tag::ncw : nd == 2 ? Tag::nchw : Tag::ncdhw;
  const Tag plain_w = s.groups > 1 ? (nd == 1 ? Tag::goiw : nd == 2 ? Tag::goihw : Tag::goidhw)
                                   : (nd == 1 ? Tag::oiw : nd == 2 ? Tag::oihw : Tag::oidhw);
  memory::dims x{s.n, s.ic}, y{s.n, s.oc}, w;
  if (s.groups > 1) w = {s.groups, s.oc / s.groups, s.ic / s.groups};
  else w = {s.oc, s.ic};
  ConvDescs d;
  for (int i = 3 - nd; i < 3; ++i) {
    x.push_back(s.in[i]);
    y.push_back(s.out[i]);
    w.push_back(s.kernel[i]);
    d.dims.dilates.push_back(s.dilation[i] - 1);
    d.dims.pad_hi.push_back((s.out[i] - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + 1 - s.in[i] - s.pad[i]);
  }
  d.dims.strides = tail_dims(s.stride, nd);
  d.dims.pad_lo = tail_dims(s.pad, nd);
  d.x = memory::desc(x, Type::f32, Tag::any);
  d.w = memory::desc(w, Type::f32, Tag::any);
  d.y = memory::desc(y, Type::f32, Tag::any);
  d.b = with_bias ? memory::desc({s.oc}, Type::f32, Tag::a) : memory::desc();
  d.px = memory::desc(x, Type::f32, plain_x);
  d.pw = memory::desc(w, Type::f32, plain_w);
  d.py = memory::desc(y, Type::f32, plain_x);
  return d;
}

ConvOperand operand(int arg, const memory::desc& plain, const memory::desc& inner, bool is_result, size_t* total) {
  ConvOperand o;
  o.arg = arg;
  o.plain = plain;
  o.inner = inner;
  o.same = plain == inner;
  if (o.same) return o;
  const memory from(is_result ? inner : plain, engine(), nullptr), to(is_result ? plain : inner, engine(), nullptr);
  o.to_inner = dnnl::reorder(from, to);
  o.offset = *total;
  *total += (inner.get_size() + 63) / 64 * 64;
  return o;
}

PreparedConv make_conv(const ConvKey& key) {
  const ConvDescs d = describe(key.shape, key.bias);
  dnnl::primitive_attr attr = user_scratchpad();
  if (key.relu) {
    dnnl::post_ops ops;
    append_relu(ops);
    attr.set_post_ops(ops);
  }
  const auto forward = conv_forward_desc(d.x, d.w, d.b, d.y, d.dims, attr);
  PreparedConv p;
  size_t* total = &p.scratch_bytes;
  if (key.kind == ConvKind::kForward) {
    p.primitive = dnnl::convolution_forward(forward);
    p.first = operand(DNNL_ARG_SRC, d.px, forward.src_desc(), false, total);
    p.second = operand(DNNL_ARG_WEIGHTS, d.pw, forward.weights_desc(), false, total);
    p.result = operand(DNNL_ARG_DST, d.py, forward.dst_desc(), true, total);
    p.bias = d.b;
    p.scratchpad = forward.scratchpad_desc();
  } else if (key.kind == ConvKind::kBackwardData) {
    const auto pd = conv_data_desc(d.x, d.w, d.y, d.dims, forward);
    p.primitive = dnnl::convolution_backward_data(pd);
    p.first = operand(DNNL_ARG_DIFF_DST, d.py, pd.diff_dst_desc(), false, total);
    p.second = operand(DNNL_ARG_WEIGHTS, d.pw, pd.weights_desc(), false, total);
    p.result = operand(DNNL_ARG_DIFF_SRC, d.px, pd.diff_src_desc(), true, total);
    p.scratchpad = pd.scratchpad_desc();
  } else {
    const auto pd = conv_weights_desc(d.x, d.w, d.y, d.dims, forward);
    p.primitive = dnnl::convolution_backward_weights(pd);
    p.first = operand(DNNL_ARG_SRC, d.px, pd.src_desc(), false, total);
    p.second = operand(DNNL_ARG_DIFF_DST, d.py, pd.diff_dst_desc(), false, total);
    p.result = operand(DNNL_ARG_DIFF_WEIGHTS, d.pw, pd.diff_weights_desc(), true, total);
    p.scratchpad = pd.scratchpad_desc();
  }
  p.scratchpad_offset = *total;
  *total += p.scratchpad.get_size();
  return p;
}

// The operand as the primitive wants it, copied into its layout where that differs.
memory bring_in(const ConvOperand& o, const float* data, char* scratch) {
  memory plain(o.plain, engine(), const_cast<float*>(data));
  if (o.same) return plain;
  memory inner(o.inner, engine(), scratch + o.offset);
  o.to_inner.execute(stream(), plain, inner);
  return inner;
}

bool run_conv(const ConvKey& key, const float* first, const float* second, const float* bias, float* result) {
  thread_local LruCache<ConvKey, std::optional<PreparedConv>> cache(kCacheEntries);
  const SingleThread single;
  auto& entry = cache.get(key, [&]() -> std::optional<PreparedConv> {
    try {
      return make_conv(key);
    } catch (const dnnl::error&) {
      return std::nullopt;
    }
  });
  if (!entry) return false;
  PreparedConv& p = *entry;
  char* scratch = static_cast<char*>(scratch_bytes(ScratchSlot::kOneDnn, p.scratch_bytes));
  std::unordered_map<int, memory> args;
  args.emplace(p.first.arg, bring_in(p.first, first, scratch));
  args.emplace(p.second.arg, bring_in(p.second, second, scratch));
  memory plain(p.result.plain, engine(), result);
  memory inner = p.result.same ? plain : memory(p.result.inner, engine(), scratch + p.result.offset);
  args.emplace(p.result.arg, inner);
  if (bias) args.emplace(DNNL_ARG_BIAS, memory(p.bias, engine(), const_cast<float*>(bias)));
  args.emplace(DNNL_ARG_SCRATCHPAD, memory(p.scratchpad, engine(), scratch + p.scratchpad_offset));
  p.primitive.execute(stream(), args);
  if (!p.result.same) p.result.to_inner.execute(stream(), inner, plain);
  return true;
}

ConvKey conv_key(const ConvShape& s, int64_t images, ConvKind kind, bool bias, bool relu) {
  ConvKey key{s, kind, bias, relu};
  key.shape.n = images;
  return key;
}

}  // namespace

void onednn_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const SingleThread single;
  dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

bool onednn_matmul_f32(bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                       int64_t ldb, float* c, int64_t ldc) {
  return run_matmul({m, n, k, lda, ldb, ldc, trans_b, static_cast<int64_t>(Type::f32)}, a, b, c);
}

bool onednn_matmul_bf16(bool trans_b, int64_t m, int64_t n, int64_t k, const uint16_t* a, int64_t lda,
                        const uint16_t* b, int64_t ldb, uint16_t* c, int64_t ldc) {
  if (!(static_cast<int>(dnnl::get_effective_cpu_isa()) >= static_cast<int>(dnnl::cpu_isa::avx512_core_bf16)))
    return false;
  return run_matmul({m, n, k, lda, ldb, ldc, trans_b, static_cast<int64_t>(Type::bf16)}, a, b, c);
}

bool onednn_conv_forward(const ConvShape& s, int64_t images, const float* x, const float* w, const float* bias,
                         bool relu, float* y) {
  return run_conv(conv_key(s, images, ConvKind::kForward, bias != nullptr, relu), x, w, bias, y);
}

bool onednn_conv_backward_data(const ConvShape& s, int64_t images, const float* dy, const float* w, float* dx) {
  return run_conv(conv_key(s, images, ConvKind::kBackwardData, false, false), dy, w, nullptr, dx);
}

bool onednn_conv_backward_weights(const ConvShape& s, int64_t images, const float* x, const float* dy, float* dw) {
  return run_conv(conv_key(s, images, ConvKind::kBackwardWeights, false, false), x, dy, nullptr, dw);
}

}  // namespace pg::cpu
