// Ops that create tensors, with given sizes or those of another tensor; copies and conversions.
#include <cmath>

#include "tensor/ops/all.h"
#include "tensor/ops/create_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

AttrDef like_dtype() {
  return {.name = "dtype", .kind = AttrKind::kDType, .doc = "the dtype of the result; x's when nil", .optional = true};
}
AttrDef like_device() {
  return {.name = "device", .kind = AttrKind::kDevice, .doc = "device of the result; x's when nil", .optional = true};
}

void output_of(Infer& c, Dims shape) {
  c.outputs.push_back(Type{c.attr<DType>("dtype"), c.attr<Device>("device"), std::move(shape)});
}

void infer_shape(Infer& c) { output_of(c, Dims(std::span<const int64_t>(c.attr<Ints>("shape")))); }

void infer_full(Infer& c) {
  c.require_holds(c.attr<DType>("dtype"), "value");
  infer_shape(c);
}

Type like_type(Infer& c) {
  Type type = c.type(0);
  if (c.has_attr("dtype")) type.dtype = c.attr<DType>("dtype");
  if (c.has_attr("device")) type.device = c.attr<Device>("device");
  return type;
}
void infer_like(Infer& c) { c.outputs.push_back(like_type(c)); }
void infer_full_like(Infer& c) {
  const Type type = like_type(c);
  c.require_holds(type.dtype, "value");
  c.outputs.push_back(type);
}

// Has as many steps as a Lua `for` loop, with tolerance for a rounding error in the step.
void infer_range(Infer& c) {
  const double start = c.attr<double>("start"), stop = c.attr<double>("stop"), step = c.attr<double>("step");
  if (!std::isfinite(start)) c.bad_attr("start", "a finite number");
  if (!std::isfinite(stop)) c.bad_attr("stop", "a finite number");
  if (!std::isfinite(step) || step == 0) c.bad_attr("step", "a finite number other than 0");
  const double steps = (stop - start) / step;
  if (steps > 1e15) c.bad_attr("stop", "at most 1e15 elements");
  const double tolerance = 1e-9 * std::max(1.0, std::fabs(steps));
  const int64_t n = steps < 0 ? 0 : int64_t(std::floor(steps + tolerance)) + 1;
  const DType t = c.attr<DType>("dtype");
  c.require_holds(t, "start");
  if (!is_float(t) && n > 1) {
    if (step != std::floor(step)) c.bad_attr("step", fmt::format("a whole number for {}", name_of(t)));
    const double last = start + double(n - 1) * step;
    if (!holds(t, last)) c.bad_attr("stop", fmt::format("elements that {} can hold; the last is {}", name_of(t), last));
  }
  output_of(c, {n});
}

// Fractions become integers by truncation.
void infer_linspace(Infer& c) {
  const DType t = c.attr<DType>("dtype");
  for (const char* end : {"start", "stop"})
    if (!is_float(t) && !holds(t, std::trunc(c.attr<double>(end))))
      c.bad_attr(end, fmt::format("a number that {} can hold", name_of(t)));
  output_of(c, {c.attr<int64_t>("steps")});
}

void infer_eye(Infer& c) {
  const int64_t n = c.attr<int64_t>("n");
  output_of(c, {n, c.has_attr("m") ? c.attr<int64_t>("m") : n});
}

bool view_same(ViewArgs& c) {
  const Type& type = c.input.type;
  if (c.has_attr("dtype") && c.attr<DType>("dtype") != type.dtype) return false;
  if (c.has_attr("device") && !(c.attr<Device>("device") == type.device)) return false;
  c.strides = c.input.strides;
  return true;
}

double zero(const AttrReader&) { return 0; }
double one(const AttrReader&) { return 1; }
double value(const AttrReader& c) { return c.attr<double>("value"); }

// Without `fill` the elements are not initialized.
OpDef filled(const char* name, const char* doc, const char* example, FillFn fill = nullptr) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {},
          .attrs = {shape_attr(), dtype_attr(), device_attr()},
          .infer = infer_shape,
          .traits = kNoGrad | (fill ? kTotal : kUnset),
          .fill = fill};
}

OpDef filled_like(const char* name, const char* doc, const char* example, FillFn fill = nullptr) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x"}},
          .attrs = {like_dtype(), like_device()},
          .infer = infer_like,
          .traits = kNoGrad | (fill ? kTotal : kUnset),
          .fill = fill};
}

AttrDef number(const char* name, const char* doc) { return {.name = name, .kind = AttrKind::kFloat, .doc = doc}; }

}  // namespace

