// Sampling of images and volumes at given points (Jaderberg et al., Spatial transformer networks, 2015).
//
// Each point reads `taps` elements per spatial dim, with a weight for each. sample_points and its two derivatives are
// the partial derivatives of one trilinear form in image, weights and cotangent, so they are closed under
// differentiation. The positions of the taps have no derivative; the weights are made with ops.
#include "tensor/ops/conv_rules.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/ops/sample_rules.h"

namespace pg {
namespace {

constexpr uint16_t kComputed = 1 << int(DType::kFloat32) | 1 << int(DType::kFloat64);
constexpr uint16_t kPlaces = 1 << int(DType::kInt32);
const AttrDef kPaddingMode = {"padding_mode",
                              AttrKind::kString,
                              std::string("zeros"),
                              "what lies outside",
                              false,
                              0,
                              0,
                              {"zeros", "border", "reflection"}};
const AttrDef kCorners = {"align_corners", AttrKind::kBool, false,
                          "-1 and 1 are the centers of the first and last elements, not their edges"};

// --- The bilinear core ---

void require_sizes(Infer& c, size_t i, std::initializer_list<int64_t> sizes) {
  const Dims wanted(sizes);
  bool fits = c.rank(i) == wanted.size();
  for (int d = 0; fits && d < wanted.size(); ++d) fits = wanted[d] < 0 || c.shape(i)[d] == wanted[d];
  if (!fits) c.bad_input(i, "(batch, channels or taps, positions) like the other inputs");
}

void require_kind(Infer& c, size_t i) {
  if (c.has(i) && c.dtype(i) != c.dtype(0)) c.bad_input(i, fmt::format("{}", name_of(c.dtype(0))));
}

void infer_sample(Infer& c) {
  require_sizes(c, 0, {-1, -1, -1});
  require_sizes(c, 1, {c.shape(0)[0], -1, -1});
  if (c.has(2) && !(c.shape(2) == c.shape(1))) c.bad_input(2, "the shape of index, " + to_string(c.shape(1)));
  require_kind(c, 2);
  c.output(c.dtype(0), {c.shape(0)[0], c.shape(0)[1], c.shape(1)[2]});
}

void infer_sample_back(Infer& c) {
  require_sizes(c, 0, {-1, -1, -1});
  require_sizes(c, 1, {c.shape(0)[0], -1, c.shape(0)[2]});
  if (c.has(2) && !(c.shape(2) == c.shape(1))) c.bad_input(2, "the shape of index, " + to_string(c.shape(1)));
  require_kind(c, 2);
  c.output(c.dtype(0), {c.shape(0)[0], c.shape(0)[1], c.attr<int64_t>("size")});
}

void infer_sample_weight(Infer& c) {
  require_sizes(c, 0, {-1, -1, -1});
  require_sizes(c, 1, {c.shape(0)[0], c.shape(0)[1], -1});
  require_sizes(c, 2, {c.shape(0)[0], -1, c.shape(0)[2]});
  require_kind(c, 1);
  c.output(c.dtype(0), c.shape(2));
}

Var sample(const Var& x, const Var& index, const Var& weight) { return call<"sample_points">({x, index, weight}, {}); }
Var sample_back(const Var& dy, const Var& index, const Var& weight, int64_t size) {
  return call<"sample_points_back">({dy, index, weight}, {{"size", size}});
}
Var sample_weight(const Var& dy, const Var& x, const Var& index) { return call<"sample_points_weight">(dy, x, index); }

std::vector<OpDef> core_rows() {
  const InputDef index = {"index", kPlaces}, weight = {"weight", kComputed, Arity::kOptional};
  return {
      {.name = "sample_points",
       .doc =
           "For x (batch, channels, positions): the sum over taps of weight (batch, taps, points; 1 if absent) times "
           "the element of x at index, counted from 0. Index -1 reads 0.",
       .inputs = {{"x", kComputed}, index, weight},
       .infer = infer_sample,
       .vjp = {[](Vjp& c) { return sample_back(c.dy(), c.in(1), c.in(2), c.input(0).shape()[2]); }, nullptr,
               [](Vjp& c) { return sample_weight(c.dy(), c.in(0), c.in(1)); }},
       .traits = kHidden},
      {.name = "sample_points_back",
       .doc = "The derivative of sample_points for x, which has `size` positions.",
       .inputs = {{"dy", kComputed}, index, weight},
       .attrs = {{"size", AttrKind::kInt, {}, "positions of x", false, 0}},
       .infer = infer_sample_back,
       .vjp = {[](Vjp& c) { return sample(c.dy(), c.in(1), c.in(2)); }, nullptr,
               [](Vjp& c) { return sample_weight(c.in(0), c.dy(), c.in(1)); }},
       .traits = kHidden},
      {.name = "sample_points_weight",
       .doc = "The derivative of sample_points for weight: the sum over channels of dy times the elements of x.",
       .inputs = {{"dy", kComputed}, {"x", kComputed}, index},
       .infer = infer_sample_weight,
       .vjp = {[](Vjp& c) { return sample(c.in(1), c.in(2), c.dy()); },
               [](Vjp& c) { return sample_back(c.in(0), c.in(2), c.dy(), c.input(1).shape()[2]); }, nullptr},
       .traits = kHidden},
  };
}

void infer_sample_taps(Infer& c) {
  const Ints& size = c.attr<Ints>("size");
  if (size.empty() || size.size() > 3 || size.size() != c.count()) c.bad_attr("size", "one size a coordinate, 1 to 3");
  int64_t plane = 1, taps = 1;
  for (int64_t n : size) plane = times(plane, n), taps *= c.attr<int64_t>("taps");
  if (plane > INT32_MAX) c.bad_attr("size", "fewer than 2^31 elements");
  for (size_t i = 0; i < c.count(); ++i)
    if (c.rank(i) != 2 || !(c.shape(i) == c.shape(0)) || c.dtype(i) != c.dtype(0))
      c.bad_input(i, "coordinates (batch, points)");
  c.output(DType::kInt32, {c.shape(0)[0], taps, c.shape(0)[1]});
}

// --- grid_sample ---

void infer_grid_sample(Infer& c) {
  const int dims = c.rank(0) - 2;
  if (dims != 2 && dims != 3) c.bad_input(0, "4 or 5 dims (batch, channels, spatial)");
  const Dims &x = c.shape(0), &grid = c.shape(1);
  if (grid.size() != x.size() || grid.back() != dims || grid[0] != x[0])
    c.bad_input(1, fmt::format("{} dims: batch {}, {} spatial, and {} coordinates", dims + 2, x[0], dims, dims));
  if (c.dtype(1) != c.dtype(0)) c.bad_input(1, fmt::format("{} like x", name_of(c.dtype(0))));
  if (dims == 3 && c.attr<std::string>("mode") == "bicubic") c.bad_attr("mode", "bilinear or nearest for 5 dims");
  Dims out = {x[0], x[1]};
  for (int d = 0; d < dims; ++d) {
    if (x[d + 2] < 1) c.bad_input(0, "at least 1 element in every spatial dim");
    out.push_back(grid[d + 1]);
  }
  c.output(c.dtype(0), out);
}

// Limits v to [0, last]; NaN gives 0. The gradient is 0 at the ends, as in PyTorch.
Var clipped(const Var& v, double last) {
  const Var above = call<"where">(call<"gt">(v, 0.0), v, 0.0);
  return call<"where">(call<"lt">(above, last), above, last);
}

// Reflects v at the centers of the first and last elements, or at their outer edges.
Var reflected(const Var& v, double size, bool corners) {
  const double low = corners ? 0 : -0.5, span = corners ? size - 1 : size;
  if (span == 0) return v * 0.0;
  const Var phase = call<"remainder">(v - low, 2 * span);
  return Var(span + low) - call<"abs">(phase - span);
}

// The element number at a coordinate in [-1, 1].
Var unnormalized(const Rule& c, const Var& g, double size) {
  return c.attr<bool>("align_corners") ? (g + 1.0) * ((size - 1) / 2) : g * (size / 2) + (size - 1) / 2;
}

Var padded(const Rule& c, Var v, double size) {
  const std::string& mode = c.attr<std::string>("padding_mode");
  if (mode == "zeros") return v;
  if (mode == "reflection") v = reflected(v, size, c.attr<bool>("align_corners"));
  return clipped(v, size - 1);
}

// Weights (batch, taps, points) of the taps of one dim, for points a share t behind the tap before them. Keys, Cubic
// convolution interpolation for digital image processing, 1981, with a = -0.75.
Var tap_weights(const Var& t, bool cubic) {
  const AttrList stacked = {{"dim", int64_t(2)}};
  const Var s = 1.0 - t;
  if (!cubic) return call_list<"stack">(std::vector<Var>{s, t}, stacked);
  constexpr double a = -0.75;
  const auto near = [](const Var& u) { return (u * (a + 2) - (a + 3)) * u * u + 1.0; };
  const auto far = [](const Var& u) { return u * (1.0 - u) * (1.0 - u) * a; };  // u: distance - 1, reversed
  return call_list<"stack">(std::vector<Var>{far(t), near(t), near(s), far(s)}, stacked);
}

// Weights of all pairs of a tap of `outer` and a tap of `inner`.
Var joint_weights(const Var& outer, const Var& inner) {
  const int64_t batch = outer.shape()[0], count = outer.shape()[2], a = outer.shape()[1], b = inner.shape()[1];
  return with_shape(with_shape(outer, {batch, a, 1, count}) * with_shape(inner, {batch, 1, b, count}),
                    {batch, a * b, count});
}

std::vector<Var> decompose_grid_sample(Rule& c) {
  const Var x = c.in(0), grid = c.in(1);
  const Dims &shape = x.shape(), &points = grid.shape();
  const int dims = x.rank() - 2;
  const std::string& mode = c.attr<std::string>("mode");
  const bool cubic = mode == "bicubic", nearest = mode == "nearest";
  int64_t plane = 1, count = 1;
  for (int d = 0; d < dims; ++d) plane *= shape[d + 2], count = times(count, points[d + 1]);
  std::vector<Var> coordinates;
  Var weight;
  for (int d = 0; d < dims; ++d) {
    const double size = double(shape[d + 2]);
    const Var given = call<"select">(grid, {{"dim", int64_t(-1)}, {"index", int64_t(dims - d)}});
    Var at = unnormalized(c, with_shape(given, {points[0], count}), size);
    if (!cubic) at = padded(c, at, size);
    const Var start = call<"detach">(nearest ? call<"round">(at) : call<"floor">(at));
    coordinates.push_back(start);
    if (nearest) continue;
    const Var own = tap_weights(at - start, cubic);
    weight = weight.defined() ? joint_weights(weight, own) : own;
  }
  const Var index = call_list<"sample_taps">(coordinates, {{"size", Ints(shape.begin() + 2, shape.end())},
                                                           {"taps", int64_t(cubic     ? 4
                                                                            : nearest ? 1
                                                                                      : 2)},
                                                           {"padding_mode", c.raw("padding_mode")},
                                                           {"align_corners", c.raw("align_corners")}});
  Dims out = {shape[0], shape[1]};
  for (int d = 0; d < dims; ++d) out.push_back(points[d + 1]);
  return {with_shape(sample(with_shape(x, {shape[0], shape[1], plane}), index, weight), out)};
}

// --- affine_grid ---

void infer_affine_grid(Infer& c) {
  const Ints& size = c.attr<Ints>("size");
  const int dims = int(size.size()) - 2;
  if (dims != 2 && dims != 3) c.bad_attr("size", "4 or 5 sizes (batch, channels, spatial)");
  for (int64_t n : size)
    if (n < 1) c.bad_attr("size", "sizes of at least 1");
  if (!(c.shape(0) == Dims{size[0], dims, dims + 1}))
    c.bad_input(0, fmt::format("matrices {}", to_string(Dims{size[0], dims, dims + 1})));
  Dims out = {size[0]};
  for (int d = 0; d < dims; ++d) out.push_back(size[size_t(d + 2)]);
  out.push_back(dims);
  c.output(c.dtype(0), out);
}

// The coordinates of n elements.
Var element_coordinates(const Rule& c, const Var& like, int64_t n, bool corners) {
  const double end = n == 1 ? 0 : corners ? 1 : double(n - 1) / double(n);
  const OpDef& op = op_named<"linspace">();
  return c.wrap(apply(c.context(), op, std::span<Value>(),
                      make_attrs(op, {{"start", -end},
                                      {"stop", end},
                                      {"steps", n},
                                      {"dtype", like.dtype()},
                                      {"device", like.value().device()}}))[0]);
}

std::vector<Var> decompose_affine_grid(Rule& c) {
  const Var theta = c.in(0);
  const Ints& size = c.attr<Ints>("size");
  const int dims = int(size.size()) - 2;
  Dims column(dims + 2, 1);
  column[0] = size[0], column[dims + 1] = dims;
  const auto of = [&](int j) {  // column j of the matrices
    return with_shape(call<"select">(theta, {{"dim", int64_t(3)}, {"index", user_dim(j)}}), column);
  };
  Var out = of(dims);
  for (int j = dims - 1; j >= 0; --j) {  // coordinate j runs along spatial dim dims - 1 - j
    const int d = dims - 1 - j;
    Dims along(dims + 2, 1);
    along[d + 1] = size[size_t(d + 2)];
    const Var place = element_coordinates(c, theta, along[d + 1], c.attr<bool>("align_corners"));
    out = of(j) * with_shape(place, along) + out;
  }
  return {out};
}

}  // namespace

Var sample_bilinear(const Var& x, const Var& rows, const Var& columns, const Var& factor) {
  const Dims& s = x.shape();
  const Var top = call<"detach">(call<"floor">(rows)), left = call<"detach">(call<"floor">(columns));
  Var weight = joint_weights(tap_weights(rows - top, false), tap_weights(columns - left, false));
  if (factor.defined()) weight = weight * factor;
  const Var index = call_list<"sample_taps">(std::vector<Var>{top, left}, {{"size", Ints{s[2], s[3]}}});
  return sample(with_shape(x, {s[0], s[1], s[2] * s[3]}), index, weight);
}

void add_grid_ops(Registry& r) {
  r.add(core_rows());
  const OpDef rows[] = {
      {.name = "sample_taps",
       .doc = "The flat positions, from 0, of the elements that points with the given coordinates read: `taps` per dim "
              "from the coordinate rounded down on, or from one before it with 4 taps. -1 marks elements outside; "
              "padding_mode changes them with 4 taps only.",
       .inputs = {{"coordinates", kComputed, Arity::kList}},
       .attrs = {{"size", AttrKind::kInts, {}, "spatial sizes", false, 1, INT32_MAX},
                 {"taps", AttrKind::kInt, int64_t(2), "elements per dim", false, 1, 4},
                 kPaddingMode,
                 kCorners},
       .infer = infer_sample_taps,
       .traits = kHidden | kNoGrad},
      {.name = "grid_sample",
       .doc =
           "x (batch, channels, height, width) read at the points of grid (batch, out height, out width, 2), whose "
           "last dim is a column and a row from -1 to 1; or with a depth as well, which comes last in grid and first "
           "in x. bicubic is for images only. Jaderberg et al., Spatial transformer networks, "
           "2015.",
       .example = "local grid = pg.affine_grid(pg.tensor{{{1, 0, 0}, {0, 1, 0}}}, {1, 1, 2, 2})\n"
                  "return pg.ones(1, 1, 4, 4):grid_sample(grid)",
       .inputs = {{"x", kFloating}, {"grid", kFloating, Arity::kOne, -1, 1}},
       .attrs = {{"mode",
                  AttrKind::kString,
                  std::string("bilinear"),
                  "how elements between others arise",
                  false,
                  0,
                  0,
                  {"bilinear", "nearest", "bicubic"}},
                 kPaddingMode,
                 kCorners},
       .infer = infer_grid_sample,
       .decompose = decompose_grid_sample,
       .traits = kWidens},
      {.name = "affine_grid",
       .doc =
           "The grid for grid_sample that moves each output point by the matrix theta (batch, 2, 3), or (batch, 3, 4) "
           "for volumes. size: batch, channels and spatial sizes of the output.",
       .example = "return pg.affine_grid(pg.tensor{{{1, 0, 0}, {0, 1, 0}}}, {1, 1, 2, 2}, {align_corners = true})",
       .inputs = {{"theta", kFloating}},
       .attrs = {{"size", AttrKind::kInts, {}, "batch, channels and spatial sizes", false, 0, 1 << 30}, kCorners},
       .infer = infer_affine_grid,
       .decompose = decompose_affine_grid,
       .traits = kWidens},
  };
  r.add(rows);
}

}  // namespace pg
