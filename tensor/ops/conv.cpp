// Convolutions. The gradient of a convolution is again a convolution, so three ops are enough for all derivatives:
// forward, by the input, and by the weights.
#include "tensor/ops/all.h"
#include "tensor/ops/conv_rules.h"
#include "tensor/ops/epilogue.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

constexpr double kLimit = 1 << 30;

AttrDef list_attr(const char* name, int64_t fallback, const char* doc, bool padding_names = false) {
  return {.name = name,
          .kind = AttrKind::kInts,
          .fallback = Ints{fallback},
          .doc = doc,
          .min = double(fallback),
          .max = kLimit,
          .padding_names = padding_names};
}
const AttrDef kStride = list_attr("stride", 1, "step of the window");
const AttrDef kPadding = list_attr("padding", 0, "zeros added on both sides");
const AttrDef kNamedPadding =
    list_attr("padding", 0,
              "zeros added on both sides; also \"valid\" for none and, with stride 1, \"same\" to keep "
              "the size: an odd zero goes to the far end",
              true);
const AttrDef kDilation = list_attr("dilation", 1, "distance between the elements of the window");
const AttrDef kGroups = {"groups", AttrKind::kInt, int64_t(1), "groups of channels that see only each other", false,
                         1,        kLimit};
const AttrDef kSize = {"size", AttrKind::kInts, {}, "spatial sizes of the result"};

// Inputs may omit the batch dim.
void require_image(Infer& c, size_t i, int dims) {
  if (c.rank(i) != dims + 2 && c.rank(i) != dims + 1)
    c.bad_input(i, fmt::format("{} dims (batch, channels, {} spatial) or one less", dims + 2, dims));
}
int64_t channels(const Dims& image, int dims) { return image[image.size() - dims - 1]; }

void require_weight(Infer& c, size_t i, int dims) {
  if (c.rank(i) != dims + 2) c.bad_input(i, fmt::format("{} dims", dims + 2));
  for (int d = 2; d < dims + 2; ++d)
    if (c.shape(i)[d] < 1) c.bad_input(i, "a kernel with at least 1 element per dim");
}

void require_bias(Infer& c, size_t i, int64_t count) {
  if (c.has(i) && (c.rank(i) != 1 || c.shape(i)[0] != count)) c.bad_input(i, fmt::format("{} elements", count));
}

DType common_dtype(const Infer& c) {
  DType type = c.dtype(0);
  for (size_t i = 1; i < c.count(); ++i)
    if (c.has(i)) type = promote(type, c.dtype(i));
  return type;
}

// The kernels copy an image with its padding. Padding that is far larger than any image is a mistake and must not use
// up all memory.
constexpr double kPaddedElements = 1 << 28;

void require_modest_padding(Infer& c, const Dims& x, const Dims& padding) {
  const int first = x.size() - padding.size();
  double padded = double(x[first - 1]), plain = padded;
  for (int d = 0; d < padding.size(); ++d) {
    padded *= double(x[first + d] + 2 * padding[d]);
    plain *= double(x[first + d]);
  }
  if (padded > kPaddedElements && padded > 8 * plain)
    c.bad_attr("padding", "a border that is not far larger than the image");
}

template <int kDims>
void infer_conv(Infer& c) {
  require_image(c, 0, kDims);
  require_weight(c, 1, kDims);
  const Dims &x = c.shape(0), &w = c.shape(1);
  const int64_t groups = c.attr<int64_t>("groups");
  if (w[0] % groups != 0) c.bad_input(1, fmt::format("a multiple of {} output channels", groups));
  const int64_t read = times(w[1], groups);
  if (channels(x, kDims) != read)
    c.bad_input(0, fmt::format("{} channels (weight {}, groups {})", read, to_string(w), groups));
  require_bias(c, 2, w[0]);
  const Dims stride = spatial(c, "stride", kDims, 1), padding = spatial(c, "padding", kDims, 0);
  const Dims dilation = spatial(c, "dilation", kDims, 1);
  Dims out = x;
  const int first = x.size() - kDims;
  out[first - 1] = w[0];
  require_modest_padding(c, x, padding);
  for (int d = 0; d < kDims; ++d) {
    const int64_t reach = plus(times(dilation[d], w[d + 2] - 1), 1), room = x[first + d] + 2 * padding[d] - reach;
    if (room < 0)
      c.bad_input(0, fmt::format("at least {} elements with padding in spatial dim {} for a kernel that spans {}",
                                 reach, d + 1, reach));
    out[first + d] = room / stride[d] + 1;
  }
  c.output(common_dtype(c), out);
}

