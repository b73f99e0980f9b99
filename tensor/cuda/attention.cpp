// Attention by a hand-written kernel (kernels/attention.cuh): its rows differ in strides, masks and dropout, which
// cuDNN's graphs of attention do not all take.
#include <algorithm>
#include <cmath>
#include <deque>

#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/attention_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"
#include "tensor/random.h"

namespace pg::cuda {
namespace {

using kernels::AttentionArgs;

int64_t tile_of(DType t) { return t == DType::kFloat64 ? 32 : 64; }  // kTile of the kernels

Dims without_last(const Dims& v, int count) {
  Dims out;
  for (int i = 0; i + count < v.size(); ++i) out.push_back(v[i]);
  return out;
}

// One call: query, key and value are inputs 0 to 2.
class Call {
 public:
  Call(const KernelArgs& a, const View& mask, const View& dy)
      : stream_(stream_at(a.stream)), a_(a), batch_(without_last(a.out[0].shape(), 2)), mask_(mask) {
    const View &query = a.in[0], &key = a.in[1], &value = a.in[2];
    args.queries = query.size(query.rank() - 2), args.keys = key.size(key.rank() - 2);
    args.width = query.shape().back(), args.value_width = value.shape().back();
    args.heads = numel(batch_);
    args.rank = batch_.size();
    for (int d = 0; d < args.rank; ++d) args.sizes[d] = batch_[d];
    add(kernels::kQuery, query, query.shape());
    add(kernels::kKey, key, key.shape());
    add(kernels::kValue, value, value.shape());
    if (dy) add(kernels::kDy, dy, dy.shape());
    if (mask) add_mask();
    args.causal = a.attr<bool>("is_causal");
    args.scale = a.attr<double>("scale");
    const double share = a.attr<double>("dropout_p");
    if (share > 0) {
      const RandomKey& random = a.attr<RandomKey>("generator");
      args.seed = int64_t(random.seed), args.tick = int64_t(random.tick);
      args.drop_below = int64_t(std::ceil(share * 0x1p32));
      args.kept = share < 1 ? 1 / (1 - share) : 0;
    }
  }

  // The elements of an input in row-major order.
  const void* dense(const View& v) {
    if (is_contiguous(v.shape(), *v.strides)) return v.data;
    const View& copy = copies_.emplace_back(stream_, v.dtype(), v).view;
    convert_view(stream_, v, copy);
    return copy.data;
  }

  // `rows`: of the matrices that blocks share among them.
  void run(const char* name, int64_t rows) const {
    const DType t = a_.out[0].dtype();
    const std::optional<DType> mask = mask_ ? std::optional(mask_.dtype()) : std::nullopt;
    const std::string types = attention_types({t, mask, args.drop_below > 0, args.width, args.value_width});
    const int64_t tile = tile_of(t), tiles = (rows + tile - 1) / tile;
    launch_blocks(stream_, family_kernel(stream_, "attention", types, name), args.heads * tiles, kThreads, &args);
  }

  AttentionArgs args = {};

 private:
  // The strides of an operand, of which `shape` has matrices in the last two dims.
  void add(int operand, const View& v, const Dims& shape) { add(operand, v, shape, *v.strides); }
  void add(int operand, const View& v, const Dims& shape, const Dims& strides) {
    const int r = shape.size();
    args.in[operand] = v.data;
    args.row[operand] = strides[r - 2], args.column[operand] = strides[r - 1];
    const Dims steps = broadcast_strides(without_last(shape, 2), without_last(strides, 2), batch_);
    for (int d = 0; d < args.rank; ++d) args.steps[d][operand] = steps[d];
  }
  // All dims of a mask broadcast.
  void add_mask() {
    Dims scores = batch_;
    scores.push_back(args.queries);
    scores.push_back(args.keys);
    add(kernels::kMask, mask_, scores, broadcast_strides(mask_.shape(), *mask_.strides, scores));
  }

  Stream& stream_;
  const KernelArgs& a_;
  const Dims batch_;
  const View& mask_;
  std::deque<Temporary> copies_;
};

void attention(const KernelArgs& a) {
  Call call(a, a.in[3], {});
  call.args.out = a.out[0].data, call.args.out2 = a.out[1].data, call.args.out3 = a.out[2].data;
  call.run("attend", call.args.queries);
}

void attention_grads(const KernelArgs& a) {
  Call call(a, a.in[7], a.in[6]);
  call.args.top = call.dense(a.in[3]), call.args.log_sum = call.dense(a.in[4]), call.args.delta = call.dense(a.in[5]);
  call.args.out = a.out[0].data, call.args.out2 = a.out[1].data, call.args.out3 = a.out[2].data;
  call.run("query_grads", call.args.queries);
  call.run("key_grads", call.args.keys);
}

template <KernelFn kernel>
void in_float32(const KernelArgs& a) {
  run_widened(a, kernel);
}

}  // namespace

std::string attention_types(const AttentionTypes& types) {
  const int64_t tile = tile_of(types.t);
  const auto tiles = [&](int64_t n) { return std::max<int64_t>((n + tile - 1) / tile, 1); };
  const int kind = !types.mask ? 0 : *types.mask == DType::kBool ? 1 : 2;
  return fmt::format(
      "using T = {};\nconstexpr int kMaskKind = {}, kWidth = {}, kValueWidth = {};\nconstexpr bool kDrops = {};\n",
      type_text(types.t), kind, tiles(types.width), tiles(types.value_width), types.drops);
}

std::vector<KernelRow> attention_rows() {
  return {{"attention_rows", in_float32<attention>, kStridedInputs},
          {"attention_grads", in_float32<attention_grads>, kStridedInputs}};
}

}  // namespace pg::cuda
