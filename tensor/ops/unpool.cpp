// The partial inverse of max pooling: elements go back to the positions that they came from.
#include "tensor/ops/index.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/ops/pool_rules.h"

namespace pg {
namespace {

// The spatial sizes of the result: those that pooling without remainder starts from, or output_size, which differs from
// them by less than the stride.
Dims unpooled_size(const AttrReader& c, const Dims& x, int dims) {
  const Window w = window_of(c, dims);
  Dims out;
  for (int d = 0; d < dims; ++d)
    out.push_back(plus(times(x[x.size() - dims + d] - 1, w.stride[d]), w.kernel[d] - 2 * w.padding[d]));
  if (!c.has_attr("output_size")) return out;
  Ints given = c.attr<Ints>("output_size");
  if (int(given.size()) == dims + 2) given.erase(given.begin(), given.begin() + 2);
  if (int(given.size()) != dims)
    bad_argument(c.op().name, "output_size", fmt::format("{} or {} sizes", dims, dims + 2),
                 to_string(c.raw("output_size")));
  for (int d = 0; d < dims; ++d) {
    const int64_t n = given[size_t(d)];
    if (n <= out[d] - w.stride[d] || n >= out[d] + w.stride[d])
      bad_argument(c.op().name, "output_size",
                   fmt::format("from {} to {} elements in spatial dim {}",
                               std::max<int64_t>(0, out[d] - w.stride[d] + 1), out[d] + w.stride[d] - 1, d + 1),
                   std::to_string(n));
    out[d] = n;
  }
  return out;
}

template <int kDims>
void infer_unpool(Infer& c) {
  require_planes(c, kDims);
  if (!(c.shape(1) == c.shape(0))) c.bad_input(1, "the shape of x, " + to_string(c.shape(0)));
  const Dims size = unpooled_size(c, c.shape(0), kDims);
  for (int64_t n : size)
    if (n < 1) c.bad_input(0, "room for a window in every spatial dim");
  c.output(c.dtype(0), with_tail(c.shape(0), ints(size)));
}

template <int kDims>
std::vector<Var> decompose_unpool(Rule& c) {
  const Var x = c.in(0);
  const Dims size = unpooled_size(c, x.shape(), kDims);
  Dims from, to;
  for (int d = 0; d < x.rank() - kDims; ++d) from.push_back(x.shape()[d]), to.push_back(x.shape()[d]);
  int64_t taken = 1, plane = 1;
  for (int d = 0; d < kDims; ++d) taken *= x.shape()[x.rank() - kDims + d], plane = times(plane, size[d]);
  from.push_back(taken);
  to.push_back(plane);
  const Var zeros = c.wrap(c.context().interpreter->filled(c.context(), Type{x.dtype(), x.value().device(), to}, 0));
  const Var index = read_positions(c, c.in(1), "indices", plane, c.attr<int64_t>("index_base"));
  const Var out = call<"scatter">(zeros, with_shape(index, from), with_shape(x, from),
                                  {{"dim", int64_t(-1)}, {"index_base", int64_t(0)}});
  return {with_shape(out, with_tail(x.shape(), ints(size)))};
}

template <int kDims>
OpDef unpool(const char* name, const char* example) {
  return {
      .name = name,
      .doc =
          "Zeros with the elements of x at the positions `indices` of each channel, as max pooling with "
          "return_indices gave them. The sizes are those before pooling, or output_size where several are "
          "possible. Of several elements for one position the last stays.",
      .example = example,
      .inputs = {{"x", kFloating}, {"indices", kIntegral}},
      .attrs = {kKernel,
                kStride,
                kPadding,
                {"output_size", AttrKind::kInts, {}, "spatial sizes of the result, or all sizes", true, 0, kMostWindow},
                index_base_attr()},
      .infer = infer_unpool<kDims>,
      .decompose = decompose_unpool<kDims>};
}

}  // namespace

void add_unpool_ops(Registry& r) {
  const OpDef rows[] = {
      unpool<1>("max_unpool1d",
                "local y, i = pg.tensor({{{1, 3, 2, 4}}}):max_pool1d(2, {return_indices = true})\n"
                "return y:max_unpool1d(i, 2)"),
      unpool<2>("max_unpool2d",
                "local y, i = pg.randn(1, 1, 4, 4):max_pool2d(2, {return_indices = true})\n"
                "return y:max_unpool2d(i, 2)"),
      unpool<3>("max_unpool3d",
                "local y, i = pg.randn(1, 1, 4, 4, 4):max_pool3d(2, {return_indices = true})\n"
                "return y:max_unpool3d(i, 2)"),
  };
  r.add(rows);
}

}  // namespace pg