Var convolve(const Rule& c, const Var& x, const Var& w, const Var& bias = {}) {
  if (w.rank() == 3) return call_like<"conv1d">(c, {x, w, bias});
  if (w.rank() == 4) return call_like<"conv2d">(c, {x, w, bias});
  return call_like<"conv3d">(c, {x, w, bias});
}
Var convolve_by_input(const Rule& c, const Var& dy, const Var& w, const Ints& size) {
  return call_like<"conv_by_input">(c, {dy, w}, {{"size", size}});
}
Var convolve_by_weight(const Rule& c, const Var& x, const Var& dy, const Ints& size) {
  return call_like<"conv_by_weight">(c, {x, dy}, {{"size", size}});
}

template <int kDims>
Var grad_conv_input(Vjp& c) {
  return convolve_by_input(c, c.dy(), c.in(1), tail(c.input(0).shape(), kDims));
}
template <int kDims>
Var grad_conv_weight(Vjp& c) {
  return convolve_by_weight(c, c.in(0), c.dy(), tail(c.input(1).shape(), kDims));
}
template <int kDims>
Var grad_conv_bias(Vjp& c) {
  const Var dy = c.dy();
  Ints dims;
  for (int d = 0; d < dy.rank(); ++d)
    if (d != dy.rank() - kDims - 1) dims.push_back(d + 1);
  return call<"sum">(dy, {{"dim", dims}});
}

// The spatial sizes of an image or kernel, from the attribute of a hidden op.
const Ints& told_size(const Infer& c) {
  const Ints& size = c.attr<Ints>("size");
  if (size.empty() || size.size() > 3) c.bad_attr("size", "1 to 3 spatial sizes");
  for (int64_t n : size)
    if (n < 0) c.bad_attr("size", "sizes that are not negative");
  return size;
}

// Checks that windows of `kernel` over the last dims of `x` are as many as the last dims of `y`, which is input 0 or 1.
void require_windows(const Infer& c, const Dims& x, const Dims& kernel, size_t y) {
  const int dims = kernel.size();
  const Dims stride = spatial(c, "stride", dims, 1), padding = spatial(c, "padding", dims, 0),
             dilation = spatial(c, "dilation", dims, 1);
  for (int d = 0; d < dims; ++d) {
    const int64_t room = x[x.size() - dims + d] + 2 * padding[d] - plus(times(dilation[d], kernel[d] - 1), 1);
    const int64_t windows = kernel[d] < 1 || room < 0 ? 0 : room / stride[d] + 1;
    if (windows < 1 || c.shape(y)[c.rank(y) - dims + d] != windows)
      c.bad_input(y, fmt::format("{} windows in spatial dim {}", windows, d + 1));
  }
}

Dims last_dims(const Dims& shape, int count) {
  Dims out;
  for (int d = shape.size() - count; d < shape.size(); ++d) out.push_back(shape[d]);
  return out;
}

void infer_by_input(Infer& c) {
  const Ints& size = told_size(c);
  const int dims = int(size.size());
  const int64_t groups = c.attr<int64_t>("groups");
  require_image(c, 0, dims);
  require_weight(c, 1, dims);
  const Dims& w = c.shape(1);
  if (channels(c.shape(0), dims) != w[0] || w[0] % groups != 0)
    c.bad_input(0, fmt::format("{} channels, a multiple of {}", w[0], groups));
  Dims out = c.shape(0);
  out[out.size() - dims - 1] = times(w[1], groups);
  for (int d = 0; d < dims; ++d) out[out.size() - dims + d] = size[size_t(d)];
  require_modest_padding(c, out, spatial(c, "padding", dims, 0));
  require_windows(c, out, last_dims(w, dims), 0);
  c.output(common_dtype(c), out);
}

