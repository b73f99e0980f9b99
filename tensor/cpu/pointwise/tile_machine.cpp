#include "tensor/cpu/pointwise/tile_machine.h"

#include <algorithm>
#include <string_view>

namespace pg::cpu {
namespace {

struct ReductionRow {
  const char* op;
  Reduction reduction;
};
constexpr ReductionRow kReductions[] = {
    {"sum", {ReduceOp::kSum}},
    {"sum_to", {ReduceOp::kSum}},
    {"mean", {ReduceOp::kSum, Finish::kScale}},
    {"sum_squares", {ReduceOp::kSumSquares}},
    {"nansum", {ReduceOp::kSumNumbers}},
    {"prod", {ReduceOp::kProd}},
    {"amax", {ReduceOp::kMax}},
    {"amin", {ReduceOp::kMin}},
    {"count_nonzero", {ReduceOp::kCount}},
    {"any", {ReduceOp::kCount, Finish::kAny}},
    {"all", {ReduceOp::kCount, Finish::kAll}},
};

}  // namespace

const Reduction* find_reduction(const OpDef& op) {
  for (const ReductionRow& r : kReductions)
    if (std::string_view(op.name) == r.op) return &r.reduction;
  return nullptr;
}

TiledBody::TiledBody(TileBody of, const TileLayout& layout)
    : body(std::move(of)), program(compile_tiles(body, layout)) {
  const auto is_op = [](const TileValue& v) { return v.kind == TileValue::Kind::kOp; };
  one_op = std::count_if(body.values.begin(), body.values.end(), is_op) == 1;
  for (const auto& input : body.inputs) widest = std::max<int64_t>(widest, size_of(input.dtype));
  for (const TileOutput& output : body.outputs) widest = std::max<int64_t>(widest, size_of(output.dtype));
  for (const TileReduction& r : body.reductions) {
    Reduction reduction = *find_reduction(*r.op);
    if (reduction.finish == Finish::kScale) reduction.factor = 1.0 / double(r.row);
    if (reduction.finish == Finish::kAll) reduction.factor = double(r.row);
    totals.push_back({reduction, reduce_loops(reduction.op, reduce_compute_type(r.storage))});
  }
}

TileMachine::TileMachine(TileBody body)
    : layout_(body), tiled_(std::move(body), layout_), plain_(is_plain(tiled_, layout_)) {}

void TileMachine::run(std::span<const View> in, std::span<const View> out, void*) const {
  run_tiles(tiled_, layout_, plain_, false, in, out);
}

int64_t TileMachine::iterate(const Recurrence& r, std::span<const View> in, std::span<const View> out,
                             int64_t most) const {
  return plain_ && layout_.size == 1 ? iterate_tiles(tiled_, r, in, out, most) : -1;
}

}  // namespace pg::cpu

namespace pg {

std::shared_ptr<const TileKernel> make_tile_kernel(TileBody body) {
  return std::make_shared<cpu::TileMachine>(std::move(body));
}

bool tile_computes(const OpDef& op, DType compute) {
  const cpu::SpanRow* row = cpu::find_span(op.name);
  return row && row->fn[int(compute)] && !is_half(compute);  // those of halves serve single calls
}

bool tile_reduces(const OpDef& op) { return cpu::find_reduction(op) != nullptr; }

bool tile_checks(const OpDef& op) {
  const cpu::SpanRow* row = cpu::find_span(op.name);
  return row && row->check != SpanCheck::kNothing;
}

void tile_check(const OpDef& op, const View& divisor) {
  if (const cpu::SpanRow* row = cpu::find_span(op.name)) cpu::check_divisor(op, divisor, row->check);
}

}  // namespace pg
