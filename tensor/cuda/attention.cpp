// Attention by hand-written kernels: its rows differ in strides, masks and dropout, which cuDNN's graphs of attention
// do not all take. kernels/attention_halves.cuh serves halves where tensor cores multiply them, kernels/attention.cuh
// all else; halves become float32 for it.
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
using kernels::HalvesTiling;

int64_t tile_of(DType t) { return t == DType::kFloat64 ? 32 : 64; }  // kTile of the kernels

// The features that tensor cores multiply at a time, and the most of a head whose sums registers hold.
constexpr int64_t kStep = 16, kMostWidth = 128;

int64_t padded(int64_t width) { return (width + kStep - 1) / kStep * kStep; }

// As many rows and columns as registers and 48 KiB of shared memory hold. Masks and dropout take more registers.
struct Tilings {
  HalvesTiling attend, query_grads, key_grads;
};
Tilings tilings(const AttentionTypes& types) {
  const bool wide = std::max(padded(types.width), padded(types.value_width)) > 64;
  Tilings all = wide ? Tilings{{8, 32, 1}, {4, 32, 2}, {4, 16, 2}} : Tilings{{8, 32, 2}, {4, 32, 3}, {4, 32, 3}};
  if (types.mask || types.drops)
    for (HalvesTiling* tiling : {&all.attend, &all.query_grads, &all.key_grads}) tiling->blocks = 1;
  return all;
}

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
    add_rows(kernels::kQuery, query);
    add_rows(kernels::kKey, key);
    add_rows(kernels::kValue, value);
    if (dy) add_rows(kernels::kDy, dy);
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

  // `rows`: of the matrices that blocks share among them. `tiling`: for halves.
  void run(const char* name, int64_t rows, HalvesTiling Tilings::*tiling) const {
    const DType t = a_.out[0].dtype();
    const std::optional<DType> mask = mask_ ? std::optional(mask_.dtype()) : std::nullopt;
    const AttentionTypes types = {t, mask, args.drop_below > 0, args.width, args.value_width};
    if (size_of(t) != 2) return run("attention", attention_types(types), name, rows, tile_of(t), kThreads);
    const HalvesTiling by = tilings(types).*tiling;
    run("attention_halves", attention_halves_types(types), fmt::format("{}_halves", name).c_str(), rows, by.rows(),
        unsigned(by.threads()));
  }

  AttentionArgs args = {};

 private:
  void run(const char* family, const std::string& types, const char* name, int64_t rows, int64_t tile,
           unsigned threads) const {
    const int64_t tiles = (rows + tile - 1) / tile;
    launch_blocks(stream_, family_kernel(stream_, family, types, name), args.heads * tiles, threads, &args);
  }
  void add_rows(int operand, const View& v) {
    const View rows = size_of(v.dtype()) == 2 ? aligned(v) : v;
    add(operand, rows, rows.shape(), *rows.strides);
  }
  // What kernels/attention_halves.cuh loads: rows at multiples of 16 bytes, with zeros up to the next one.
  View aligned(const View& v) {
    constexpr int64_t kPack = 8;
    const int last = v.rank() - 1;
    bool fits = v.size(last) % kPack == 0 && (*v.strides)[last] == 1 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
    for (int d = 0; d < last; ++d) fits &= (*v.strides)[d] % kPack == 0;
    if (fits) return v;
    Type type = *v.type;
    type.shape[last] = (v.size(last) + kPack - 1) / kPack * kPack;
    const Temporary& copy = copies_.emplace_back(stream_, v.dtype(), View{&type, nullptr, nullptr});
    if (type.shape[last] != v.size(last)) fill_view(stream_, copy.view, 0);
    const View rows{v.type, &copy.strides, copy.view.data};
    convert_view(stream_, v, rows);
    return rows;
  }
  // The strides of an operand, of which `shape` has matrices in the last two dims.
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
  call.run("attend", call.args.queries, &Tilings::attend);
}

void attention_grads(const KernelArgs& a) {
  Call call(a, a.in[7], a.in[6]);
  call.args.top = call.dense(a.in[3]), call.args.log_sum = call.dense(a.in[4]), call.args.delta = call.dense(a.in[5]);
  call.args.out = a.out[0].data, call.args.out2 = a.out[1].data, call.args.out3 = a.out[2].data;
  call.run("query_grads", call.args.queries, &Tilings::query_grads);
  call.run("key_grads", call.args.keys, &Tilings::key_grads);
}

// Whether kernels/attention_halves.cuh serves this call of halves.
bool has_kernel(const KernelArgs& a) {
  const auto fits = [](const View& v) {
    return v.shape().back() > 0 && v.shape().back() <= kMostWidth && v.size(v.rank() - 2) < INT32_MAX / 2;
  };
  return stream_at(a.stream).gpu.arch >= 80 && fits(a.in[0]) && fits(a.in[2]) && a.attr<double>("scale") > 0;
}

template <KernelFn kernel>
void in_float32_without_kernel(const KernelArgs& a) {
  size_of(a.out[0].dtype()) != 2 || has_kernel(a) ? kernel(a) : run_widened(a, kernel);
}

int mask_kind(const AttentionTypes& types) { return !types.mask ? 0 : *types.mask == DType::kBool ? 1 : 2; }

}  // namespace

std::string attention_types(const AttentionTypes& types) {
  const int64_t tile = tile_of(types.t);
  const auto tiles = [&](int64_t n) { return std::max<int64_t>((n + tile - 1) / tile, 1); };
  return fmt::format(
      "using T = {};\nconstexpr int kMaskKind = {}, kWidth = {}, kValueWidth = {};\nconstexpr bool kDrops = {};\n",
      type_text(types.t), mask_kind(types), tiles(types.width), tiles(types.value_width), types.drops);
}

std::string attention_halves_types(const AttentionTypes& types) {
  const DType mask = types.mask.value_or(DType::kBool);
  std::string text = fmt::format(
      "using T = {};\nusing M = {};\nconstexpr int kMaskKind = {}, kWidth = {}, kValueWidth = {};\n"
      "constexpr bool kDrops = {};\n",
      type_text(types.t), type_text(mask), mask_kind(types), padded(types.width), padded(types.value_width),
      types.drops);
  const Tilings all = tilings(types);
  const auto add = [&](const char* name, const HalvesTiling& t) {
    text += fmt::format("#define {} HalvesTiling{{{}, {}, {}}}\n", name, t.warps, t.columns, t.blocks);
  };
  add("kAttend", all.attend);
  add("kQueryGrads", all.query_grads);
  add("kKeyGrads", all.key_grads);
  return text;
}

std::vector<KernelRow> attention_rows() {
  return {{"attention_rows", in_float32_without_kernel<attention>, kStridedInputs},
          {"attention_grads", in_float32_without_kernel<attention_grads>, kStridedInputs}};
}

}  // namespace pg::cuda