void infer_by_weight(Infer& c) {
  const Ints& size = told_size(c);
  const int dims = int(size.size());
  const int64_t groups = c.attr<int64_t>("groups");
  require_image(c, 0, dims);
  require_image(c, 1, dims);
  const Dims &x = c.shape(0), &dy = c.shape(1);
  if (x.size() != dy.size() || (x.size() == dims + 2 && x[0] != dy[0]))
    c.bad_input(1, "a batch like that of x, " + to_string(x));
  if (channels(x, dims) % groups != 0) c.bad_input(0, fmt::format("a multiple of {} channels", groups));
  if (channels(dy, dims) % groups != 0) c.bad_input(1, fmt::format("a multiple of {} channels", groups));
  const Dims kernel{std::span<const int64_t>(size)};
  require_modest_padding(c, x, spatial(c, "padding", dims, 0));
  require_windows(c, x, kernel, 1);
  Dims out{channels(dy, dims), channels(x, dims) / groups};
  for (int64_t k : size) out.push_back(k);
  c.output(common_dtype(c), out);
}

Dims transposed_size(const AttrReader& c, const Dims& x, const Dims& w, int dims) {
  const Dims stride = spatial(c, "stride", dims, 1), padding = spatial(c, "padding", dims, 0);
  const Dims dilation = spatial(c, "dilation", dims, 1), extra = spatial(c, "output_padding", dims, 0);
  Dims out;
  for (int d = 0; d < dims; ++d) {
    if (extra[d] >= std::max(stride[d], dilation[d]))
      bad_argument(c.op().name, "output_padding", "less than the stride or the dilation",
                   to_string(c.raw("output_padding")));
    const int64_t span = plus(times(x[x.size() - dims + d] - 1, stride[d]), times(dilation[d], w[d + 2] - 1));
    out.push_back(plus(span, 1 + extra[d] - 2 * padding[d]));
  }
  return out;
}

template <int kDims>
void infer_conv_transpose(Infer& c) {
  require_image(c, 0, kDims);
  require_weight(c, 1, kDims);
  const Dims &x = c.shape(0), &w = c.shape(1);
  const int64_t groups = c.attr<int64_t>("groups");
  if (w[0] % groups != 0) c.bad_input(1, fmt::format("a multiple of {} input channels", groups));
  if (channels(x, kDims) != w[0]) c.bad_input(0, fmt::format("{} channels (weight {})", w[0], to_string(w)));
  require_bias(c, 2, times(w[1], groups));
  const Dims size = transposed_size(c, x, w, kDims);
  Dims out = x;
  out[x.size() - kDims - 1] = times(w[1], groups);
  for (int d = 0; d < kDims; ++d) {
    if (x[x.size() - kDims + d] < 1) c.bad_input(0, fmt::format("at least 1 element in spatial dim {}", d + 1));
    if (size[d] < 1) c.bad_attr("padding", "less padding: the result would be empty");
    out[x.size() - kDims + d] = size[d];
  }
  c.output(common_dtype(c), out);
}

// x with `counts` zeros at the far end of its last dims.
Var extended(const Var& x, const Dims& counts) {
  Ints pad;
  for (int d = counts.size() - 1; d >= 0; --d) pad.push_back(0), pad.push_back(counts[d]);
  return std::all_of(pad.begin(), pad.end(), [](int64_t n) { return n == 0; }) ? x : call<"pad">(x, {{"pad", pad}});
}

// Where output_padding reaches the stride, more windows fit into the result than x has elements. They read zeros.
template <int kDims>
std::vector<Var> decompose_conv_transpose(Rule& c) {
  const Dims size = transposed_size(c, c.input(0).shape(), c.input(1).shape(), kDims);
  const Dims stride = spatial(c, "stride", kDims, 1);
  Dims more = spatial(c, "output_padding", kDims, 0);
  for (int d = 0; d < kDims; ++d) more[d] /= stride[d];
  Var y = convolve_by_input(c, extended(c.in(0), more), c.in(1), ints(size));
  if (!c.has(2)) return {y};
  Dims column(kDims + 1, 1);
  column[0] = c.input(2).shape()[0];
  return {y + with_shape(c.in(2), column)};
}

std::vector<InputDef> image_inputs() {
  return {{"x", kFloating}, {"weight", kFloating}, {"bias", kFloating, Arity::kOptional}};
}

