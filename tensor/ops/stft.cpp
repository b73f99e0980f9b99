// The short-time Fourier transform and its inverse.
#include <cmath>

#include "tensor/ops/fft_rules.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

constexpr uint16_t kReal = 1 << int(DType::kFloat32) | 1 << int(DType::kFloat64);
constexpr double kLimit = 1 << 30;

// The lengths of frames, with their defaults, and whether there is a batch.
struct Frames {
  int64_t size, hop, window;
  bool onesided, normalized, batch;
  int64_t edge;  // elements before the first one
  int64_t bins() const { return onesided ? size / 2 + 1 : size; }
};

// `rank`: of x and without a batch.
Frames frames_of(const AttrReader& c, int x_rank, int rank) {
  Frames f{};
  f.size = c.attr<int64_t>("n_fft");
  f.hop = c.has_attr("hop_length") ? c.attr<int64_t>("hop_length") : std::max<int64_t>(1, f.size / 4);
  f.window = c.has_attr("win_length") ? c.attr<int64_t>("win_length") : f.size;
  f.onesided = c.attr<bool>("onesided"), f.normalized = c.attr<bool>("normalized");
  f.edge = c.attr<bool>("center") ? f.size / 2 : 0;
  f.batch = x_rank == rank + 1;
  return f;
}

Frames checked_frames(Infer& c, int rank) {
  const Frames f = frames_of(c, c.rank(0), rank);
  if (c.rank(0) != rank && !f.batch) c.bad_input(0, fmt::format("{} dims, or {} with a batch", rank, rank + 1));
  if (f.window > f.size) c.bad_attr("win_length", fmt::format("at most n_fft, {}", f.size));
  if (c.has(1) && !(c.shape(1) == Dims{f.window})) c.bad_input(1, fmt::format("{} elements", f.window));
  if (c.has(1) && c.dtype(1) != c.dtype(0)) c.bad_input(1, fmt::format("{} like x", name_of(c.dtype(0))));
  return f;
}

// The window (n_fft, 1) with zeros on both sides; undefined where it is 1.
Var frame_window(const Rule& c, const Frames& f) {
  if (!c.has(1) && f.window == f.size) return {};
  const int64_t left = (f.size - f.window) / 2;
  const Var x = c.in(0);
  const Var window =
      c.has(1) ? c.in(1) : call<"expand">(call<"ones_like">(call<"sum">(x)), {{"shape", Ints{f.window}}});
  return reshaped(call<"pad">(window, {{"pad", Ints{left, f.size - f.window - left}}}), {f.size, 1});
}

Var as_frames(const Var& rows, const Frames& f) {
  const Dims& s = rows.shape();
  return call<"unfold">(reshaped(rows, {s[0], 1, 1, s[1]}),
                        {{"kernel_size", Ints{1, f.size}}, {"stride", Ints{1, f.hop}}});
}

Var overlapped(const Var& frames, const Frames& f, int64_t total) {
  const Var y = call<"fold">(
      frames, {{"output_size", Ints{1, total}}, {"kernel_size", Ints{1, f.size}}, {"stride", Ints{1, f.hop}}});
  return reshaped(y, {y.shape()[0], total});
}

void infer_stft(Infer& c) {
  const Frames f = checked_frames(c, 1);
  const int64_t size = c.shape(0).back(), total = plus(size, 2 * f.edge);
  const bool reflects = f.edge > 0 && c.attr<std::string>("pad_mode") == "reflect";
  if (reflects && f.edge >= size) c.bad_input(0, fmt::format("more than {} elements to reflect", f.edge));
  if (total < f.size || size < 1)
    c.bad_input(0, fmt::format("at least {} elements", std::max<int64_t>(1, f.size - 2 * f.edge)));
  Dims out = {f.bins(), (total - f.size) / f.hop + 1, 2};
  if (f.batch) out.insert(0, c.shape(0)[0]);
  c.output(c.dtype(0), out);
}

std::vector<Var> decompose_stft(Rule& c) {
  const Frames f = frames_of(c, c.input(0).rank(), 1);
  Var x = c.in(0);
  if (!f.batch) x = reshaped(x, {1, x.shape()[0]});
  if (f.edge > 0) x = call<"pad">(x, {{"pad", Ints{f.edge, f.edge}}, {"mode", c.raw("pad_mode")}});
  Var frames = as_frames(x, f);
  const Var window = frame_window(c, f);
  if (window.defined()) frames = frames * window;
  const double scale = f.normalized ? 1 / std::sqrt(double(f.size)) : 1;
  Var y;
  if (f.onesided) {
    y = call<"fft_real">(frames, {{"dim", int64_t(2)}, {"scale", scale}});
  } else {
    const std::vector<Var> pair = {frames, call<"zeros_like">(frames)};
    y = fft_complex(call_list<"stack">(pair, {{"dim", int64_t(-1)}}), 2, false, scale);
  }
  if (f.batch) return {y};
  return {reshaped(y, {y.shape()[1], y.shape()[2], 2})};
}

