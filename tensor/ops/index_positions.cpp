// Index values that a composition checks under its own name.
#include "tensor/ops/index.h"
#include "tensor/rule.h"

namespace pg {

Var read_positions(const Rule& c, const Var& index, const char* argument, int64_t size, int64_t base) {
  return call<"read_positions">(
      index,
      {{"size", size}, {"index_base", base}, {"op", std::string(c.op().name)}, {"argument", std::string(argument)}});
}

void add_read_positions_op(Registry& r) {
  const OpDef rows[] = {
      {.name = "read_positions",
       .doc =
           "Index values from index_base on as int64 positions from 0 to size - 1. Others are an error of the op and "
           "argument with the given names.",
       .inputs = {{"index", kIntegral}},
       .attrs = {{"size", AttrKind::kInt, {}, "number of positions", false, 0},
                 {"index_base", AttrKind::kInt, int64_t(1), "the first index value", false, -1, 1},
                 {"op", AttrKind::kString, {}, "whose argument they are"},
                 {"argument", AttrKind::kString, {}, "its name"}},
       .infer = [](Infer& c) { c.output(DType::kInt64, c.shape(0)); },
       .traits = kHidden | kNoGrad},
  };
  r.add(rows);
}

}  // namespace pg