void infer_conv_act(Infer& c) {
  if (c.rank(1) == 3)
    infer_conv<1>(c);
  else if (c.rank(1) == 4)
    infer_conv<2>(c);
  else
    infer_conv<3>(c);  // throws an error that names the expected rank
}

// Replaces padding = "same": the result has the size of x. Where the border has an odd width, x gets one zero more at
// the far end, as in PyTorch. A weight that is not a tensor of the right rank is an error that infer reports.
void complete_conv(Context& ctx, const OpDef& op, std::span<Value> inputs, Attrs& attrs) {
  AttrValue& padding = attrs[size_t(op.attr_index("padding"))];
  if (std::get<Ints>(padding) != Ints{kSamePadding}) return;
  padding = Ints{0};
  const AttrReader c(op, attrs);
  const Ints& stride = c.attr<Ints>("stride");
  if (std::any_of(stride.begin(), stride.end(), [](int64_t s) { return s != 1; }))
    bad_argument(op.name, "padding", "numbers where stride is not 1", "\"same\"");
  const int dims = inputs[1].is_array() ? inputs[1].rank() - 2 : 0;
  if (dims < 1 || !inputs[0].is_array() || inputs[0].rank() < dims) return;
  const Dims dilation = spatial(c, "dilation", dims, 1);
  Ints both;
  Dims more;
  for (int d = 0; d < dims; ++d) {
    const int64_t reach = times(dilation[d], std::max<int64_t>(inputs[1].shape()[d + 2] - 1, 0));
    both.push_back(reach / 2);
    more.push_back(reach % 2);
  }
  inputs[0] = extended(Var(ctx, inputs[0]), more).value();
  padding = both;
}

// Each element of an image of the outer side meets the weights of one output channel. Weights are (out, …).
double convolution_work(const View& image, const View& weight) {
  return double(image.numel()) * (double(weight.numel()) / double(std::max<int64_t>(weight.size(0), 1)));
}
double conv_work(std::span<const View> in, std::span<const View> out) { return convolution_work(out[0], in[1]); }

template <OpName name>
const OpDef* in_channels_last(const AttrReader& c, int rank) {
  return rank == int(c.attr<Ints>("size").size()) + 2 ? &op_named<name>() : nullptr;
}

template <int kDims>
OpDef conv(const char* name, const char* doc, const char* example) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = image_inputs(),
          .attrs = {kStride, kNamedPadding, kDilation, kGroups},
          .infer = infer_conv<kDims>,
          .vjp = {grad_conv_input<kDims>, grad_conv_weight<kDims>, grad_conv_bias<kDims>},
          .vjp_uses = "x weight",
          .traits = kTotal | kChannels,
          .with_epilogue = op_named<"conv_act">,
          .channels_last = [](const AttrReader&, int rank) -> const OpDef* {
            return rank == kDims + 2 ? &op_named<"conv_last">() : nullptr;
          },
          .complete = complete_conv,
          .multiply_adds = conv_work};
}

template <int kDims>
OpDef conv_transpose(const char* name, const char* doc, const char* example) {
  return {
      .name = name,
      .doc = doc,
      .example = example,
      .inputs = image_inputs(),
      .attrs = {kStride, kPadding, list_attr("output_padding", 0, "added to the size of the result on the far side"),
                kGroups, kDilation},
      .infer = infer_conv_transpose<kDims>,
      .decompose = decompose_conv_transpose<kDims>};
}

