#include <optional>
#include <unordered_map>

#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/isa.h"
#include "tensor/cpu/lru_cache.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/cpu/onednn/onednn_common.h"
#include "tensor/cpu/scratch.h"
#include "tensor/thread_end.h"

namespace pg::cpu {
namespace {

using namespace onednn;  // internal to the adapter

constexpr size_t kCacheEntries = 128;

enum class ConvKind : int64_t { kForward, kBackwardData, kBackwardWeights };

struct ConvKey {
  ConvShape shape;
  ConvKind kind;
  int64_t type, bias;  // type: a DType
  int64_t channels;    // of the images that the result's gradient is a part of
  int64_t last;        // whether images are (N, spatial..., C)
};

// One operand of a convolution, with its reorder between the plain layout and the one the library chose. `first` and
// `second` are the operands and `result` is the result, each under the primitive's argument name.
struct ConvOperand {
  int arg = 0;
  memory::desc plain, inner;
  bool same = true;
  dnnl::reorder to_inner;  // from the chosen layout, for the result
  size_t offset = 0;       // of the reordered copy in the scratch memory
};

struct PreparedConv {
  dnnl::primitive primitive;
  ConvOperand first, second, result;
  memory::desc bias, scratchpad;
  size_t scratchpad_offset = 0, scratch_bytes = 0;
};

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
  const ConvDescs d = describe(DType(key.type), key.shape, key.bias, key.last ? spatial_dims(key.shape) : 0);
  const auto forward = usable(conv_forward_desc(d.x, d.w, d.b, d.y, d.dims, user_scratchpad()));
  PreparedConv p;
  size_t* total = &p.scratch_bytes;
  if (key.kind == ConvKind::kForward) {
    check_forward(DType(key.type), key.shape);
    p.primitive = dnnl::convolution_forward(forward);
    p.first = operand(DNNL_ARG_SRC, d.px, forward.src_desc(), false, total);
    p.second = operand(DNNL_ARG_WEIGHTS, d.pw, forward.weights_desc(), false, total);
    p.result = operand(DNNL_ARG_DST, d.py, forward.dst_desc(), true, total);
    p.bias = d.b;
    p.scratchpad = forward.scratchpad_desc();
  } else if (key.kind == ConvKind::kBackwardData) {
    const auto pd = usable(conv_data_desc(d.x, d.w, d.y, d.dims, forward));
    p.primitive = dnnl::convolution_backward_data(pd);
    p.first = operand(DNNL_ARG_DIFF_DST, d.py, pd.diff_dst_desc(), false, total);
    p.second = operand(DNNL_ARG_WEIGHTS, d.pw, pd.weights_desc(), false, total);
    p.result = operand(DNNL_ARG_DIFF_SRC, d.px, pd.diff_src_desc(), true, total);
    p.scratchpad = pd.scratchpad_desc();
  } else {
    const auto pd = usable(conv_weights_desc(d.x, d.dw, d.y, d.dims, forward));
    check_weights(DType(key.type), key.shape, pd);
    p.primitive = dnnl::convolution_backward_weights(pd);
    p.first = operand(DNNL_ARG_SRC, d.px, pd.src_desc(), false, total);
    p.second = operand(DNNL_ARG_DIFF_DST, some_channels(DType(key.type), key.shape, key.channels, key.last),
                       pd.diff_dst_desc(), false, total);
    p.result = operand(DNNL_ARG_DIFF_WEIGHTS, d.pdw, pd.diff_weights_desc(), true, total);
    p.scratchpad = pd.scratchpad_desc();
  }
  p.scratchpad_offset = *total;
  *total += p.scratchpad.get_size();
  return p;
}

// Returns the operand in the primitive's layout; copies it only if the layouts differ.
memory bring_in(const ConvOperand& o, const void* data, char* scratch) {
  memory plain(o.plain, engine(), const_cast<void*>(data));
  if (o.same) return plain;
  memory inner(o.inner, engine(), scratch + o.offset);
  o.to_inner.execute(stream(), plain, inner);
  return inner;
}

bool run_conv(const ConvKey& key, const void* first, const void* second, const float* bias, void* result) try {
  if (isa() < Isa::kAvx2 || !available()) return false;
  auto& cache = per_thread<ConvKey, LruCache<ConvKey, std::optional<PreparedConv>>>(kCacheEntries);
  const SingleThread single;
  auto& entry = cache.get(key, [&]() -> std::optional<PreparedConv> {
    check_room();
    try {
      return make_conv(key);
    } catch (const dnnl::error&) {
      return std::nullopt;
    } catch (const NoKernel&) {
      return std::nullopt;
    }
  });
  if (!entry) return false;
  PreparedConv& p = *entry;
  const ScratchBytes work(Bytes(p.scratch_bytes));
  char* const scratch = work.get();
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
} catch (const NoRoom&) {
  return false;
}

ConvKey conv_key(DType type, const ConvShape& s, int64_t images, ConvKind kind, bool bias = false, bool last = false) {
  ConvKey key{s, kind, int64_t(type), bias, s.oc, last};
  key.shape.n = images;
  return key;
}

}  // namespace

bool onednn_conv_forward(DType type, const ConvShape& s, int64_t images, const void* x, const void* w,
                         const float* bias, void* y) {
  return run_conv(conv_key(type, s, images, ConvKind::kForward, bias != nullptr), x, w, bias, y);
}

bool onednn_conv_backward_data(DType type, const ConvShape& s, int64_t images, bool last, const void* dy, const void* w,
                               void* dx) {
  return run_conv(conv_key(type, s, images, ConvKind::kBackwardData, false, last), dy, w, nullptr, dx);
}

bool onednn_conv_backward_weights(DType type, const ConvShape& s, int64_t images, int64_t channels, bool last,
                                  const void* x, const void* dy, float* dw) {
  ConvKey key = conv_key(type, s, images, ConvKind::kBackwardWeights, false, last);
  key.channels = channels;
  return run_conv(key, x, dy, nullptr, dw);
}

}  // namespace pg::cpu
