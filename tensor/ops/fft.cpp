// Fourier transforms. There is no complex dtype: a complex tensor has a last dim of 2, real and imaginary parts, which
// `dim` does not count.
//
// Three linear ops along one dim compute all of them; each is the derivative of one of the three.
#include <cmath>

#include "tensor/ops/all.h"
#include "tensor/ops/fft_rules.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

constexpr uint16_t kReal = 1 << int(DType::kFloat32) | 1 << int(DType::kFloat64);

// --- The linear ops ---

Dims core_shape(Infer& c, bool complex) {
  Dims shape = c.shape(0);
  if (complex && (shape.size() < 2 || shape.back() != 2)) c.bad_input(0, "at least 2 dims, the last of size 2");
  if (complex) shape.pop_back();
  const int64_t d = c.attr<int64_t>("dim");
  if (d < 1 || d > shape.size() || shape[int(d) - 1] < 1) c.bad_attr("dim", "a dim with at least 1 element");
  return shape;
}

void infer_complex(Infer& c) {
  core_shape(c, true);
  c.output(c.dtype(0), c.shape(0));
}

void infer_real(Infer& c) {
  Dims out = core_shape(c, false);
  int64_t& n = out[int(c.attr<int64_t>("dim")) - 1];
  n = n / 2 + 1;
  out.push_back(2);
  c.output(c.dtype(0), out);
}

void infer_half(Infer& c) {
  Dims out = core_shape(c, true);
  const int64_t n = c.attr<int64_t>("n");
  int64_t& size = out[int(c.attr<int64_t>("dim")) - 1];
  if (size != n / 2 + 1) c.bad_attr("n", fmt::format("{} or {}", 2 * size - 2, 2 * size - 1));
  size = n;
  c.output(c.dtype(0), out);
}

Var grad_complex(Vjp& c) {
  return fft_complex(c.dy(), c.attr<int64_t>("dim"), !c.attr<bool>("inverse"), c.raw("scale"));
}

Var grad_real(Vjp& c) {
  const int64_t dim = c.attr<int64_t>("dim");
  return call_like<"fft_half">(c, {c.dy()}, {{"n", c.input(0).shape()[int(dim) - 1]}});
}

Var grad_half(Vjp& c) { return call_like<"fft_real">(c, {c.dy()}); }

std::vector<OpDef> core_rows() {
  const AttrDef dim = {"dim", AttrKind::kInt, {}, "the dim, from 1; the last dim of pairs does not count", false, 1};
  const AttrDef scale = {"scale", AttrKind::kFloat, 1.0, "a factor of the result"};
  const AttrDef doubled = {"doubled", AttrKind::kBool, false, "count the frequencies inside twice"};
  return {
      {.name = "fft_complex",
       .doc = "`scale` times the Fourier transform along one dim, or times the inverse one without its 1 / n.",
       .inputs = {{"x", kReal}},
       .attrs = {dim, {"inverse", AttrKind::kBool, false, "the sign of the exponent"}, scale},
       .infer = infer_complex,
       .vjp = {grad_complex},
       .vjp_uses = "",
       .traits = kHidden},
      {.name = "fft_real",
       .doc = "`scale` times the first n / 2 + 1 frequencies of the Fourier transform of real x along one dim.",
       .inputs = {{"x", kReal}},
       .attrs = {dim, scale, doubled},
       .infer = infer_real,
       .vjp = {grad_real},
       .vjp_uses = "",
       .traits = kHidden},
      {.name = "fft_half",
       .doc =
           "`scale` times the real part of the sum over the n / 2 + 1 frequencies k in x of x[k] exp(2 pi i j k / n). "
           "With `doubled` it is the inverse transform, without its 1 / n, of the spectrum of which x is one half.",
       .inputs = {{"x", kReal}},
       .attrs = {{"n", AttrKind::kInt, {}, "size of the result", false, 1}, dim, scale, doubled},
       .infer = infer_half,
       .vjp = {grad_half},
       .vjp_uses = "",
       .traits = kHidden},
  };
}