std::vector<OpDef> conv_rows() {
  return {
      conv<1>("conv1d", "Convolution of (N, C, W) or (C, W) with weights (out, in / groups, k), plus bias.",
              "return pg.conv1d(pg.ones(1, 2, 5), pg.ones(3, 2, 3), {padding = 1})"),
      conv<2>("conv2d", "Convolution of (N, C, H, W) or (C, H, W) with weights (out, in / groups, kH, kW), plus bias.",
              "return pg.conv2d(pg.ones(1, 2, 5, 5), pg.ones(3, 2, 3, 3), pg.zeros(3), {stride = 2})"),
      conv<3>("conv3d",
              "Convolution of (N, C, D, H, W) or (C, D, H, W) with weights (out, in / groups, kD, kH, kW), plus bias.",
              "return pg.conv3d(pg.ones(1, 2, 3, 3, 3), pg.ones(3, 2, 2, 2, 2))"),
      conv_transpose<1>("conv_transpose1d",
                        "The gradient of conv1d by its input, as an op; weights are (in, out / groups, k).",
                        "return pg.conv_transpose1d(pg.ones(1, 2, 5), pg.ones(2, 3, 3), {stride = 2})"),
      conv_transpose<2>("conv_transpose2d",
                        "The gradient of conv2d by its input, as an op; weights are (in, out / groups, kH, kW).",
                        "return pg.conv_transpose2d(pg.ones(1, 2, 4, 4), pg.ones(2, 3, 2, 2), {stride = 2})"),
      conv_transpose<3>("conv_transpose3d",
                        "The gradient of conv3d by its input, as an op; weights are (in, out / groups, kD, kH, kW).",
                        "return pg.conv_transpose3d(pg.ones(1, 2, 2, 2, 2), pg.ones(2, 3, 2, 2, 2))"),
      {.name = "conv_act",
       .doc = "An activation of conv1d, conv2d or conv3d, by the rank of the weights. Made by graph passes.",
       .inputs = image_inputs(),
       .attrs = {kStride, kPadding, kDilation, kGroups, activation_attr(), slope_attr()},
       .infer = infer_conv_act,
       .decompose = [](Rule& c) -> std::vector<Var> { return {activated(c, convolve(c, c.in(0), c.in(1), c.in(2)))}; },
       .traits = kHidden | kTotal,
       .multiply_adds = conv_work},
      {.name = "conv_by_input",
       .doc = "The gradient of a convolution by its input, which has spatial sizes `size`.",
       .inputs = {{"dy", kFloating}, {"weight", kFloating}},
       .attrs = {kSize, kStride, kPadding, kDilation, kGroups},
       .infer = infer_by_input,
       .vjp = {[](Vjp& c) { return convolve(c, c.dy(), c.in(1)); },
               [](Vjp& c) {
                 const int dims = c.input(1).rank() - 2;
                 return convolve_by_weight(c, c.dy(), c.in(0), tail(c.input(1).shape(), dims));
               }},
       .vjp_uses = "dy weight",
       .traits = kHidden | kTotal,
       .channels_last = in_channels_last<"conv_by_input_last">,
       .multiply_adds = [](std::span<const View> in, std::span<const View>) { return convolution_work(in[0], in[1]); }},
      {.name = "conv_by_weight",
       .doc = "The gradient of a convolution by its weights, which have spatial sizes `size`.",
       .inputs = {{"x", kFloating}, {"dy", kFloating}},
       .attrs = {kSize, kStride, kPadding, kDilation, kGroups},
       .infer = infer_by_weight,
       .vjp = {[](Vjp& c) {
                 const int dims = int(c.attr<Ints>("size").size());
                 return convolve_by_input(c, c.in(1), c.dy(), tail(c.input(0).shape(), dims));
               },
               [](Vjp& c) { return convolve(c, c.in(0), c.dy()); }},
       .vjp_uses = "x dy",
       .traits = kHidden | kTotal,
       .channels_last = in_channels_last<"conv_by_weight_last">,
       .multiply_adds = [](std::span<const View> in,
                           std::span<const View> out) { return convolution_work(in[1], out[0]); }},
  };
}

}  // namespace

Dims spatial(const AttrReader& c, const char* name, int count, int64_t least) {
  const Ints& given = c.attr<Ints>(name);
  if (given.size() != 1 && int(given.size()) != count)
    bad_argument(c.op().name, name, fmt::format("a number or {} numbers", count), to_string(c.raw(name)));
  Dims out;
  for (int d = 0; d < count; ++d) out.push_back(given.size() == 1 ? given[0] : given[size_t(d)]);
  for (int64_t v : out)
    if (v < least || v > int64_t(kLimit))
      bad_argument(c.op().name, name, fmt::format("numbers from {} to {}", least, int64_t(kLimit)),
                   to_string(c.raw(name)));
  return out;
}

void add_conv_ops(Registry& r) {
  r.add(conv_rows());
  add_pool_ops(r);
  add_resample_ops(r);
  add_grid_ops(r);
  add_unfold_ops(r);
  add_channels_last_ops(r);
}

}  // namespace pg
