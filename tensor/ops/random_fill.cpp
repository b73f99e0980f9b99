// Random numbers of several distributions in the shape of a tensor. Their in-place forms, such as x:normal_(0, 1), fill
// it.
#include <cmath>

#include "tensor/ops/random_rules.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

constexpr double kPi = 3.14159265358979323846;

AttrDef number(const char* name, AttrValue fallback, const char* doc, double min = -1e300, double max = 1e300) {
  return {.name = name, .kind = AttrKind::kFloat, .fallback = std::move(fallback), .doc = doc, .min = min, .max = max};
}

DType compute_dtype(const Rule& c) {
  const DType t = c.input(0).dtype();
  return is_float(t) ? stat_dtype(t) : DType::kFloat64;
}

Var uniform(const Rule& c) {
  return call<"rand_like">(c.in(0), {{"dtype", compute_dtype(c)}, {"generator", c.raw("generator")}});
}
// In (0, 1): 0 becomes half the distance between two numbers.
Var open_uniform(const Rule& c) {
  return call<"maximum">(uniform(c), compute_dtype(c) == DType::kFloat64 ? 0x1p-54 : 0x1p-25);
}
Var normal(const Rule& c) {
  return call<"randn_like">(c.in(0), {{"dtype", compute_dtype(c)}, {"generator", c.raw("generator")}}) *
             c.attr<double>("std") +
         c.attr<double>("mean");
}
std::vector<Var> result(const Rule& c, const Var& v) { return {as_dtype(v, c.input(0).dtype())}; }

// Rounding must not reach the upper end. Half of a range is finite where the range is not.
std::vector<Var> decompose_uniform(Rule& c) {
  const double low = c.attr<double>("from"), high = c.attr<double>("to");
  const bool wide = !std::isfinite(high - low) || !holds(compute_dtype(c), high - low);
  const Var drawn = wide ? (uniform(c) * (high / 2 - low / 2) + low / 2) * 2.0 : uniform(c) * (high - low) + low;
  const Var v = result(c, drawn)[0];
  return {call<"where">(call<"lt">(v, high), v, low)};
}
std::vector<Var> decompose_normal(Rule& c) { return result(c, normal(c)); }
std::vector<Var> decompose_log_normal(Rule& c) { return result(c, call<"exp">(normal(c))); }
std::vector<Var> decompose_exponential(Rule& c) {
  return result(c, call<"log">(open_uniform(c)) / -c.attr<double>("lambda"));
}
std::vector<Var> decompose_cauchy(Rule& c) {
  const Var angle = (open_uniform(c) - 0.5) * kPi;
  return result(c, call<"tan">(angle) * c.attr<double>("sigma") + c.attr<double>("median"));
}
std::vector<Var> decompose_geometric(Rule& c) {
  const double step = std::log1p(-c.attr<double>("p"));
  return result(c, call<"floor">(call<"log">(open_uniform(c)) / step) + 1.0);
}

// Numbers that the dtype of x cannot hold would make all elements infinite or equal.
void infer_fill(Infer& c) {
  const DType t = is_float(c.dtype(0)) ? c.dtype(0) : DType::kFloat64;
  for (const AttrDef& a : c.op().attrs) {
    if (a.kind != AttrKind::kFloat) continue;
    const double number = c.attr<double>(a.name);
    if (!std::isfinite(number)) c.bad_attr(a.name, "a finite number");
    if (!holds(t, number)) c.bad_attr(a.name, fmt::format("a number that {} can hold", name_of(t)));
  }
  c.outputs.push_back(c.type(0));
}

void infer_uniform(Infer& c) {
  infer_fill(c);
  if (!(c.attr<double>("from") <= c.attr<double>("to"))) c.bad_attr("to", "at least `from`");
}

OpDef fill(const char* name, const char* doc, const char* example, std::vector<AttrDef> attrs, DecomposeFn decompose,
           uint16_t dtypes = kFloating) {
  attrs.push_back(generator_attr());
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", dtypes}},
          .attrs = std::move(attrs),
          .infer = infer_fill,
          .decompose = decompose,
          .traits = kRandom | kNoGrad};
}

}  // namespace

void add_random_fill_ops(Registry& r) {
  OpDef rows[] = {
      fill("uniform", "Uniform random numbers from [from, to) in shape and dtype of x; x:uniform_(a, b) fills x.",
           "return pg.empty(4):uniform_(-1, 1)",
           {number("from", 0.0, "the smallest number"), number("to", 1.0, "the end, not included")}, decompose_uniform),
      fill("normal",
           "Normal random numbers of that mean and standard deviation in shape and dtype of x; x:normal_(mean, std) "
           "fills x.",
           "return pg.empty(4):normal_(10, 0.1)",
           {number("mean", 0.0, "the mean"), number("std", 1.0, "the standard deviation", 0)}, decompose_normal),
      fill("log_normal",
           "exp of normal random numbers of that mean and standard deviation, in shape and dtype of x; x:log_normal_() "
           "fills x.",
           "return pg.empty(4):log_normal_(0, 0.5)",
           {number("mean", 1.0, "the mean of the logarithms"), number("std", 2.0, "their standard deviation", 0)},
           decompose_log_normal),
      fill("exponential",
           "Random numbers of density lambda exp(-lambda v), v > 0, in shape and dtype of x; x:exponential_(lambda) "
           "fills x.",
           "return pg.empty(4):exponential_(2)", {number("lambda", 1.0, "the rate, above 0", 1e-300)},
           decompose_exponential),
      fill("cauchy",
           "Random numbers of density sigma / (pi (sigma^2 + (v - median)^2)), in shape and dtype of x; x:cauchy_() "
           "fills x.",
           "return pg.empty(4):cauchy_(0, 2)",
           {number("median", 0.0, "the median"), number("sigma", 1.0, "half the width at half the height", 0)},
           decompose_cauchy),
      fill("geometric",
           "How many trials with success probability p it takes to succeed: 1, 2, …, in shape and dtype of x; "
           "x:geometric_(p) fills x.",
           "return pg.empty(4):geometric_(0.25)",
           {number("p", {}, "the probability, above 0 and below 1", 1e-300, 1 - 0x1p-53)}, decompose_geometric,
           kNumeric),
  };
  rows[0].infer = infer_uniform;
  r.add(rows);
}

}  // namespace pg
