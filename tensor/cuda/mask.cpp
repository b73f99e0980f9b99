// Ops that select elements by a bool tensor, by hand-written kernels (kernels/mask.cuh). Where the size of the result
// depends on values, the host waits for it. A number of rows that does not fit is reported late.
#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/mask_arguments.cuh"
#include "tensor/cuda/scan.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

// A mask over `rows` rows of `row` elements.
class Mask {
 public:
  Mask(const KernelArgs& a, DType element, const void* mask, int64_t rows, int64_t row)
      : a_(a), stream_(stream_at(a.stream)), element_(element), ranks_(stream_, mask, rows) {
    args.mask = static_cast<const bool*>(mask);
    args.ranks = ranks_.data();
    args.rows = rows, args.row = row;
  }
  int64_t total() const { return ranks_.total(); }

  void run(const char* kernel, int64_t count, bool adds = false) const {
    const std::string types = mask_types(adds ? element_ : moved(element_), ranks_.dtype());
    if (count > 0) launch(stream_, family_kernel(stream_, "mask", types, kernel), count, &args);
  }
  // Copies the selected rows of `from` to the first rows of `to`.
  void read(const void* from, void* to, int64_t selected) {
    args.from = from, args.to = to, args.selected = selected;
    run("mask_read", args.rows * args.row);
  }
  // Copies rows of `from`, or the only one, to the selected rows of `to`, or adds them.
  void write(const void* from, void* to, int64_t selected, bool one_row = false, bool adds = false) {
    args.from = from, args.to = to, args.selected = selected, args.one_row = one_row;
    run(adds ? "mask_add" : "mask_write", args.rows * args.row, adds);
  }
  // Refuses `given` rows or elements of an input unless the mask selects as many.
  void check(const char* argument, int64_t given, const char* what, bool at_least = false) {
    const std::string expected =
        fmt::format("{}{{value}} {}, one for each true element of the mask", at_least ? "at least " : "", what);
    args.selected = given;
    args.at_least = at_least;
    args.fault = stream_.fault->get();
    args.report = report_number(refusal(a_, argument, expected, std::to_string(given)));
    run("mask_check", 1);
  }

  kernels::MaskArgs args = {};

 private:
  const KernelArgs& a_;
  Stream& stream_;
  const DType element_;
  const Ranks ranks_;
};

// The dims of `whole` that a mask over its leading dims does not cover.
Dims rest_of(const View& whole, const View& mask) {
  Dims rest;
  for (int d = mask.rank(); d < whole.rank(); ++d) rest.push_back(whole.size(d));
  return rest;
}

void masked_select(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  Dims shape;
  broadcast(a.in[0].shape(), a.in[1].shape(), &shape);
  const DType t = a.in[0].dtype();
  const Spread x(stream, a.in[0], t, shape), flags(stream, a.in[1], DType::kBool, shape);
  Mask mask(a, t, flags.data(), numel(shape), 1);
  const int64_t count = mask.total();
  mask.read(x.data(), a.allocate(0, {count}).data, count);
}

void mask_get(const KernelArgs& a) {
  const View &x = a.in[0], &flags = a.in[1];
  Dims shape = rest_of(x, flags);
  Mask mask(a, x.dtype(), flags.data, flags.numel(), numel(shape));
  const int64_t count = mask.total();
  shape.insert(0, count);
  mask.read(x.data, a.allocate(0, shape).data, count);
}

void mask_get_backward(const KernelArgs& a) {
  const View &dy = a.in[0], &flags = a.in[1], &out = a.out[0];
  Mask mask(a, out.dtype(), flags.data, flags.numel(), numel(rest_of(out, flags)));
  mask.check("dy", dy.size(0), "rows");
  fill_view(stream_at(a.stream), out, 0);
  mask.write(dy.data, out.data, dy.size(0));
}

void masked_scatter(const KernelArgs& a) {
  const View &x = a.in[0], &source = a.in[2], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  const Spread flags(stream, a.in[1], DType::kBool, out.shape());
  const Converted values(stream, source, out.dtype());
  Mask mask(a, out.dtype(), flags.data(), out.numel(), 1);
  mask.check("source", source.numel(), "elements", true);
  if (out.data != x.data) spread(stream, x, out);
  mask.write(values.data(), out.data, source.numel());
}

void masked_scatter_backward(const KernelArgs& a) {
  const View &dy = a.in[0], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  const Spread flags(stream, a.in[1], DType::kBool, dy.shape());
  fill_view(stream, out, 0);
  Mask(a, out.dtype(), flags.data(), dy.numel(), 1).read(dy.data, out.data, out.numel());
}

void nonzero(const KernelArgs& a) {
  const View& x = a.in[0];
  const Converted flags(stream_at(a.stream), x, DType::kBool);
  Mask mask(a, DType::kBool, flags.data(), x.numel(), 1);
  mask.args.rank = x.rank();
  mask.args.base = a.attr<int64_t>("index_base");
  for (int d = 0; d < x.rank(); ++d) mask.args.size[d] = x.size(d);
  mask.args.to = a.allocate(0, {mask.total(), x.rank()}).data;
  if (x.rank() > 0) mask.run("mask_positions", x.numel());
}

void mask_assign(const KernelArgs& a) { write_masked(a, "value", false); }

}  // namespace

void write_masked(const KernelArgs& a, const char* argument, bool adds) {
  const View &x = a.in[0], &flags = a.in[1], &value = a.in[2], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  Dims rest = rest_of(x, flags);
  Mask mask(a, out.dtype(), flags.data, flags.numel(), numel(rest));
  const bool counted = value.rank() == rest.size() + 1 && value.size(0) != 1;
  const int64_t rows = counted ? value.size(0) : 1;
  if (counted) {
    mask.check(argument, rows, "rows");
    rest.insert(0, rows);
  }
  if (out.numel() == 0) return;
  const Spread source(stream, value, out.dtype(), rest);
  if (out.data != x.data) convert_view(stream, x, out);
  mask.write(source.data(), out.data, rows, !counted, adds);
}

std::string mask_types(DType t, DType rank) {
  return fmt::format("using T = {};\nusing R = {};\n", type_text(t), type_text(rank));
}

std::vector<KernelRow> mask_rows() {
  return {{"masked_select", masked_select},
          {"masked_scatter", masked_scatter},
          {"masked_scatter_backward", masked_scatter_backward},
          {"mask_get", mask_get},
          {"mask_get_backward", mask_get_backward},
          {"mask_assign", mask_assign},
          {"nonzero", nonzero},
          {"argwhere", nonzero}};
}

}  // namespace pg::cuda
