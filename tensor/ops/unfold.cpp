// Windows of images as columns, their sum back into an image, and deformable convolution, whose columns are sampled.
#include "tensor/ops/conv_rules.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/ops/sample_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

constexpr double kLimit = 1 << 30;

AttrDef pair_attr(const char* name, AttrValue fallback, const char* doc, double least) {
  return {name, AttrKind::kInts, std::move(fallback), doc, false, least, kLimit};
}
const AttrDef kStride = pair_attr("stride", Ints{1}, "step of the window", 1);
const AttrDef kPadding = pair_attr("padding", Ints{0}, "zeros around the image", 0);
const AttrDef kDilation = pair_attr("dilation", Ints{1}, "distance between the elements of the window", 1);

// The windows of one size over an image of `size`.
struct Grid {
  Dims kernel, out;
  int64_t taps() const { return times(kernel[0], kernel[1]); }
  int64_t count() const { return times(out[0], out[1]); }
};

// Throws an error of argument `name` where no window fits.
Grid grid_of(const AttrReader& c, const char* name, const Dims& kernel, int64_t height, int64_t width) {
  const Dims stride = spatial(c, "stride", 2, 1), padding = spatial(c, "padding", 2, 0);
  const Dims dilation = spatial(c, "dilation", 2, 1), size = {height, width};
  Grid g{kernel, {}};
  for (int d = 0; d < 2; ++d) {
    const int64_t reach = plus(times(dilation[d], kernel[d] - 1), 1);
    const int64_t room = plus(size[d], 2 * padding[d]) - reach;
    if (room < 0)
      bad_argument(c.op().name, name,
                   fmt::format("at least {} elements with padding in spatial dim {} for a kernel that spans {}", reach,
                               d + 1, reach),
                   std::to_string(reach + room));
    g.out.push_back(room / stride[d] + 1);
  }
  return g;
}

void infer_unfold(Infer& c) {
  const Dims& x = c.shape(0);
  const int n = x.size();
  if (n != 3 && n != 4) c.bad_input(0, "4 dims (batch, channels, height, width), or 3 without batch");
  const Grid g = grid_of(c, "x", spatial(c, "kernel_size", 2, 1), x[n - 2], x[n - 1]);
  Dims out;
  if (n == 4) out.push_back(x[0]);
  out.push_back(times(x[n - 3], g.taps()));
  out.push_back(g.count());
  c.output(c.dtype(0), out);
}

void infer_fold(Infer& c) {
  const Dims& x = c.shape(0);
  const int n = x.size();
  if (n != 2 && n != 3) c.bad_input(0, "3 dims (batch, channels * window, windows), or 2 without batch");
  const Dims size = spatial(c, "output_size", 2, 1);
  const Grid g = grid_of(c, "output_size", spatial(c, "kernel_size", 2, 1), size[0], size[1]);
  if (x[n - 2] % g.taps() != 0) c.bad_input(0, fmt::format("a multiple of {} rows, the size of a window", g.taps()));
  if (x[n - 1] != g.count()) c.bad_input(0, fmt::format("{} columns, one for each window", g.count()));
  Dims out;
  if (n == 3) out.push_back(x[0]);
  out.push_back(x[n - 2] / g.taps());
  out.push_back(size[0]);
  out.push_back(size[1]);
  c.output(c.dtype(0), out);
}

Var grad_unfold(Vjp& c) {
  const Dims& x = c.input(0).shape();
  return call_like<"fold">(c, {c.dy()}, {{"output_size", Ints{x[x.size() - 2], x[x.size() - 1]}}});
}

Var grad_fold(Vjp& c) { return call_like<"unfold">(c, {c.dy()}); }

// --- Deformable convolution ---

enum Input { kImage, kOffset, kWeight, kBias, kMask };

struct Deformed {
  Grid grid;
  int64_t batch, channels, groups, parts;  // parts: groups of channels with offsets of their own
};