// --- The transforms of scripts ---

enum Kind { kForward, kInverse, kFromReal, kToReal };

bool is_inverse(Kind k) { return k == kInverse || k == kToReal; }

// Adds the dims and sizes that a transform works on: 0-based dims in order, and the sizes that x is cut or padded to;
// for kToReal the size of the last one is that of the result.
struct Transform {
  Dims dims, sizes;
  Dims shape;  // of x without pairs
};

Transform transform_of(const AttrReader& c, Kind kind, const Dims& x) {
  Transform t;
  t.shape = x;
  const bool complex = kind != kFromReal, one = c.op().attr_index("n") >= 0;
  if (complex && (x.size() < 2 || x.back() != 2))
    bad_argument(c.op().name, "x", "pairs (real, imaginary) in a last dim of 2", to_string(x));
  if (complex) t.shape.pop_back();
  const int rank = t.shape.size();
  if (rank == 0) bad_argument(c.op().name, "x", "at least 1 dim", "0");
  t.dims = one ? Dims{c.dim("dim", rank)} : reduced_dims(c, rank);
  const char* size_name = one ? "n" : "s";
  Ints given;
  if (c.has_attr(size_name)) given = one ? Ints{c.attr<int64_t>("n")} : c.attr<Ints>("s");
  if (!given.empty() && !c.has_attr("dim") && int(given.size()) < rank) {  // as many of the last dims
    t.dims = {};
    for (int d = rank - int(given.size()); d < rank; ++d) t.dims.push_back(d);
  }
  if (!given.empty() && int(given.size()) != t.dims.size())
    bad_argument(c.op().name, size_name, fmt::format("{} sizes, one a dim", t.dims.size()),
                 to_string(c.raw(size_name)));
  for (int i = 0; i < t.dims.size(); ++i) {
    const int64_t size = t.shape[int(t.dims[i])];
    const bool halves = kind == kToReal && i + 1 == t.dims.size();
    const int64_t n = !given.empty() ? given[size_t(i)] : halves ? 2 * (size - 1) : size;
    if (n < 1)
      bad_argument(c.op().name, !given.empty() ? size_name : "x",
                   fmt::format("at least 1 {} along dim {}", halves ? "result" : "element", t.dims[i] + 1),
                   to_string(x));
    t.sizes.push_back(n);
  }
  if (t.dims.empty()) bad_argument(c.op().name, "dim", "at least 1 dim", "none");
  return t;
}

template <Kind kind>
void infer_transform(Infer& c) {
  const Transform t = transform_of(c, kind, c.shape(0));
  Dims out = t.shape;
  for (int i = 0; i < t.dims.size(); ++i) out[int(t.dims[i])] = t.sizes[i];
  int64_t& last = out[int(t.dims.back())];
  if (kind == kFromReal) last = last / 2 + 1;
  if (kind != kToReal) out.push_back(2);
  c.output(float_result(c.dtype(0)), out);
}

double factor_of(const AttrReader& c, Kind kind, const Dims& sizes) {
  const std::string& norm = c.attr<std::string>("norm");
  double n = 1;
  for (int64_t size : sizes) n *= double(size);
  if (norm == "ortho") return 1 / std::sqrt(n);
  return (norm == "forward") == is_inverse(kind) ? 1 : 1 / n;
}

template <Kind kind>
std::vector<Var> decompose_transform(Rule& c) {
  const Transform t = transform_of(c, kind, c.input(0).shape());
  Var x = as_dtype(c.in(0), float_result(c.input(0).dtype()));
  const double factor = factor_of(c, kind, t.sizes);
  const int last = t.dims.size() - 1;
  for (int i = 0; i <= last; ++i)
    x = fitted(x, int(t.dims[i]), kind == kToReal && i == last ? t.sizes[i] / 2 + 1 : t.sizes[i]);
  if (kind == kFromReal) x = call<"fft_real">(x, {{"dim", user_dim(int(t.dims[last]))}, {"scale", factor}});
  const int complex = kind == kFromReal || kind == kToReal ? last : last + 1;
  for (int i = 0; i < complex; ++i)
    x = fft_complex(x, user_dim(int(t.dims[i])), is_inverse(kind), kind != kFromReal && i == 0 ? factor : 1.0);
  if (kind != kToReal) return {x};
  return {call<"fft_half">(x, {{"n", t.sizes[last]},
                               {"dim", user_dim(int(t.dims[last]))},
                               {"scale", last == 0 ? factor : 1.0},
                               {"doubled", true}})};
}

