// Window functions of spectral analysis, and the frequencies of transforms.
#include "tensor/ops/create_rules.h"
#include "tensor/ops/fft_rules.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

AttrDef count_attr(int64_t least) { return {"n", AttrKind::kInt, {}, "how many", false, double(least), 1 << 30}; }

void infer_row(Infer& c, int64_t n) {
  if (!is_float(c.attr<DType>("dtype"))) c.bad_attr("dtype", "a floating dtype");
  c.outputs.push_back(Type{c.attr<DType>("dtype"), c.attr<Device>("device"), {n}});
}

// 0 to n - 1 in float64.
Var counted(const Rule& c, int64_t n) {
  const OpDef& op = op_named<"range">();
  return c.wrap(apply(c.context(), op, std::span<Value>(),
                      make_attrs(op, {{"start", 0.0},
                                      {"stop", double(n - 1)},
                                      {"dtype", DType::kFloat64},
                                      {"device", c.attr<Device>("device")}}))[0]);
}

Var in_dtype(const Rule& c, const Var& v) { return as_dtype(v, c.attr<DType>("dtype")); }

void infer_window(Infer& c) { infer_row(c, c.attr<int64_t>("n")); }

// Cosine sums a0 - a1 cos(u) + a2 cos(2 u). Harris, On the use of windows for harmonic analysis with the discrete
// Fourier transform, 1978.
template <int kA0, int kA1, int kA2>
std::vector<Var> decompose_window(Rule& c) {
  const int64_t n = c.attr<int64_t>("n"), steps = c.attr<bool>("periodic") ? n : n - 1;
  const Var at = counted(c, n);
  if (n <= 1) return {in_dtype(c, at + 1.0)};
  const Var u = at * (kTwoPi / double(steps));
  Var y = kA0 / 100.0 - call<"cos">(u) * (kA1 / 100.0);
  if (kA2 > 0) y = y + call<"cos">(u * 2.0) * (kA2 / 100.0);
  return {in_dtype(c, y)};
}

template <int kA0, int kA1, int kA2>
OpDef window_row(const char* name, const char* doc, const char* example) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {},
          .attrs = {count_attr(0),
                    {"periodic", AttrKind::kBool, true, "of a period n; else symmetric"},
                    dtype_attr(),
                    device_attr()},
          .infer = infer_window,
          .decompose = decompose_window<kA0, kA1, kA2>,
          .traits = kNoGrad | kFunctionOnly};
}

AttrDef spacing() { return {"d", AttrKind::kFloat, 1.0, "the time between two elements"}; }

std::vector<Var> decompose_fftfreq(Rule& c) {
  const int64_t n = c.attr<int64_t>("n"), half = n / 2;
  const Var turned = call<"remainder">(counted(c, n) + double(half), double(n)) - double(half);
  return {in_dtype(c, turned / (double(n) * c.attr<double>("d")))};
}

std::vector<Var> decompose_rfftfreq(Rule& c) {
  const int64_t n = c.attr<int64_t>("n");
  return {in_dtype(c, counted(c, n / 2 + 1) / (double(n) * c.attr<double>("d")))};
}

}  // namespace

void add_window_ops(Registry& r) {
  const OpDef rows[] = {
      window_row<50, 50, 0>("hann_window", "The Hann window of n elements: 0.5 - 0.5 cos(2 pi j / n).",
                            "return pg.hann_window(4)"),
      window_row<54, 46, 0>("hamming_window", "The Hamming window of n elements: 0.54 - 0.46 cos(2 pi j / n).",
                            "return pg.hamming_window(4)"),
      window_row<42, 50, 8>("blackman_window",
                            "The Blackman window of n elements: 0.42 - 0.5 cos(2 pi j / n) + 0.08 cos(4 pi j / n).",
                            "return pg.blackman_window(4)"),
      {.name = "fft_fftfreq",
       .doc = "The frequencies of the elements of pg.fft.fft of n elements a time d apart, the negative ones last.",
       .example = "return pg.fft.fftfreq(4)  -- fft_fftfreq",
       .inputs = {},
       .attrs = {count_attr(1), spacing(), dtype_attr(), device_attr()},
       .infer = infer_window,
       .decompose = decompose_fftfreq,
       .traits = kNoGrad | kFunctionOnly},
      {.name = "fft_rfftfreq",
       .doc = "The frequencies of the elements of pg.fft.rfft of n elements a time d apart.",
       .example = "return pg.fft.rfftfreq(4)  -- fft_rfftfreq",
       .inputs = {},
       .attrs = {count_attr(1), spacing(), dtype_attr(), device_attr()},
       .infer = [](Infer& c) { infer_row(c, c.attr<int64_t>("n") / 2 + 1); },
       .decompose = decompose_rfftfreq,
       .traits = kNoGrad | kFunctionOnly},
  };
  r.add(rows);
}

}  // namespace pg
