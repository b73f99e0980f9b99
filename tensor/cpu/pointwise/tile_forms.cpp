#include "tensor/cpu/pointwise/tile_forms.h"

namespace pg::cpu {
namespace {

// Ops whose steps may be one with another op's.
struct PairedForm {
  const char* op;
  ChainOp first, second;
};
constexpr PairedForm kPaired[] = {
    {"add", ChainOp::kAdd, ChainOp::kAdd},
    {"sub", ChainOp::kSub, ChainOp::kSubOf},
    {"mul", ChainOp::kMul, ChainOp::kMul},
};

ChainForm of_formula(const TileValue& v, const SpanRow& row, bool bools) {
  ChainForm out{row.lanes && !row.condition && v.count == row.inputs, v.count};
  for (int k = 0; out.chained && k < (row.inputs == 2 ? 2 : 1); ++k)
    out.by_operand[k] = formula_step(row.index, bools, k);
  return out;
}

ChainForm unary(ChainOp op) { return {true, 1, {op, ChainOp::kCount, ChainOp::kCount}, ChainOp::kCount}; }

// Powers that the span kernel, too, computes as products when the exponent is one number.
ChainOp power(const TileValue& exponent, int level) {
  if (level == 0 || exponent.kind != TileValue::Kind::kConstant) return ChainOp::kCount;
  if (exponent.number == 2) return ChainOp::kSquare;
  if (exponent.number == 3) return ChainOp::kCube;
  if (exponent.number == 0.5) return ChainOp::kRoot;
  return exponent.number == -1 ? formula_step(find_span("reciprocal")->index, false, 0) : ChainOp::kCount;
}

ChainForm of_floats(const TileBody& body, const TileValue& v, const SpanRow& row, int level) {
  const std::string_view op = row.op;
  if (op == "where") return {true, 3, {ChainOp::kWhereMask, ChainOp::kWhere, ChainOp::kWhereOf}, ChainOp::kCount};
  if (op == "pow") {
    const ChainOp step = power(body.values[size_t(v.operands[1])], level);
    if (step != ChainOp::kCount) return unary(step);
  }
  for (const PairedForm& p : kPaired)
    if (op == p.op) return {true, 2, {p.first, p.second, ChainOp::kCount}, ChainOp::kCount};
  return of_formula(v, row, false);
}

ChainForm of_convert(const TileBody& body, const TileValue& v) {
  const DType from = body.values[size_t(v.operands[0])].dtype;
  if (v.dtype == DType::kFloat32) {
    if (is_half(from) || (from == DType::kUInt8 && !is_half(v.rounded))) return {true, 1, {}, load_op(from)};
    if (from == DType::kBool) return unary(ChainOp::kFromBool);
    if (from == DType::kFloat32) return unary(rounding_op(v.rounded));
  }
  if (v.dtype == DType::kBool && from == DType::kFloat32) return unary(ChainOp::kNonZero);
  return {false, 1, {}, ChainOp::kCount};
}

}  // namespace

ChainForm chain_form(const TileBody& body, const TileValue& v, const SpanRow* row, int level) {
  if (v.kind == TileValue::Kind::kConvert) return of_convert(body, v);
  if (v.kind != TileValue::Kind::kOp) return {};
  if (row && v.compute == DType::kFloat32) return of_floats(body, v, *row, level);
  if (row && v.compute == DType::kBool) return of_formula(v, *row, true);
  return {false, v.count, {}, ChainOp::kCount};
}

ChainOp load_op(DType memory) {
  switch (memory) {
    case DType::kFloat32:
      return ChainOp::kLoad;
    case DType::kFloat16:
      return ChainOp::kLoadHalf;
    case DType::kBFloat16:
      return ChainOp::kLoadBFloat16;
    case DType::kBool:
      return ChainOp::kLoadBool;
    case DType::kUInt8:
      return ChainOp::kLoadByte;
    default:
      return ChainOp::kCount;
  }
}

ChainOp store_op(DType value, DType memory) {
  if (value == DType::kBool && memory == DType::kBool) return ChainOp::kStoreBool;
  if (value != DType::kFloat32) return ChainOp::kCount;
  switch (memory) {
    case DType::kFloat32:
      return ChainOp::kStore;
    case DType::kFloat16:
      return ChainOp::kStoreHalf;
    case DType::kBFloat16:
      return ChainOp::kStoreBFloat16;
    default:
      return ChainOp::kCount;
  }
}

ChainOp pair_op(ChainOp first, ChainOp second) {
#define X(one, other) \
  if (first == ChainOp::k##one && second == ChainOp::k##other) return ChainOp::k##one##Then##other;
  PERIGEE_CHAIN_PAIRS(X)
#undef X
  return ChainOp::kCount;
}

ChainOp join_op(ChainOp first, ChainOp second) {
#define X(one, other) \
  if (first == ChainOp::k##one && second == ChainOp::k##other) return ChainOp::kJoin##one##By##other;
  PERIGEE_CHAIN_JOINS(X)
#undef X
  return ChainOp::kCount;
}

ChainOp rounding_op(DType t) { return t == DType::kFloat16 ? ChainOp::kRoundHalf : ChainOp::kRoundBFloat16; }

}  // namespace pg::cpu