AttrDef norm_attr() {
  return {"norm",
          AttrKind::kString,
          std::string("backward"),
          "where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both",
          false,
          0,
          0,
          {"backward", "ortho", "forward"}};
}

template <Kind kind>
OpDef transform_row(const char* name, const char* doc, const char* example, std::vector<AttrDef> attrs) {
  attrs.push_back(norm_attr());
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kReal}},
          .attrs = std::move(attrs),
          .infer = infer_transform<kind>,
          .decompose = decompose_transform<kind>,
          .traits = kFunctionOnly};
}

constexpr double kMostElements = 1 << 30;

std::vector<AttrDef> one_dim() {
  return {{"n", AttrKind::kInt, {}, "x is cut or padded with zeros to this size", true, 1, kMostElements},
          {"dim", AttrKind::kDim, int64_t(-1), "the dim; a last dim of pairs does not count"}};
}
std::vector<AttrDef> dims(AttrValue fallback) {
  const bool all = fallback.index() == 0;
  return {{"s", AttrKind::kInts, {}, "x is cut or padded with zeros to these sizes", true, 1, kMostElements},
          {"dim", AttrKind::kDims, std::move(fallback), "the dims; a last dim of pairs does not count", all}};
}

std::vector<OpDef> transform_rows() {
  const Ints two = {-2, -1};
  return {
      transform_row<kForward>("fft_fft",
                              "The Fourier transform along a dim: y[k] is the sum over j of x[j] exp(-2 pi i j k / n). "
                              "x and y have a last dim of 2, (real, imaginary). For real x take pg.fft.rfft.",
                              "return pg.fft.fft(pg.tensor{{1, 0}, {0, 0}, {0, 0}})  -- fft_fft", one_dim()),
      transform_row<kInverse>("fft_ifft", "The inverse of pg.fft.fft.",
                              "return pg.fft.ifft(pg.tensor{{1, 0}, {1, 0}})  -- fft_ifft", one_dim()),
      transform_row<kFromReal>("fft_rfft",
                               "The frequencies 0 to n / 2 of the Fourier transform of real x along a dim, with a last "
                               "dim of 2, (real, imaginary). The others are their conjugates.",
                               "return pg.fft.rfft(pg.tensor{1, 2, 3, 4})  -- fft_rfft", one_dim()),
      transform_row<kToReal>("fft_irfft",
                             "The inverse of pg.fft.rfft: real numbers. n is 2 (size - 1) if it is not given.",
                             "return pg.fft.irfft(pg.fft.rfft(pg.tensor{1, 2, 3}), 3)  -- fft_irfft", one_dim()),
      transform_row<kForward>("fft_fft2", "pg.fft.fft along two dims.",
                              "return pg.fft.fft2(pg.ones(2, 3, 2))  -- fft_fft2", dims(two)),
      transform_row<kInverse>("fft_ifft2", "The inverse of pg.fft.fft2.",
                              "return pg.fft.ifft2(pg.ones(2, 3, 2))  -- fft_ifft2", dims(two)),
      transform_row<kFromReal>("fft_rfft2", "pg.fft.rfft along the last of two dims, then pg.fft.fft along the first.",
                               "return pg.fft.rfft2(pg.ones(2, 3))  -- fft_rfft2", dims(two)),
      transform_row<kToReal>("fft_irfft2", "The inverse of pg.fft.rfft2: real numbers.",
                             "return pg.fft.irfft2(pg.ones(2, 3, 2))  -- fft_irfft2", dims(two)),
      transform_row<kForward>("fft_fftn", "pg.fft.fft along all dims, or along those given.",
                              "return pg.fft.fftn(pg.ones(2, 3, 2))  -- fft_fftn", dims({})),
      transform_row<kInverse>("fft_ifftn", "The inverse of pg.fft.fftn.",
                              "return pg.fft.ifftn(pg.ones(2, 3, 2))  -- fft_ifftn", dims({})),
      transform_row<kFromReal>("fft_rfftn", "pg.fft.rfft along the last dim, then pg.fft.fft along the others.",
                               "return pg.fft.rfftn(pg.ones(2, 2, 3))  -- fft_rfftn", dims({})),
      transform_row<kToReal>("fft_irfftn", "The inverse of pg.fft.rfftn: real numbers.",
                             "return pg.fft.irfftn(pg.ones(2, 3, 2))  -- fft_irfftn", dims({})),
  };
}