Deformed deformed(const AttrReader& c, const Dims& x, const Dims& offset, const Dims& weight) {
  Deformed d;
  d.grid = grid_of(c, "x", {weight[2], weight[3]}, x[2], x[3]);
  d.batch = x[0], d.channels = x[1];
  d.groups = d.channels / weight[1];
  d.parts = offset[1] / (2 * d.grid.taps());
  return d;
}

void infer_deform(Infer& c) {
  for (size_t i : {size_t(kImage), size_t(kOffset), size_t(kWeight)}) c.require_rank(i, 4);
  const Dims &x = c.shape(kImage), &offset = c.shape(kOffset), &w = c.shape(kWeight);
  if (w[0] < 1 || w[1] < 1 || w[2] < 1 || w[3] < 1) c.bad_input(kWeight, "at least 1 element in every dim");
  if (x[1] < 1 || x[1] % w[1] != 0) c.bad_input(kImage, fmt::format("a multiple of {} channels", w[1]));
  if (w[0] % (x[1] / w[1]) != 0) c.bad_input(kWeight, fmt::format("a multiple of {} results", x[1] / w[1]));
  if (times(x[2], x[3]) > INT32_MAX) c.bad_input(kImage, "fewer than 2^31 elements a channel");
  const int64_t pair = 2 * times(w[2], w[3]);
  if (offset[1] < pair || offset[1] % pair != 0 || x[1] % (offset[1] / pair) != 0)
    c.bad_input(kOffset, fmt::format("{} values for each of some groups of the {} channels", pair, x[1]));
  const Deformed d = deformed(c, x, offset, w);
  const Dims points = {x[0], offset[1], d.grid.out[0], d.grid.out[1]};
  if (!(offset == points)) c.bad_input(kOffset, "shape " + to_string(points));
  if (c.has(kBias) && !(c.shape(kBias) == Dims{w[0]})) c.bad_input(kBias, "shape " + to_string(Dims{w[0]}));
  const Dims mask = {x[0], offset[1] / 2, points[2], points[3]};
  if (c.has(kMask) && !(c.shape(kMask) == mask)) c.bad_input(kMask, "shape " + to_string(mask));
  for (size_t i = 1; i < c.count(); ++i)
    if (c.has(i) && c.dtype(i) != c.dtype(0)) c.bad_input(i, fmt::format("{} like x", name_of(c.dtype(0))));
  c.output(c.dtype(0), {x[0], w[0], points[2], points[3]});
}

// start, start + step, … : `count` numbers like those of v.
Var evenly(const Rule& c, const Var& v, int64_t start, int64_t step, int64_t count) {
  const OpDef& op = op_named<"linspace">();
  return c.wrap(apply(c.context(), op, std::span<Value>(),
                      make_attrs(op, {{"start", double(start)},
                                      {"stop", double(start + step * (count - 1))},
                                      {"steps", count},
                                      {"dtype", v.dtype()},
                                      {"device", v.value().device()}}))[0]);
}

// The places that the windows read along one spatial dim, (batch parts, taps windows).
Var places(const Rule& c, const Deformed& d, int dim) {
  const Var offset = c.in(kOffset);
  const Dims &k = d.grid.kernel, &out = d.grid.out;
  const int64_t stride = spatial(c, "stride", 2, 1)[dim], padding = spatial(c, "padding", 2, 0)[dim];
  const int64_t dilation = spatial(c, "dilation", 2, 1)[dim];
  const Var start = evenly(c, offset, -padding, stride, out[dim]), tap = evenly(c, offset, 0, dilation, k[dim]);
  const Var base = dim == 0 ? with_shape(tap, {k[0], 1, 1, 1}) + with_shape(start, {out[0], 1})
                            : with_shape(tap, {k[1], 1, 1}) + start;
  const int64_t images = d.batch * d.parts;
  const Var pairs = with_shape(offset, {images, d.grid.taps(), 2, d.grid.count()});
  const Var moved = call<"select">(pairs, {{"dim", int64_t(3)}, {"index", user_dim(dim)}});
  const Var at = with_shape(moved, {images, k[0], k[1], out[0], out[1]}) + base;
  return with_shape(at, {images, d.grid.taps() * d.grid.count()});
}