// The first element of the result among those that the frames cover, and the size of the result.
struct Span {
  int64_t total, start, size;
};

Span span_of(const AttrReader& c, const Frames& f, int64_t count) {
  const int64_t total = plus(f.size, times(f.hop, count - 1));
  return {total, f.edge, c.has_attr("length") ? c.attr<int64_t>("length") : total - 2 * f.edge};
}

void infer_istft(Infer& c) {
  const Frames f = checked_frames(c, 3);
  const Dims& x = c.shape(0);
  const int n = x.size();
  if (x[n - 1] != 2 || x[n - 3] != f.bins() || x[n - 2] < 1)
    c.bad_input(0, fmt::format("{} frequencies of at least 1 frame of pairs (real, imaginary)", f.bins()));
  const Span span = span_of(c, f, x[n - 2]);
  if (span.size < 1) c.bad_input(0, "more frames: the result would be empty");
  Dims out = {span.size};
  if (f.batch) out.insert(0, x[0]);
  c.output(c.dtype(0), out);
}

std::vector<Var> decompose_istft(Rule& c) {
  const Frames f = frames_of(c, c.input(0).rank(), 3);
  Var x = c.in(0);
  if (!f.batch) x = reshaped(x, {1, x.shape()[0], x.shape()[1], 2});
  const int64_t count = x.shape()[2];
  const Span span = span_of(c, f, count);
  const double scale = f.normalized ? 1 / std::sqrt(double(f.size)) : 1 / double(f.size);
  x = fitted(x, 1, f.size / 2 + 1);  // the other half is that of a real signal
  Var frames = call<"fft_half">(x, {{"n", f.size}, {"dim", int64_t(2)}, {"scale", scale}, {"doubled", true}});
  Var weight = frame_window(c, f);
  if (weight.defined()) frames = frames * weight;
  if (!weight.defined()) weight = call<"ones_like">(call<"sum">(x));
  const Var squares = call<"expand">(weight * weight, {{"shape", Ints{1, f.size, count}}});
  const int64_t have = std::min(span.size, span.total - span.start);
  const AttrList part = {{"dim", int64_t(2)}, {"start", span.start + 1}, {"length", have}};
  const Var y = call<"narrow">(overlapped(frames, f, span.total), part) /
                call<"narrow">(overlapped(squares, f, span.total), part);
  return {f.batch ? fitted(y, 1, span.size) : fitted(reshaped(y, {have}), 0, span.size)};
}

AttrDef flag(const char* name, bool fallback, const char* doc) { return {name, AttrKind::kBool, fallback, doc}; }

std::vector<AttrDef> frame_attrs(AttrDef last) {
  std::vector<AttrDef> out = {
      {"n_fft", AttrKind::kInt, {}, "the size of a frame", false, 1, kLimit},
      {"hop_length", AttrKind::kInt, {}, "the distance between frames; n_fft / 4 if nil", true, 1, kLimit},
      {"win_length", AttrKind::kInt, {}, "the size of the window, which zeros surround; n_fft if nil", true, 1, kLimit},
      flag("center", true, "whether the frames are centered at their elements, with padding at both ends"),
      flag("normalized", false, "with a factor 1 / sqrt(n_fft)"),
      flag("onesided", true, "the frequencies 0 to n_fft / 2 only")};
  out.push_back(std::move(last));
  return out;
}

}  // namespace

void add_stft_ops(Registry& r) {
  const InputDef window = {"window", kReal, Arity::kOptional, 0.5, 1, "factors of a frame; ones without"};
  const AttrDef pad_mode = {"pad_mode",
                            AttrKind::kString,
                            std::string("reflect"),
                            "the padding of `center`",
                            false,
                            0,
                            0,
                            {"reflect", "constant", "replicate"}};
  const AttrDef length = {"length", AttrKind::kInt, {}, "the size of the result", true, 1, kLimit};
  const OpDef rows[] = {
      {.name = "stft",
       .doc = "The Fourier transforms of overlapping frames of x (size) or (batch, size): (frequencies, frames, 2), "
              "with a batch if x has one. The last dim is (real, imaginary).",
       .example = "return pg.stft(pg.ones(16), 8, {window = pg.hann_window(8)})",
       .inputs = {{"x", kReal}, window},
       .attrs = frame_attrs(pad_mode),
       .signature = "x n_fft hop_length win_length window center pad_mode normalized onesided",
       .infer = infer_stft,
       .decompose = decompose_stft},
      {.name = "istft",
       .doc = "The inverse of stft: the signal whose frames have the spectra x (frequencies, frames, 2) best, in the "
              "sense "
              "of least squares (Griffin and Lim, Signal estimation from modified short-time Fourier transform, 1984). "
              "Elements at which all windows are 0 are NaN.",
       .example = "return pg.istft(pg.stft(pg.ones(16), 8), 8)",
       .inputs = {{"x", kReal}, window},
       .attrs = frame_attrs(length),
       .signature = "x n_fft hop_length win_length window center normalized onesided length",
       .infer = infer_istft,
       .decompose = decompose_istft},
  };
  r.add(rows);
}

}  // namespace pg