// --- Shifts ---

// Returns the dims to shift, some perhaps several times.
Ints shifted_dims(const AttrReader& c, int rank) {
  if (!c.has_attr("dim") && rank > 1)
    bad_argument(c.op().name, "dim", "the dims of the frequencies; the last dim of a spectrum holds pairs", "nil");
  if (!c.has_attr("dim") || c.attr<Ints>("dim").empty()) return ints(c.dims("dim", rank));
  Ints dims = c.attr<Ints>("dim");
  for (int64_t& d : dims) d = dim_index(c.op().name, "dim", d, rank);
  return rank > 0 ? dims : Ints();
}

template <bool kBack>
std::vector<Var> decompose_fftshift(Rule& c) {
  const Var x = c.in(0);
  Ints dims = shifted_dims(c, x.rank()), shifts;
  if (dims.empty()) return {x};
  for (int64_t& d : dims) {
    shifts.push_back(kBack ? -(x.shape()[int(d)] / 2) : x.shape()[int(d)] / 2);
    d = user_dim(int(d));
  }
  return {call<"roll">(x, {{"shifts", shifts}, {"dims", dims}})};
}

template <bool kBack>
OpDef shift_row(const char* name, const char* doc, const char* example) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x"}},
          .attrs = {{"dim", AttrKind::kDims, {}, "the dims, counted as those of any tensor", true}},
          .infer =
              [](Infer& c) {
                shifted_dims(c, c.rank(0));
                c.output(c.dtype(0), c.shape(0));
              },
          .decompose = decompose_fftshift<kBack>,
          .traits = kFunctionOnly};
}

}  // namespace

Var fft_complex(const Var& x, int64_t dim, bool inverse, AttrValue scale) {
  return call<"fft_complex">(x, {{"dim", dim}, {"inverse", inverse}, {"scale", std::move(scale)}});
}

Var fitted(const Var& x, int d, int64_t n) {
  const int64_t size = x.shape()[d];
  if (n < size) return call<"narrow">(x, {{"dim", user_dim(d)}, {"start", int64_t(1)}, {"length", n}});
  if (n == size) return x;
  Ints widths(size_t(2 * (x.rank() - d)), 0);
  widths.back() = n - size;  // pairs of widths, those of the last dim first
  return call<"pad">(x, {{"pad", widths}});
}

void add_fft_ops(Registry& r) {
  r.add(core_rows());
  r.add(transform_rows());
  const OpDef rows[] = {
      shift_row<false>("fft_fftshift",
                       "x with frequency 0 in the middle of each dim. dim must be given if x has more than one.",
                       "return pg.fft.fftshift(pg.fft.fftfreq(4))  -- fft_fftshift"),
      shift_row<true>("fft_ifftshift", "The inverse of pg.fft.fftshift.",
                      "return pg.fft.ifftshift(pg.tensor{1, 2, 3})  -- fft_ifftshift"),
  };
  r.add(rows);
  add_window_ops(r);
  add_stft_ops(r);
}

}  // namespace pg
