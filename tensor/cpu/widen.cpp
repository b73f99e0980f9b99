#include "tensor/cpu/widen.h"

#include <deque>
#include <vector>

#include "tensor/op.h"
#include "tensor/small_vector.h"

namespace pg::cpu {
namespace {

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

template <class From, class To>
void convert(const void* from, void* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<To*>(to)[i] = To(float(static_cast<const From*>(from)[i]));
}

struct Wide {
  Type type;
  std::vector<float> data;
};

View widen(const View& v, std::deque<Wide>& kept) {
  Wide& w = kept.emplace_back(Wide{*v.type, std::vector<float>(size_t(v.numel()))});
  w.type.dtype = DType::kFloat32;
  return {&w.type, v.strides, w.data.data()};
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
  for (View& v : in) {
    if (!v || !is_half(v.dtype())) continue;
    const View narrow = v;
    v = widen(v, kept);
    (narrow.dtype() == DType::kFloat16 ? convert<Half, float> : convert<BFloat16, float>)(narrow.data, v.data, v.numel());
  }
  for (View& v : out)
    if (is_half(v.dtype())) v = widen(v, kept);
  kernel(KernelArgs{args.op, in, out, args.attrs, args.allocate});
  for (size_t i = 0; i < out.size(); ++i)
    if (is_half(args.out[i].dtype()))
      (args.out[i].dtype() == DType::kFloat16 ? convert<float, Half> : convert<float, BFloat16>)(out[i].data, args.out[i].data, out[i].numel());
}

}  // namespace pg::cpu
