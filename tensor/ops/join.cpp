// Ops that concatenate, repeat, reorder or pad.
#include <algorithm>

#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {
namespace {

DType promoted(const Infer& c) {
  if (c.count() == 0) bad_argument(c.op().name, c.op().inputs[0].name, "at least one tensor", "none");
  DType dtype = c.dtype(0);
  for (size_t i = 1; i < c.count(); ++i) dtype = promote(dtype, c.dtype(i));
  return dtype;
}

void infer_cat(Infer& c) {
  const DType dtype = promoted(c);
  Dims out = c.shape(0);
  if (out.empty()) c.bad_input(0, "tensors of at least 1 dim (stack joins 0-dim ones)");
  const int d = c.dim("dim", out.size());
  for (size_t i = 1; i < c.count(); ++i) {
    Dims rest = c.shape(i);
    if (rest.size() != out.size()) c.bad_input(i, fmt::format("{} dims like the first", out.size()));
    rest[d] = out[d];
    if (!(rest == out)) {
      rest = out;
      rest[d] = -1;
      c.bad_input(i, "sizes like the first but for dim " + std::to_string(d + 1) + ", " + to_string(c.shape(0)));
    }
    out[d] = plus(out[d], c.shape(i)[d]);
  }
  c.output(dtype, out);
}

void infer_stack(Infer& c) {
  const DType dtype = promoted(c);
  Dims out = c.shape(0);
  for (size_t i = 1; i < c.count(); ++i)
    if (!(c.shape(i) == out)) c.bad_input(i, "the shape of the first, " + to_string(out));
  out.insert(c.dim("dim", out.size() + 1), int64_t(c.count()));
  c.output(dtype, out);
}

void grad_cat(Vjp& c) {
  const int d = c.dim("dim", c.input(0).rank());
  int64_t at = 0;
  for (size_t i = 0; i < c.count(); ++i) {
    const int64_t size = c.input(i).shape()[d];
    if (c.needs(i)) c.set(i, call<"narrow">(c.dy(), {{"dim", user_dim(d)}, {"start", at + 1}, {"length", size}}));
    at += size;
  }
}

void grad_stack(Vjp& c) {
  const int d = c.dim("dim", c.input(0).rank() + 1);
  for (size_t i = 0; i < c.count(); ++i)
    if (c.needs(i)) c.set(i, call<"select">(c.dy(), {{"dim", user_dim(d)}, {"index", int64_t(i + 1)}}));
}

// The counts of tile, aligned with the dims of the result.
Dims tile_counts(const AttrReader& c, int rank) {
  Dims counts{std::span<const int64_t>(c.attr<Ints>("dims"))};
  for (int64_t n : counts)
    if (n < 0) bad_argument(c.op().name, "dims", "counts that are not negative", to_string(c.raw("dims")));
  while (counts.size() < rank) counts.insert(0, 1);
  return counts;
}

void infer_tile(Infer& c) {
  Dims out = tile_counts(c, c.rank(0));
  const int extra = out.size() - c.rank(0);
  for (int i = extra; i < out.size(); ++i) out[i] = times(out[i], c.shape(0)[i - extra]);
  c.output(c.dtype(0), out);
}

// Expands every repeated dim to two, the count and the size, and merges them again.
std::vector<Var> decompose_tile(Rule& c) {
  const Dims& x = c.input(0).shape();
  const Dims counts = tile_counts(c, x.size());
  const int extra = counts.size() - x.size();
  Ints apart, wide, out;
  for (int i = 0; i < counts.size(); ++i) {
    const int64_t size = i < extra ? 1 : x[i - extra];
    out.push_back(counts[i] * size);
    if (counts[i] != 1 && size != 1) {
      apart.push_back(1);
      wide.push_back(counts[i]);
    }
    apart.push_back(size);
    wide.push_back(size == 1 ? counts[i] : size);
  }
  return {call<"reshape_to">(call<"expand">(call<"reshape_to">(c.in(0), {{"shape", apart}}), {{"shape", wide}}),
                             {{"shape", out}})};
}

// The shape that repeat_interleave works on: x, or flattened x when `dim` is absent.
Dims repeat_shape(const AttrReader& c, const Dims& x, int* d) {
  *d = 0;
  if (!c.has_attr("dim")) return {numel(x)};
  if (x.empty()) return {1};
  *d = c.dim("dim", x.size());
  return x;
}

void infer_repeat(Infer& c) {
  int d;
  Dims out = repeat_shape(c, c.shape(0), &d);
  const Ints& repeats = c.attr<Ints>("repeats");
  if (repeats.size() != 1 && int64_t(repeats.size()) != out[d])
    c.bad_attr("repeats", fmt::format("one count, or one for each of the {} positions", out[d]));
  int64_t total = 0;
  for (int64_t n : repeats) {
    if (n < 0) c.bad_attr("repeats", "counts that are not negative");
    total = plus(total, n);
  }
  out[d] = repeats.size() == 1 ? times(out[d], total) : total;
  c.output(c.dtype(0), out);
}

Var repeat_each(const Var& x, int d, int64_t count) {
  Ints apart = ints(x.shape()), wide = apart, out = apart;
  apart.insert(apart.begin() + d + 1, 1);
  wide.insert(wide.begin() + d + 1, count);
  out[size_t(d)] *= count;
  return call<"reshape_to">(call<"expand">(call<"reshape_to">(x, {{"shape", apart}}), {{"shape", wide}}),
                            {{"shape", out}});
}

std::vector<Var> decompose_repeat(Rule& c) {
  int d;
  const Dims shape = repeat_shape(c, c.input(0).shape(), &d);
  const Var x = shape == c.input(0).shape() ? c.in(0) : call<"reshape_to">(c.in(0), {{"shape", ints(shape)}});
  const Ints& repeats = c.attr<Ints>("repeats");
  if (repeats.size() == 1) return {repeat_each(x, d, repeats[0])};
  std::vector<Var> pieces;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const Var piece = call<"narrow">(x, {{"dim", user_dim(d)}, {"start", int64_t(i + 1)}, {"length", int64_t(1)}});
    pieces.push_back(repeat_each(piece, d, repeats[i]));
  }
  return {pieces.empty() ? x : call_list<"cat">(pieces, {{"dim", user_dim(d)}})};
}