std::vector<Var> decompose_deform(Rule& c) {
  const Var x = c.in(kImage), w = c.in(kWeight);
  const Deformed d = deformed(c, x.shape(), c.in(kOffset).shape(), w.shape());
  const int64_t images = d.batch * d.parts, own = d.channels / d.parts, taps = d.grid.taps(), count = d.grid.count();
  const Var planes = with_shape(x, {images, own, x.shape()[2], x.shape()[3]});
  const Var factor = c.has(kMask) ? with_shape(c.in(kMask), {images, 1, taps * count}) : Var();
  const Var columns = sample_bilinear(planes, places(c, d, 0), places(c, d, 1), factor);
  const int64_t outputs = w.shape()[0], depth = w.shape()[1] * taps;
  const Var product = call<"matmul">(with_shape(w, {1, d.groups, outputs / d.groups, depth}),
                                     with_shape(columns, {d.batch, d.groups, depth, count}));
  const Var y = with_shape(product, {d.batch, outputs, d.grid.out[0], d.grid.out[1]});
  return {c.has(kBias) ? y + with_shape(c.in(kBias), {outputs, 1, 1}) : y};
}

OpDef deform_row() {
  return {.name = "deform_conv2d",
          .doc =
              "A convolution whose windows read x (batch, channels, height, width) at places that are moved by offset "
              "(batch, 2 parts kh kw, out height, out width): for each part of the channels and element of the window "
              "a distance down and one to the right, in elements. Values between elements are interpolated, those "
              "outside are 0. weight is (out, channels / groups, kh, kw). mask (batch, parts kh kw, out height, out "
              "width) multiplies what is read. Dai et al., Deformable convolutional networks, 2017; Zhu et al., "
              "Deformable ConvNets v2, 2019.",
          .example = "return pg.deform_conv2d(pg.ones(1, 2, 4, 4), pg.zeros(1, 18, 2, 2), pg.ones(1, 2, 3, 3))",
          .inputs = {{"x", kFloating},
                     {"offset", kFloating},
                     {"weight", kFloating},
                     {"bias", kFloating, Arity::kOptional},
                     {"mask", kFloating, Arity::kOptional, 0, 1}},
          .attrs = {kStride, kPadding, kDilation},
          .signature = "x offset weight bias stride padding dilation mask",
          .infer = infer_deform,
          .decompose = decompose_deform,
          .traits = kWidens};
}

}  // namespace

void add_unfold_ops(Registry& r) {
  const AttrDef kernel = pair_attr("kernel_size", {}, "height and width of the window", 1);
  const OpDef rows[] = {
      {.name = "unfold",
       .doc = "The windows of images x (batch, channels, height, width) as columns: (batch, channels kh kw, windows).",
       .example = "return pg.unfold(pg.ones(1, 2, 4, 4), 3, {padding = 1})",
       .inputs = {{"x", kFloating}},
       .attrs = {kernel, kDilation, kPadding, kStride},
       .infer = infer_unfold,
       .vjp = {grad_unfold},
       .vjp_uses = ""},
      {.name = "fold",
       .doc = "The images (batch, channels, height, width) of size output_size that are the sums of the windows in the "
              "columns of x (batch, channels kh kw, windows). unfold makes such columns.",
       .example = "return pg.fold(pg.ones(1, 9, 4), {4, 4}, 3)",
       .inputs = {{"x", kFloating}},
       .attrs = {pair_attr("output_size", {}, "height and width of the images", 1), kernel, kDilation, kPadding,
                 kStride},
       .infer = infer_fold,
       .vjp = {grad_fold},
       .vjp_uses = ""},
      deform_row(),
  };
  r.add(rows);
}

}  // namespace pg
