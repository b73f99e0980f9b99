#include "tensor/cpu/register.h"
#include "tensor/op.h"

namespace pg {
namespace {

template <class F>
void binary(const KernelArgs& args, F f) {
  const View& out = args.out[0];
  const View& x = args.in[0];
  const View& y = args.in[args.in.size() - 1];
  const Dims sx = broadcast_strides(x.shape(), *x.strides, out.shape());
  const Dims sy = broadcast_strides(y.shape(), *y.strides, out.shape());
  Dims index(out.rank(), 0);
  for (int64_t i = 0; i < out.numel(); ++i) {
    int64_t ox = 0, oy = 0;
    for (int d = 0; d < out.rank(); ++d) ox += index[d] * sx[d], oy += index[d] * sy[d];
    const double a = load_number(x.dtype(), x.as<char>() + ox * size_of(x.dtype()));
    const double b = load_number(y.dtype(), y.as<char>() + oy * size_of(y.dtype()));
    store_number(out.dtype(), out.as<char>() + i * size_of(out.dtype()), f(a, b));
    for (int d = out.rank() - 1; d >= 0 && ++index[d] == out.size(d); --d) index[d] = 0;
  }
}

}  // namespace

void add_pointwise_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"add", [](const KernelArgs& a) { binary(a, [](double x, double y) { return x + y; }); }, kStridedInputs},
      {"sub", [](const KernelArgs& a) { binary(a, [](double x, double y) { return x - y; }); }, kStridedInputs},
      {"mul", [](const KernelArgs& a) { binary(a, [](double x, double y) { return x * y; }); }, kStridedInputs},
      {"div", [](const KernelArgs& a) { binary(a, [](double x, double y) { return x / y; }); }, kStridedInputs},
      {"neg", [](const KernelArgs& a) { binary(a, [](double x, double) { return -x; }); }, kStridedInputs},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
