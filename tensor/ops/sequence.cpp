// Ops on batches of sequences of different lengths. Time is dim `dim` (1 or 2), the batch is the other one of the two.
#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {
namespace {

// Returns the 0-based time dim. Checks that there is one length per sequence.
int time_dim(const Infer& c) {
  if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims, time and batch");
  const int d = c.dim("dim", c.rank(0));
  if (d > 1) c.bad_attr("dim", "1 or 2");
  if (c.has(1) && (c.rank(1) != 1 || c.shape(1)[0] != c.shape(0)[1 - d]))
    c.bad_input(1, fmt::format("one length for each of the {} sequences", c.shape(0)[1 - d]));
  return d;
}

void infer_same(Infer& c) {
  time_dim(c);
  c.output(c.dtype(0), c.shape(0));
}

void infer_last(Infer& c) {
  const int d = time_dim(c);
  Dims out = c.shape(0);
  if (out[d] == 0) c.bad_input(0, "at least one step");
  out.erase(d);
  c.output(c.dtype(0), out);
}

void infer_last_backward(Infer& c) {
  const int64_t d = c.attr<int64_t>("dim");
  Dims out = c.shape(0);
  if (out.empty() || d < 1 || d > 2) c.bad_attr("dim", "1 or 2");
  if (c.has(1) && (c.rank(1) != 1 || c.shape(1)[0] != out[0])) c.bad_input(1, "one length for each sequence");
  out.insert(int(d) - 1, c.attr<int64_t>("steps"));
  c.output(c.dtype(0), out);
}

std::vector<OpDef> sequence_rows() {
  const InputDef lengths = {"lengths", kNumeric, Arity::kOptional, 0, 2, "steps of each sequence; all without"};
  const AttrDef dim = {"dim", AttrKind::kDim, int64_t(1), "the time dim, 1 or 2"};
  return {
      {.name = "sequence_mask",
       .doc = "x with `value` in the steps after the end of each sequence.",
       .example = "return pg.ones(3, 2):sequence_mask(pg.tensor({1, 3}))",
       .inputs = {{"x"}, lengths},
       .attrs = {{"value", AttrKind::kFloat, 0.0, "the number stored after the end"}, dim},
       .infer =
           [](Infer& c) {
             c.require_holds(c.dtype(0), "value");
             infer_same(c);
           },
       .vjp = {[](Vjp& c) {
                 return call<"sequence_mask">(c.dy(), c.in(1), {{"dim", c.raw("dim")}});
               },
               nullptr},
       .vjp_uses = "lengths"},
      {.name = "sequence_last",
       .doc = "The last step of each sequence: x without the time dim. Every sequence has at least one step.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):sequence_last(pg.tensor({1, 2}))",
       .inputs = {{"x"}, lengths},
       .attrs = {dim},
       .infer = infer_last,
       .vjp = {[](Vjp& c) {
                 const Dims& x = c.input(0).shape();
                 const int d = c.dim("dim", x.size());
                 return call<"sequence_last_backward">(c.dy(), c.in(1), {{"dim", user_dim(d)}, {"steps", x[d]}});
               },
               nullptr},
       .vjp_uses = "lengths"},
      {.name = "sequence_last_backward",
       .doc = "Zeros of `steps` steps with dy in the last of each sequence: the derivative of sequence_last.",
       .inputs = {{"dy"}, lengths},
       .attrs = {{"dim", AttrKind::kInt, int64_t(1), "the time dim of the result, 1 or 2"},
                 {"steps", AttrKind::kInt, {}, "size of the time dim", false, 1}},
       .infer = infer_last_backward,
       .vjp = {[](Vjp& c) {
                 return call<"sequence_last">(c.dy(), c.in(1), {{"dim", c.raw("dim")}});
               },
               nullptr},
       .vjp_uses = "lengths",
       .traits = kHidden},
      {.name = "sequence_reverse",
       .doc = "x with the steps of each sequence in reverse order; the steps after its end stay.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):sequence_reverse(pg.tensor({1, 2}))",
       .inputs = {{"x"}, lengths},
       .attrs = {dim},
       .infer = infer_same,
       .vjp = {[](Vjp& c) {
                 return call<"sequence_reverse">(c.dy(), c.in(1), {{"dim", c.raw("dim")}});
               },
               nullptr},
       .vjp_uses = "lengths"},
  };
}

}  // namespace

void add_sequence_ops(Registry& r) { r.add(sequence_rows()); }

}  // namespace pg