void infer_same(Infer& c) { c.output(c.dtype(0), c.shape(0)); }

void infer_flip(Infer& c) {
  if (c.rank(0) > 0) c.dims("dims", c.rank(0));
  infer_same(c);
}

void infer_roll(Infer& c) {
  const Ints& dims = c.attr<Ints>("dims");
  for (int64_t d : dims) dim_index(c.op().name, "dims", d, c.rank(0));
  if (c.attr<Ints>("shifts").size() != std::max<size_t>(dims.size(), 1))
    c.bad_attr("shifts", dims.empty() ? "one shift where dims are not given" : "one shift per dim");
  infer_same(c);
}

Var grad_roll(Vjp& c) {
  Ints back = c.attr<Ints>("shifts");
  for (int64_t& s : back) s = s == INT64_MIN ? s : -s;
  return call<"roll">(c.dy(), {{"shifts", back}, {"dims", c.raw("dims")}});
}

void check_pad_mode(const Infer& c, int64_t size, int64_t before, int64_t after) {
  const std::string& mode = c.attr<std::string>("mode");
  if (mode == "constant" || (before == 0 && after == 0)) return;
  if (mode == "circular") size = plus(plus(size, std::min<int64_t>(before, 0)), std::min<int64_t>(after, 0));
  const int64_t most = mode == "reflect" ? size - 1 : mode == "circular" ? size : size > 0 ? INT64_MAX : 0;
  if (std::max(before, after) > most)
    c.bad_attr("pad",
               fmt::format("widths of at most {} for {} elements in mode {}", std::max<int64_t>(most, 0), size, mode));
}

Dims padded(const Infer& c, const Dims& x) {
  const Ints& pad = c.attr<Ints>("pad");
  if (pad.size() % 2 || pad.size() > 2 * size_t(x.size()))
    c.bad_attr("pad", fmt::format("pairs of widths for at most {} dims, the last dim first", x.size()));
  Dims out = x;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const int d = x.size() - 1 - int(i);
    check_pad_mode(c, x[d], pad[2 * i], pad[2 * i + 1]);
    out[d] = plus(plus(out[d], pad[2 * i]), pad[2 * i + 1]);
    if (out[d] < 0) c.bad_attr("pad", "widths that leave a size of at least 0");
  }
  return out;
}

Var grad_pad(Vjp& c) {
  if (c.attr<std::string>("mode") != "constant")
    return call_like<"pad_backward">(c, {c.dy()}, {{"shape", ints(c.input(0).shape())}});
  Ints back = c.attr<Ints>("pad");
  for (int64_t& w : back) w = -w;
  return call<"pad">(c.dy(), {{"pad", back}});
}

const AttrDef kDim = {"dim", AttrKind::kDim, int64_t(1), "the dim to join along"};
const AttrDef kPad = {"pad", AttrKind::kInts, {}, "widths before and after, the last dim first; negative ones cut"};
AttrDef pad_mode() {
  return {.name = "mode",
          .kind = AttrKind::kString,
          .fallback = std::string("constant"),
          .doc = "source of the new elements: `value`, a mirror image, the nearest element, or the other end",
          .choices = {"constant", "reflect", "replicate", "circular"}};
}

