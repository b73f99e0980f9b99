#include "tensor/cpu/half.h"

#include <deque>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/small_vector.h"

namespace pg::cpu {
namespace {

void read_half(const View& from, float* to) {
  if (!is_contiguous(from.shape(), *from.strides))
    assign_block(from, DType::kFloat32, from.shape(), to, contiguous_strides(from.shape()));
  else
    convert(from.dtype(), from.data, DType::kFloat32, to, from.numel());
}

void write_half(const float* from, const View& to) { convert(DType::kFloat32, from, to.dtype(), to.data, to.numel()); }

struct Wide {
  Type type;
  Dims strides;
  WorkVector<float> data;
};

View widen(const View& v, std::deque<Wide>& kept) {
  Wide& w = kept.emplace_back(Wide{*v.type, contiguous_strides(v.shape()), WorkVector<float>(size_t(v.numel()))});
  w.type.dtype = DType::kFloat32;
  return {&w.type, &w.strides, w.data.data()};
}

View widened(const View& v, std::deque<Wide>& kept) {
  const View wide = widen(v, kept);
  read_half(v, wide.as<float>());
  return wide;
}

bool needs_widening(std::span<const View> views) {
  for (const View& v : views)
    if (v && is_half(v.dtype())) return true;
  return false;
}

}  // namespace

void run_widened(const KernelArgs& args, KernelFn kernel) {
  if (!needs_widening(args.in) && !needs_widening(args.out)) return kernel(args);
  std::deque<Wide> kept;
  SmallVector<View, 6> in(args.in), out(args.out);
  for (View& v : in)
    if (v && is_half(v.dtype())) v = widened(v, kept);
  for (View& v : out)
    if (is_half(v.dtype())) v = widen(v, kept);
  kernel(KernelArgs{args.op, in, out, args.attrs, args.allocate});
  for (size_t i = 0; i < out.size(); ++i)
    if (is_half(args.out[i].dtype())) write_half(out[i].as<const float>(), args.out[i]);
}

void run_widened_input(const KernelArgs& args, size_t input, KernelFn kernel) {
  if (!args.in[input] || !is_half(args.in[input].dtype())) return kernel(args);
  std::deque<Wide> kept;
  SmallVector<View, 6> in(args.in);
  in[input] = widened(args.in[input], kept);
  kernel(KernelArgs{args.op, in, args.out, args.attrs, args.allocate});
}

}  // namespace pg::cpu