static void add_filled(Registry& r) {
  static const OpDef kRows[] = {
      filled("zeros", "A tensor of zeros.", "return pg.zeros(2, 3)", zero),
      filled("ones", "A tensor of ones.", "return pg.ones{2, 3, dtype = 'int64'}", one),
      filled("empty", "A tensor whose elements are not set: their values are unspecified until written.",
             "return pg.empty(2):fill_(1)"),
      {.name = "full",
       .doc =
           "A tensor with the value everywhere: a number, or a boolean, whose tensor is bool unless dtype is given. A "
           "number that an integer dtype cannot hold is an error.",
       .example = "return pg.full({2, 3}, 7)",
       .inputs = {},
       .attrs = {shape_attr(), number("value", "the element"), dtype_attr(), device_attr()},
       .infer = infer_full,
       .traits = kNoGrad | kTotal,
       .fill = value},
      filled_like("zeros_like", "Zeros of the shape of x.", "return pg.zeros_like(pg.tensor({1, 2}))", zero),
      filled_like("ones_like", "Ones of the shape of x.", "return pg.ones_like(pg.tensor({1, 2}))", one),
      filled_like("empty_like", "A tensor of the shape of x whose elements are not set.",
                  "return pg.empty_like(pg.tensor({1, 2})):fill_(3)"),
      {.name = "full_like",
       .doc =
           "The value, a number or a boolean, everywhere in the shape and dtype of x. A number that an integer dtype "
           "cannot hold is an error.",
       .example = "return pg.full_like(pg.tensor({1, 2}), 7)",
       .inputs = {{"x"}},
       .attrs = {number("value", "the element"), like_dtype(), like_device()},
       .infer = infer_full_like,
       .traits = kNoGrad | kTotal,
       .fill = value},
  };
  r.add(kRows);
}

static void add_sequences(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "range",
       .doc = "start, start + step, … up to stop, both ends included, like `for i = start, stop, step`. Empty where "
              "step leads away from stop. An element that an integer dtype cannot hold is an error.",
       .example = "return pg.range(0, 1, 0.25)",
       .inputs = {},
       .attrs = {number("start", "the first element"),
                 number("stop", "the limit, included"),
                 {.name = "step", .kind = AttrKind::kFloat, .fallback = 1.0, .doc = "the difference, not 0"},
                 dtype_attr(),
                 device_attr()},
       .infer = infer_range,
       .traits = kNoGrad},
      {.name = "linspace",
       .doc =
           "steps numbers from start to stop, both included, equally far apart; truncated for integers. An end that an "
           "integer dtype cannot hold is an error.",
       .example = "return pg.linspace(0, 1, 11)",
       .inputs = {},
       .attrs = {number("start", "the first element"),
                 number("stop", "the last element"),
                 {.name = "steps", .kind = AttrKind::kInt, .doc = "how many", .min = 0},
                 dtype_attr(),
                 device_attr()},
       .infer = infer_linspace,
       .traits = kNoGrad},
      {.name = "eye",
       .doc = "Ones on the diagonal of n rows and m columns (n when nil), zeros elsewhere.",
       .example = "return pg.eye(3)",
       .inputs = {},
       .attrs = {{.name = "n", .kind = AttrKind::kInt, .doc = "rows", .min = 0},
                 {.name = "m", .kind = AttrKind::kInt, .doc = "columns", .optional = true, .min = 0},
                 dtype_attr(),
                 device_attr()},
       .infer = infer_eye,
       .traits = kNoGrad},
  };
  r.add(kRows);
}

static void add_copies(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "to",
       .doc = "x in another dtype or on another device; x itself where nothing changes. Floats become integers by "
              "truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The "
              "gradient is converted back.",
       .example = "return pg.tensor({1.5, -1.5}):to('int32')",
       .aliases = {{"float", "dtype", DType::kFloat32},
                   {"double", "dtype", DType::kFloat64},
                   {"half", "dtype", DType::kFloat16},
                   {"bfloat16", "dtype", DType::kBFloat16},
                   {"long", "dtype", DType::kInt64},
                   {"int", "dtype", DType::kInt32},
                   {"bool", "dtype", DType::kBool}},
       .inputs = {{"x"}},
       .attrs = {like_dtype(), like_device()},
       .infer = infer_like,
       .view = view_same,
       .vjp = {[](Vjp& c) {
         return call<"to">(c.dy(), {{"dtype", c.input(0).dtype()}, {"device", c.input(0).device()}});
       }},
       .vjp_uses = "",
       .traits = kView | kCopies},
      {.name = "type_as",
       .doc = "x in the dtype of `other`; see to.",
       .example = "return pg.tensor({1.5}):type_as(pg.tensor({true}))",
       .inputs = {{"x"}, {"other"}},
       .infer = [](Infer& c) { c.output(c.dtype(1), c.shape(0)); },
       .decompose =
           [](Rule& c) {
             return std::vector<Var>{call<"to">(c.in(0), {{"dtype", c.input(1).dtype()}})};
           }},
      {.name = "clone",
       .doc = "A copy of x with memory of its own.",
       .example = "return pg.tensor({1, 2}):clone()",
       .inputs = {{"x"}},
       .infer = [](Infer& c) { c.outputs.push_back(c.type(0)); },
       .vjp = {[](Vjp& c) { return c.dy(); }},
       .vjp_uses = ""},
      {.name = "assert",
       .doc = "The condition itself, after checking that no element of it is zero or false; else an error with the "
              "message. It checks at every run, in graphs too.",
       .example = "return pg.assert(pg.tensor({1, 2}):gt(0), 'not positive')",
       .inputs = {{"condition", kAnyDType, Arity::kOne, 0.2, 2}},
       .attrs = {{.name = "message",
                  .kind = AttrKind::kString,
                  .fallback = std::string("assertion failed"),
                  .doc = "the text of the error"}},
       .infer = [](Infer& c) { c.outputs.push_back(c.type(0)); },
       .vjp = {[](Vjp& c) { return c.dy(); }},
       .vjp_uses = "",
       .traits = kEffect},
  };
  r.add(kRows);
}

void add_create_ops(Registry& r) {
  add_filled(r);
  add_sequences(r);
  add_copies(r);
}

}  // namespace pg