std::vector<OpDef> join_rows() {
  return {
      {.name = "cat",
       .doc = "The tensors one after the other along `dim`; their other sizes are equal. dtypes promote.",
       .example = "return pg.cat({pg.ones(2), pg.zeros(1)}, 1)",
       .aliases = {"concat", "concatenate"},
       .inputs = {{"tensors", kAnyDType, Arity::kList}},
       .attrs = {kDim},
       .infer = infer_cat,
       .vjp_all = grad_cat,
       .vjp_uses = "",
       .traits = kFunctionOnly | kTotal},
      {.name = "stack",
       .doc = "The tensors, all of one shape, along a new dim `dim` of the result. dtypes promote.",
       .example = "return pg.stack({pg.ones(2), pg.zeros(2)}, 2)",
       .inputs = {{"tensors", kAnyDType, Arity::kList}},
       .attrs = {{"dim", AttrKind::kDim, int64_t(1), "position of the new dim"}},
       .infer = infer_stack,
       .vjp_all = grad_stack,
       .vjp_uses = "",
       .traits = kFunctionOnly | kTotal},
      {.name = "tile",
       .doc = "x repeated dims[i] times along dim i, aligned at the last dim; more counts than dims add leading dims.",
       .example = "return pg.tensor({1, 2}):tile{2, 2}",
       .inputs = {{"x"}},
       .attrs = {{"dims", AttrKind::kInts, {}, "how often to repeat along each dim"}},
       .infer = infer_tile,
       .decompose = decompose_tile},
      {.name = "repeat_interleave",
       .doc = "Every position of dim `dim` `repeats` times in a row, or as often as the list says for each; without "
              "dim x is flattened first.",
       .example = "return pg.tensor({1, 2}):repeat_interleave(2)",
       .inputs = {{"x"}},
       .attrs = {{.name = "repeats",
                  .kind = AttrKind::kInts,
                  .doc = "a count, or one count per position: a list, or a tensor whose values are read",
                  .from_tensor = true},
                 {"dim", AttrKind::kDim, {}, "the dim to repeat along", true}},
       .infer = infer_repeat,
       .decompose = decompose_repeat},
  };
}

std::vector<OpDef> reorder_rows() {
  return {
      {.name = "flip",
       .doc = "x in reverse order along `dims`.",
       .example = "return pg.range(1, 3):flip(1)",
       .inputs = {{"x"}},
       .attrs = {{"dims", AttrKind::kDims, {}, "dims to reverse"}},
       .infer = infer_flip,
       .vjp = {[](Vjp& c) {
         return call<"flip">(c.dy(), {{"dims", c.raw("dims")}});
       }},
       .vjp_uses = ""},
      {.name = "roll",
       .doc =
           "x moved by shifts[i] along dims[i]; elements that leave at one end enter at the other. The shifts of a dim "
           "that is named twice add up. Without dims the flattened elements move.",
       .example = "return pg.range(1, 4):roll(1)",
       .inputs = {{"x"}},
       .attrs = {{"shifts", AttrKind::kInts, {}, "how far to move, negative backwards"},
                 {"dims", AttrKind::kDims, Ints{}, "along which dims"}},
       .infer = infer_roll,
       .vjp = {grad_roll},
       .vjp_uses = ""},
      {.name = "pad",
       .doc = "x with its last dims widened by the pairs of `pad` (before and after; the last dim first). Negative "
              "widths cut "
              "elements away, in mode \"circular\" before the others are copied.",
       .example = "return pg.ones(2, 2):pad({1, 0, 0, 1}, {value = 7})",
       .inputs = {{"x"}},
       .attrs = {kPad, pad_mode(), {"value", AttrKind::kFloat, 0.0, "the number for mode \"constant\""}},
       .infer =
           [](Infer& c) {
             c.require_holds(c.dtype(0), "value");
             c.output(c.dtype(0), padded(c, c.shape(0)));
           },
       .vjp = {grad_pad},
       .vjp_uses = ""},
      {.name = "pad_backward",
       .doc = "Each element of dy added to the element of a tensor of `shape` that pad copied: the derivative of pad.",
       .inputs = {{"dy", kFloating}},
       .attrs = {kPad, pad_mode(), {"shape", AttrKind::kInts, {}, "sizes of the result"}},
       .infer =
           [](Infer& c) {
             const Dims shape{std::span<const int64_t>(c.attr<Ints>("shape"))};
             if (!(padded(c, shape) == c.shape(0))) c.bad_input(0, "the shape of the padded tensor");
             c.output(c.dtype(0), shape);
           },
       .vjp = {[](Vjp& c) { return call_like<"pad">(c, {c.dy()}); }},
       .vjp_uses = "",
       .traits = kHidden},
  };
}

}  // namespace

void add_join_ops(Registry& r) {
  r.add(join_rows());
  r.add(reorder_rows());
}

}  // namespace pg
