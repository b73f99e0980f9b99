// Random tensors. Each application takes one tick of a generator. Its numbers depend only on seed, tick and
// element.
#include "tensor/ops/all.h"
#include "tensor/ops/create_rules.h"
#include "tensor/ops/random_rules.h"

namespace pg {
namespace {

AttrDef index_base_attr() {
  return {.name = "index_base",
          .kind = AttrKind::kInt,
          .fallback = int64_t(1),
          .doc = "the first index, 1 or 0",
          .min = 0,
          .max = 1};
}

constexpr double kWhole = 9007199254740992;  // 2^53

DType floating_dtype(Infer& c) {
  const DType t = c.attr<DType>("dtype");
  if (!is_float(t)) c.bad_attr("dtype", "a floating dtype");
  return t;
}

void infer_floats(Infer& c) {
  c.outputs.push_back(
      Type{floating_dtype(c), c.attr<Device>("device"), Dims(std::span<const int64_t>(c.attr<Ints>("shape")))});
}

void infer_floats_like(Infer& c) {
  Type type = c.type(0);
  if (c.has_attr("dtype")) type.dtype = c.attr<DType>("dtype");
  if (c.has_attr("device")) type.device = c.attr<Device>("device");
  if (!is_float(type.dtype)) bad_argument(c.op().name, "dtype", "a floating dtype", name_of(type.dtype));
  c.outputs.push_back(type);
}

void infer_randint(Infer& c) {
  const DType t = c.attr<DType>("dtype");
  const int64_t low = c.attr<int64_t>("low"), high = c.attr<int64_t>("high");
  if (t == DType::kBool) c.bad_attr("dtype", "a numeric dtype");
  if (high < low) c.bad_attr("high", fmt::format("a number of at least {}", low));
  if (!holds(t, double(low))) c.bad_attr("low", fmt::format("a number that {} can hold", name_of(t)));
  if (!holds(t, double(high))) c.bad_attr("high", fmt::format("a number that {} can hold", name_of(t)));
  c.outputs.push_back(Type{t, c.attr<Device>("device"), Dims(std::span<const int64_t>(c.attr<Ints>("shape")))});
}

void infer_randperm(Infer& c) {
  const DType t = c.attr<DType>("dtype");
  if (t == DType::kBool) c.bad_attr("dtype", "a numeric dtype");
  const int64_t n = c.attr<int64_t>("n");
  if (!holds(t, double(n))) c.bad_attr("n", fmt::format("a number that {} can hold", name_of(t)));
  c.outputs.push_back(Type{t, c.attr<Device>("device"), {n}});
}

void infer_multinomial(Infer& c) {
  if (c.rank(0) != 1 && c.rank(0) != 2) c.bad_input(0, "1 or 2 dims");
  const int64_t n = c.attr<int64_t>("n"), choices = c.shape(0)[c.rank(0) - 1];
  const bool replacement = c.attr<bool>("replacement");
  if (choices == 0 && n > 0) c.bad_input(0, "at least one weight in a row");
  if (!replacement && n > choices) c.bad_attr("n", fmt::format("at most {} draws without replacement", choices));
  if (c.rank(0) == 1)
    c.output(DType::kInt64, {n});
  else
    c.output(DType::kInt64, {c.shape(0)[0], n});
}

OpDef drawn(const char* name, const char* doc, const char* example) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {},
          .attrs = {shape_attr(), dtype_attr(), device_attr(), generator_attr()},
          .infer = infer_floats,
          .traits = kRandom | kNoGrad};
}

OpDef drawn_like(const char* name, const char* doc, const char* example) {
  return {
      .name = name,
      .doc = doc,
      .example = example,
      .inputs = {{"x"}},
      .attrs =
          {{.name = "dtype", .kind = AttrKind::kDType, .doc = "a floating dtype; x's when nil", .optional = true},
           {.name = "device", .kind = AttrKind::kDevice, .doc = "device of the result; x's when nil", .optional = true},
           generator_attr()},
      .infer = infer_floats_like,
      .traits = kRandom | kNoGrad};
}

}  // namespace

void add_random_ops(Registry& r) {
  static const OpDef kRows[] = {
      drawn("rand", "Uniform random numbers in [0, 1).", "return pg.rand(2, 3)"),
      drawn("randn", "Normal random numbers of mean 0 and variance 1 (Box and Muller's method).",
            "return pg.randn{2, 3}"),
      drawn_like("rand_like", "Uniform random numbers in [0, 1) in the shape of x.",
                 "return pg.rand_like(pg.tensor({1, 2}))"),
      drawn_like("randn_like", "Normal random numbers in the shape of x.", "return pg.randn_like(pg.tensor({1, 2}))"),
      {.name = "randint",
       .doc = "Uniform random whole numbers from low to high, both included, like math.random.",
       .example = "return pg.randint(1, 6, {10})",
       .inputs = {},
       .attrs = {{.name = "low", .kind = AttrKind::kInt, .doc = "the smallest", .min = -kWhole, .max = kWhole},
                 {.name = "high", .kind = AttrKind::kInt, .doc = "the largest", .min = -kWhole, .max = kWhole},
                 shape_attr(),
                 dtype_attr(DType::kInt64),
                 device_attr(),
                 generator_attr()},
       .infer = infer_randint,
       .traits = kRandom | kNoGrad},
      {.name = "randperm",
       .doc = "The numbers from 1 to n (from 0 with index_base 0) in random order.",
       .example = "return pg.randperm(10)",
       .inputs = {},
       .attrs = {{.name = "n", .kind = AttrKind::kInt, .doc = "how many", .min = 0},
                 dtype_attr(DType::kInt64),
                 index_base_attr(),
                 device_attr(),
                 generator_attr()},
       .infer = infer_randperm,
       .traits = kRandom | kNoGrad},
      {.name = "bernoulli",
       .doc = "1 with the probability of each element of p, else 0, in the dtype of p. With `probability` all elements "
              "have that one, and p gives only shape and dtype: x:bernoulli_(0.5). A probability outside [0, 1] is an "
              "error.",
       .example = "return pg.bernoulli(pg.full({4}, 0.5))",
       .inputs = {{"p", kFloating, Arity::kOne, 0, 1}},
       .attrs = {{.name = "probability",
                  .kind = AttrKind::kFloat,
                  .doc = "one probability for all elements",
                  .optional = true,
                  .min = 0,
                  .max = 1},
                 generator_attr()},
       .infer = [](Infer& c) { c.outputs.push_back(c.type(0)); },
       .traits = kRandom | kNoGrad | kNumberOk},
      {.name = "multinomial",
       .doc = "n indices (from 1) drawn with probabilities proportional to the weights p, one list or one list per "
              "row. Negative or infinite weights, a sum of 0, or fewer nonzero weights than draws without replacement "
              "are errors.",
       .example = "return pg.multinomial(pg.tensor({1, 2, 3}), 2)",
       .inputs = {{"p", kFloating, Arity::kOne, 0.1, 1}},
       .attrs = {{.name = "n", .kind = AttrKind::kInt, .doc = "draws per row", .min = 0},
                 {.name = "replacement",
                  .kind = AttrKind::kBool,
                  .fallback = false,
                  .doc = "whether an index may be drawn more than once"},
                 index_base_attr(),
                 generator_attr()},
       .infer = infer_multinomial,
       .traits = kRandom | kNoGrad},
  };
  r.add(kRows);
  add_dropout_ops(r);
  add_random_fill_ops(r);
}

}  // namespace pg
