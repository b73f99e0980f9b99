// Interpolation along spatial dims, and shuffles between channels and space.
#include <cmath>

#include "tensor/ops/conv_rules.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

const AttrDef kMode = {"mode",
                       AttrKind::kString,
                       std::string("nearest"),
                       "how elements between others arise",
                       false,
                       0,
                       0,
                       {"nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"}};
const AttrDef kCorners = {"align_corners", AttrKind::kBool, false,
                          "keep the first and last elements at their positions"};

// Sizes from `size`, or from `scale_factor` rounded down.
Dims wanted_size(const AttrReader& c, const Dims& x) {
  const int dims = x.size() - 2;
  if (c.has_attr("size") == c.has_attr("scale_factor"))
    bad_argument(c.op().name, "size", "either size or scale_factor", c.has_attr("size") ? "both" : "neither");
  if (c.has_attr("size")) return spatial(c, "size", dims, 1);
  const Floats& given = c.attr<Floats>("scale_factor");
  if (given.size() != 1 && int(given.size()) != dims)
    bad_argument(c.op().name, "scale_factor", fmt::format("a number or {} numbers", dims),
                 to_string(c.raw("scale_factor")));
  Dims out;
  for (int d = 0; d < dims; ++d) {
    const double n = std::floor(double(x[d + 2]) * given[given.size() == 1 ? 0 : size_t(d)]);
    if (!(n >= 1 && n < 1e9))
      bad_argument(c.op().name, "scale_factor", "a factor that leaves 1 to 10^9 elements",
                   to_string(c.raw("scale_factor")));
    out.push_back(int64_t(n));
  }
  return out;
}

void infer_interpolate(Infer& c) {
  const int dims = c.rank(0) - 2;
  if (dims < 1 || dims > 3) c.bad_input(0, "3 to 5 dims (batch, channels, spatial)");
  const std::string& mode = c.attr<std::string>("mode");
  const int of_mode = mode == "linear" ? 1 : mode == "trilinear" ? 3 : mode[0] == 'b' ? 2 : dims;
  if (of_mode != dims) c.bad_attr("mode", fmt::format("a mode for {} spatial dims", dims));
  const bool interpolates = mode.find("linear") != mode.npos || mode == "bicubic";
  if (!interpolates && c.attr<bool>("align_corners"))
    c.bad_attr("align_corners", "false in modes other than linear, bilinear, trilinear and bicubic");
  const Dims size = wanted_size(c, c.shape(0));
  Dims out = c.shape(0);
  for (int d = 0; d < dims; ++d) {
    if (out[d + 2] < 1) c.bad_input(0, "at least 1 element in every spatial dim");
    out[d + 2] = size[d];
  }
  c.output(c.dtype(0), out);
}

// Returns the input elements per output element. Uses the given scale_factor rather than the ratio of rounded sizes.
double step(const Rule& c, int d, int64_t in, int64_t out, bool corners) {
  if (corners) return out > 1 ? double(in - 1) / double(out - 1) : 0;
  if (!c.has_attr("scale_factor")) return double(in) / double(out);
  const Floats& given = c.attr<Floats>("scale_factor");
  return 1 / given[given.size() == 1 ? 0 : size_t(d)];
}

std::vector<Var> decompose_interpolate(Rule& c) {
  Var x = c.in(0);
  const Dims size = wanted_size(c, x.shape());
  const std::string& mode = c.attr<std::string>("mode");
  if (mode == "area") return {call<"adaptive_avg_pool">(x, {{"size", ints(size)}})};
  const bool cubic = mode == "bicubic", linear = mode.find("linear") != std::string::npos;
  const bool corners = (linear || cubic) && c.attr<bool>("align_corners");
  const std::string kind = cubic     ? (corners ? "cubic-corners" : "cubic")
                           : !linear ? mode
                           : corners ? "corners"
                                     : "linear";
  // Rows are computed faster than single elements: where the last dim grows, it comes first.
  const bool last_first = size[size.size() - 1] > x.shape()[x.rank() - 1];
  for (int k = 0; k < size.size(); ++k) {
    const int d = last_first ? size.size() - 1 - k : k;
    const int64_t in = x.shape()[d + 2];
    double covered = step(c, d, in, size[d], corners);
    // As in PyTorch for images, whatever the factor that leads to this size.
    if (mode == "nearest" && size.size() == 2 && (size[d] == in || size[d] == 2 * in))
      covered = double(in) / double(size[d]);
    if (in == size[d] && (covered == 1 || linear)) continue;
    x = call<"resample">(x, {{"dim", user_dim(d + 2)}, {"size", size[d]}, {"step", covered}, {"kind", kind}});
  }
  return {x};
}

void infer_resample(Infer& c) {
  if (c.rank(0) == 0) c.bad_input(0, "at least 1 dim");
  Dims out = c.shape(0);
  if (out[c.dim("dim", c.rank(0))] < 1) c.bad_input(0, "at least 1 element in the dim");
  if (!std::isfinite(c.attr<double>("step"))) c.bad_attr("step", "a finite number");
  out[c.dim("dim", c.rank(0))] = c.attr<int64_t>("size");
  c.output(c.dtype(0), out);
}

Var resample_other_way(Vjp& c, bool back) {
  const AttrList attrs = {{"size", c.input(0).shape()[c.dim("dim", c.input(0).rank())]}};
  return back ? call_like<"resample_backward">(c, {c.dy()}, attrs) : call_like<"resample">(c, {c.dy()}, attrs);
}

std::vector<AttrDef> resample_attrs() {
  return {{"dim", AttrKind::kDim, {}, "the dim"},
          {"size", AttrKind::kInt, {}, "its new size", false, 1, 1 << 30},
          {"step", AttrKind::kFloat, {}, "input elements a step of the output covers"},
          {"kind", AttrKind::kString, std::string("nearest"),
           "nearest, nearest-exact, linear, corners, cubic or cubic-corners"}};
}

