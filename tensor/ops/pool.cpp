// Pooling. Max pooling also returns the position of each maximum, from which its gradients of any order follow.
#include "tensor/cpu/conv/pool.h"
#include "tensor/ops/index.h"
#include "tensor/ops/pool_rules.h"
#include "tensor/rule.h"

namespace pg {

void require_planes(Infer& c, int dims) {
  if (c.rank(0) != dims + 2 && c.rank(0) != dims + 1)
    c.bad_input(0, fmt::format("{} dims (batch, channels, {} spatial) or one less", dims + 2, dims));
}

Dims with_tail(Dims shape, const Ints& size) {
  for (size_t d = 0; d < size.size(); ++d) shape[shape.size() - int(size.size()) + int(d)] = size[d];
  return shape;
}

MaxPool max_pool_of(const Var& x, const Ints& kernel, const AttrValue& stride, const AttrValue& padding,
                    const AttrValue& dilation, const AttrValue& ceil_mode) {
  const std::vector<Var> out = call_all<"max_pool">({x}, {{"kernel_size", kernel},
                                                          {"stride", stride},
                                                          {"padding", padding},
                                                          {"dilation", dilation},
                                                          {"ceil_mode", ceil_mode}});
  return {out[0], out[1]};
}

std::vector<Var> pooled(const Rule& c, const MaxPool& pool) {
  if (!c.attr<bool>("return_indices")) return {pool.out};
  const Var index = call<"to">(pool.index, {{"dtype", DType::kInt64}});
  return {pool.out, c.attr<int64_t>("index_base") == 0 ? index : index + 1.0};
}

namespace {

const AttrDef kDilation = {"dilation", AttrKind::kInts, Ints{1}, "distance between the elements of the window", false,
                           1,          kMostWindow};
const AttrDef kCeil = {"ceil_mode", AttrKind::kBool, false, "also use windows that reach past the end"};
const AttrDef kCountPad = {"count_include_pad", AttrKind::kBool, true, "count the padding in the mean"};
const AttrDef kDivisor = {
    "divisor_override", AttrKind::kInt, {}, "divides the sums instead of the window's size", true, 1, kMostWindow};
constexpr uint16_t kPlaces = 1 << int(DType::kInt32);  // of the positions from max_pool

// Returns the number of windows per dim of a plane of spatial sizes `size`.
Dims windows_of(Infer& c, const Dims& size) {
  const Window w = window_of(c, size.size());
  Dims out;
  for (int d = 0; d < size.size(); ++d) {
    if (w.padding[d] > w.kernel[d] / 2) c.bad_attr("padding", "at most half of kernel_size");
    out.push_back(
        cpu::pool_out_dim(size[d], w.kernel[d], w.stride[d], w.padding[d], w.dilation[d], c.attr<bool>("ceil_mode")));
    if (out.back() < 1) c.bad_input(0, fmt::format("room for a window in spatial dim {}", d + 1));
  }
  return out;
}

Dims pooled_shape(Infer& c, int dims) {
  require_planes(c, dims);
  Dims out = c.shape(0), size;
  for (int d = out.size() - dims; d < out.size(); ++d) size.push_back(out[d]);
  const Dims windows = windows_of(c, size);
  for (int d = 0; d < dims; ++d) out[out.size() - dims + d] = windows[d];
  return out;
}

template <int kDims>
void infer_max_pool(Infer& c) {
  const Dims out = pooled_shape(c, kDims);
  c.output(c.dtype(0), out);
  if (c.attr<bool>("return_indices")) c.output(DType::kInt64, out);
}

template <int kDims>
void infer_pool(Infer& c) {
  c.output(c.dtype(0), pooled_shape(c, kDims));
}

// Returns the number of spatial dims from the length of a list attribute of a hidden op.
int listed_dims(const Infer& c, const char* name) {
  const Ints& list = c.attr<Ints>(name);
  if (list.empty() || list.size() > 3) c.bad_attr(name, "1 to 3 numbers");
  return int(list.size());
}

void infer_max_pool_any(Infer& c) {
  const int dims = listed_dims(c, "kernel_size");
  const Dims out = pooled_shape(c, dims);
  int64_t plane = 1;
  for (int d = 0; d < dims; ++d) plane = times(plane, c.shape(0)[c.rank(0) - 1 - d]);
  if (plane > INT32_MAX) c.bad_input(0, "planes of fewer than 2^31 elements");
  c.output(c.dtype(0), out);
  c.output(DType::kInt32, out);
}

void infer_max_pool_backward(Infer& c) {
  require_planes(c, listed_dims(c, "size"));
  if (!(c.shape(1) == c.shape(0))) c.bad_input(1, "the shape of dy, " + to_string(c.shape(0)));
  c.output(c.dtype(0), with_tail(c.shape(0), c.attr<Ints>("size")));
}

void infer_max_pool_take(Infer& c) {
  const int64_t dims = c.attr<int64_t>("dims");
  require_planes(c, int(dims));
  const Dims &x = c.shape(0), &index = c.shape(1);
  bool fits = x.size() == index.size();
  for (int i = 0; fits && i < x.size() - int(dims); ++i) fits = x[i] == index[i];
  if (!fits) c.bad_input(1, fmt::format("planes like those of x, {}", to_string(x)));
  c.output(c.dtype(0), index);
}

void infer_avg_pool_backward(Infer& c) {
  const int dims = listed_dims(c, "size");
  require_planes(c, dims);
  const Dims size{std::span<const int64_t>(c.attr<Ints>("size"))};
  const Dims windows = windows_of(c, size);
  for (int d = 0; d < dims; ++d)
    if (c.shape(0)[c.rank(0) - dims + d] != windows[d])
      c.bad_input(0, fmt::format("{} windows in spatial dim {}", windows[d], d + 1));
  c.output(c.dtype(0), with_tail(c.shape(0), c.attr<Ints>("size")));
}

Var max_pool_backward(const Var& dy, const Var& index, const Ints& size) {
  return call<"max_pool_backward">(dy, index, {{"size", size}});
}

template <int kDims>
std::vector<Var> decompose_max_pool(Rule& c) {
  return pooled(c, max_pool_of(c.in(0), ints(spatial(c, "kernel_size", kDims, 1)), c.raw("stride"), c.raw("padding"),
                               c.raw("dilation"), c.raw("ceil_mode")));
}

template <int kDims>
OpDef max_pool(const char* name, const char* example) {
  return {.name = name,
          .doc =
              "The largest element of each window, channel by channel. Padding never wins; a NaN does. With "
              "return_indices also the positions of these elements, int64, which max_unpool takes: each counts "
              "through its channel, row by row, from index_base on. A window of nothing but padding, which dilation "
              "can make, gives -inf and the position index_base - 1.",
          .example = example,
          .inputs = {{"x", kFloating}},
          .attrs = {kKernel, kStride, kPadding, kDilation, kCeil, kReturnIndices, index_base_attr()},
          .outputs = {"out", "indices"},
          .infer = infer_max_pool<kDims>,
          .decompose = decompose_max_pool<kDims>};
}

Var avg_pool_like(const Rule& c, const Var& x, int dims) {
  if (dims == 1) return call_like<"avg_pool1d">(c, {x});
  if (dims == 2) return call_like<"avg_pool2d">(c, {x});
  return call_like<"avg_pool3d">(c, {x});
}

template <int kDims>
Var grad_avg_pool(Vjp& c) {
  return call_like<"avg_pool_backward">(c, {c.dy()}, {{"size", tail(c.input(0).shape(), kDims)}});
}

template <int kDims>
OpDef avg_pool(const char* name, const char* example) {
  return {.name = name,
          .doc = "The mean of each window, channel by channel.",
          .example = example,
          .inputs = {{"x", kFloating}},
          .attrs = {kKernel, kStride, kPadding, kCeil, kCountPad, kDivisor},
          .infer = infer_pool<kDims>,
          .vjp = {grad_avg_pool<kDims>},
          .vjp_uses = "",
          .channels_last = [](const AttrReader&, int rank) -> const OpDef* {
            return rank == kDims + 2 ? &op_named<"avg_pool_last">() : nullptr;
          }};
}

// Returns the number of spatial dims. A list of sizes has one for each; one size leaves a batch in 3 and more dims.
int lp_pool_dims(const AttrReader& c, int rank) {
  const int sizes = int(c.attr<Ints>("kernel_size").size());
  return sizes > 1 ? sizes : std::max(rank - 2, 1);
}

void infer_lp_pool(Infer& c) {
  if (c.rank(0) < 2 || c.rank(0) > 5)
    c.bad_input(0, "3 to 5 dims (batch, channels, spatial) or one less, with a kernel_size for each spatial dim");
  const int dims = lp_pool_dims(c, c.rank(0));
  require_planes(c, dims);
  const Dims kernel = spatial(c, "kernel_size", dims, 1);
  const Dims stride = c.has_attr("stride") ? spatial(c, "stride", dims, 1) : kernel;
  Dims out = c.shape(0);
  for (int d = 0; d < dims; ++d) {
    int64_t& n = out[out.size() - dims + d];
    n = cpu::pool_out_dim(n, kernel[d], stride[d], 0, 1, c.attr<bool>("ceil_mode"));
    if (n < 1) c.bad_input(0, fmt::format("room for a window in spatial dim {}", d + 1));
  }
  c.output(c.dtype(0), out);
}

// As in PyTorch: the mean of the powers times the window size; negative sums keep their sign.
std::vector<Var> decompose_lp_pool(Rule& c) {
  const double p = c.attr<double>("norm_type");
  const int dims = lp_pool_dims(c, c.in(0).rank());
  double count = 1;
  for (int64_t k : spatial(c, "kernel_size", dims, 1)) count *= double(k);
  const Var mean = avg_pool_like(c, call<"pow">(c.in(0), Var(p)), dims);
  const Var sum = call<"sign">(mean) * call<"relu">(call<"abs">(mean)) * Var(count);
  return {call<"pow">(sum, Var(1 / p))};
}

std::vector<OpDef> pool_rows() {
  return {
      max_pool<1>("max_pool1d", "return pg.max_pool1d(pg.ones(1, 2, 6), 2)"),
      max_pool<2>("max_pool2d", "return pg.max_pool2d(pg.ones(1, 2, 6, 6), 3, {stride = 2, padding = 1})"),
      max_pool<3>("max_pool3d", "return pg.max_pool3d(pg.ones(1, 2, 4, 4, 4), 2)"),
      avg_pool<1>("avg_pool1d", "return pg.avg_pool1d(pg.ones(1, 2, 6), 2)"),
      avg_pool<2>("avg_pool2d",
                  "return pg.avg_pool2d(pg.ones(1, 2, 6, 6), 3, {padding = 1, count_include_pad = false})"),
      avg_pool<3>("avg_pool3d", "return pg.avg_pool3d(pg.ones(1, 2, 4, 4, 4), 2)"),
      {.name = "lp_pool",
       .doc = "The p-norm of each window: (sum of x ^ norm_type) ^ (1 / norm_type), channel by channel. "
              "Without a batch, kernel_size is a list with a size for each spatial dim.",
       .example = "return pg.lp_pool(pg.ones(1, 2, 6, 6), 2, 3)",
       .inputs = {{"x", kFloating, Arity::kOne, 0.5, 2}},
       .attrs = {{"norm_type", AttrKind::kFloat, 2.0, "the exponent p", false, 1e-3, 1e3}, kKernel, kStride, kCeil},
       .infer = infer_lp_pool,
       .decompose = decompose_lp_pool,
       .traits = kWidens},
  };
}

std::vector<OpDef> hidden_rows() {
  return {
      {.name = "max_pool",
       .doc = "Max pooling that also returns the flat position of each maximum in its plane, counted from 0, or "
              "-1 for a window of nothing but padding.",
       .inputs = {{"x", kFloating}},
       .attrs = {kKernel, kStride, kPadding, kDilation, kCeil},
       .outputs = {"out", "index"},
       .infer = infer_max_pool_any,
       .vjp = {[](Vjp& c) {
         const int dims = int(c.attr<Ints>("kernel_size").size());
         return max_pool_backward(c.dy(0), c.out(1), tail(c.input(0).shape(), dims));
       }},
       .vjp_uses = "index",
       .traits = kHidden | kTotal,
       .channels_last = [](const AttrReader& c, int rank) -> const OpDef* {
         return rank == int(c.attr<Ints>("kernel_size").size()) + 2 ? &op_named<"max_pool_last">() : nullptr;
       }},
      {.name = "max_pool_backward",
       .doc = "Planes of spatial sizes `size` that hold the sums of the elements of dy at the positions in `index`. "
              "Those at -1 are left out.",
       .inputs = {{"dy", kFloating}, {"index", kPlaces}},
       .attrs = {kSize},
       .infer = infer_max_pool_backward,
       .vjp = {[](Vjp& c) {
                 return call<"max_pool_take">(c.dy(), c.in(1), {{"dims", int64_t(c.attr<Ints>("size").size())}});
               },
               nullptr},
       .vjp_uses = "index",
       .traits = kHidden,
       .channels_last = [](const AttrReader& c, int rank) -> const OpDef* {
         return rank == int(c.attr<Ints>("size").size()) + 2 ? &op_named<"max_pool_backward_last">() : nullptr;
       },
       .accepts = "max_pool"},
      {.name = "max_pool_take",
       .doc = "The elements of x at the positions in `index`, plane by plane; 0 at -1.",
       .inputs = {{"x", kFloating}, {"index", kPlaces}},
       .attrs = {{"dims", AttrKind::kInt, int64_t(2), "number of spatial dims", false, 1, 3}},
       .infer = infer_max_pool_take,
       .vjp = {[](Vjp& c) {
                 return max_pool_backward(c.dy(), c.in(1), tail(c.input(0).shape(), int(c.attr<int64_t>("dims"))));
               },
               nullptr},
       .vjp_uses = "index",
       .traits = kHidden},
      {.name = "avg_pool_backward",
       .doc = "The gradient of average pooling, whose input has spatial sizes `size`.",
       .inputs = {{"dy", kFloating}},
       .attrs = {kSize, kKernel, kStride, kPadding, kCeil, kCountPad, kDivisor},
       .infer = infer_avg_pool_backward,
       .vjp = {[](Vjp& c) { return avg_pool_like(c, c.dy(), int(c.attr<Ints>("size").size())); }},
       .vjp_uses = "",
       .traits = kHidden | kTotal},
  };
}

}  // namespace

Window window_of(const AttrReader& c, int count) {
  Window w;
  w.kernel = spatial(c, "kernel_size", count, 1);
  w.stride = c.has_attr("stride") ? spatial(c, "stride", count, 1) : w.kernel;
  w.padding = spatial(c, "padding", count, 0);
  w.dilation = c.op().attr_index("dilation") >= 0 ? spatial(c, "dilation", count, 1) : Dims(count, 1);
  return w;
}

void add_pool_ops(Registry& r) {
  r.add(pool_rows());
  r.add(hidden_rows());
  add_adaptive_pool_ops(r);
  add_unpool_ops(r);
}

}  // namespace pg