int64_t shuffle_factor(const AttrReader& c, const char* name) { return c.attr<int64_t>(name); }

void infer_shuffle(Infer& c) {
  const int64_t r = shuffle_factor(c, "upscale_factor");
  const Dims& x = c.shape(0);
  if (x.size() < 3 || x[x.size() - 3] % (r * r) != 0)
    c.bad_input(0, fmt::format("at least 3 dims and a multiple of {} channels", r * r));
  Dims out = x;
  out[x.size() - 3] /= r * r;
  out[x.size() - 2] = times(x[x.size() - 2], r);
  out[x.size() - 1] = times(x[x.size() - 1], r);
  c.output(c.dtype(0), out);
}

void infer_unshuffle(Infer& c) {
  const int64_t r = shuffle_factor(c, "downscale_factor");
  const Dims& x = c.shape(0);
  if (x.size() < 3 || x[x.size() - 2] % r != 0 || x[x.size() - 1] % r != 0)
    c.bad_input(0, fmt::format("at least 3 dims, the last two multiples of {}", r));
  Dims out = x;
  out[x.size() - 3] = times(x[x.size() - 3], r * r);
  out[x.size() - 2] /= r;
  out[x.size() - 1] /= r;
  c.output(c.dtype(0), out);
}

// Reshapes x to its leading dims and five more, permutes these, and reshapes to `out`.
Var shuffled(const Var& x, const Dims& five, std::initializer_list<int> order, const Dims& out) {
  const int lead = x.rank() - 3;
  Dims split;
  Ints dims;
  for (int i = 0; i < lead; ++i) split.push_back(x.shape()[i]), dims.push_back(i + 1);
  for (int64_t n : five) split.push_back(n);
  for (int i : order) dims.push_back(lead + i + 1);
  return with_shape(call<"permute">(with_shape(x, split), {{"dims", dims}}), out);
}

std::vector<Var> decompose_shuffle(Rule& c) {
  const int64_t r = shuffle_factor(c, "upscale_factor");
  const Var x = c.in(0);
  Dims out = x.shape();
  const int n = out.size();
  const int64_t channels = out[n - 3] / (r * r), h = out[n - 2], w = out[n - 1];
  out[n - 3] = channels, out[n - 2] = h * r, out[n - 1] = w * r;
  return {shuffled(x, {channels, r, r, h, w}, {0, 3, 1, 4, 2}, out)};
}

std::vector<Var> decompose_unshuffle(Rule& c) {
  const int64_t r = shuffle_factor(c, "downscale_factor");
  const Var x = c.in(0);
  Dims out = x.shape();
  const int n = out.size();
  const int64_t channels = out[n - 3], h = out[n - 2] / r, w = out[n - 1] / r;
  out[n - 3] = channels * r * r, out[n - 2] = h, out[n - 1] = w;
  return {shuffled(x, {channels, h, r, w, r}, {0, 2, 4, 1, 3}, out)};
}

AttrDef factor_attr(const char* name) {
  return {name, AttrKind::kInt, {}, "the factor of height and width", false, 1, 1 << 15};
}

}  // namespace

void add_resample_ops(Registry& r) {
  const OpDef rows[] = {
      {.name = "interpolate",
       .doc =
           "x with its spatial dims resized to `size` or by `scale_factor`. linear is for 1 spatial dim, bilinear and "
           "bicubic are for 2, trilinear is for 3. area takes the mean of what a new element covers. bicubic is Keys, "
           "Cubic convolution interpolation for digital image processing, 1981, with a = -0.75.",
       .example = "return pg.interpolate(pg.ones(1, 1, 2, 2), {scale_factor = 2, mode = \"bilinear\"})",
       .inputs = {{"x", kFloating}},
       .attrs = {{"size", AttrKind::kInts, {}, "new spatial sizes", true, 1, 1 << 30},
                 {"scale_factor", AttrKind::kFloats, {}, "or the factors", true},
                 kMode,
                 kCorners},
       .infer = infer_interpolate,
       .decompose = decompose_interpolate,
       .traits = kWidens},
      {.name = "resample",
       .doc = "x with one dim resized.",
       .inputs = {{"x", kFloating}},
       .attrs = resample_attrs(),
       .infer = infer_resample,
       .vjp = {[](Vjp& c) { return resample_other_way(c, true); }},
       .vjp_uses = "",
       .traits = kHidden},
      {.name = "resample_backward",
       .doc = "The gradient of resample; `size` is that of its input.",
       .inputs = {{"dy", kFloating}},
       .attrs = resample_attrs(),
       .infer = infer_resample,
       .vjp = {[](Vjp& c) { return resample_other_way(c, false); }},
       .vjp_uses = "",
       .traits = kHidden},
      {.name = "pixel_shuffle",
       .doc = "(…, C r², H, W) rearranged to (…, C, H r, W r).",
       .example = "return pg.pixel_shuffle(pg.ones(1, 4, 2, 2), 2)",
       .inputs = {{"x"}},
       .attrs = {factor_attr("upscale_factor")},
       .infer = infer_shuffle,
       .decompose = decompose_shuffle},
      {.name = "pixel_unshuffle",
       .doc = "(…, C, H r, W r) rearranged to (…, C r², H, W).",
       .example = "return pg.pixel_unshuffle(pg.ones(1, 1, 4, 4), 2)",
       .inputs = {{"x"}},
       .attrs = {factor_attr("downscale_factor")},
       .infer = infer_unshuffle,
       .decompose = decompose_unshuffle},
  };
  r.add(rows);
}

}  // namespace pg
