#include "tensor/cpu/pointwise/tile_forms.h"

namespace pg::cpu {
namespace {

struct BinaryForm {
  const char* op;
  ChainOp first, second;
};

// Of floats. With the second operand in the accumulator a comparison is the mirrored one.
constexpr BinaryForm kFloatForms[] = {
    {"add", ChainOp::kAdd, ChainOp::kAdd},
    {"sub", ChainOp::kSub, ChainOp::kSubOf},
    {"mul", ChainOp::kMul, ChainOp::kMul},
    {"div", ChainOp::kDiv, ChainOp::kDivOf},
    {"maximum", ChainOp::kMaximum, ChainOp::kMaximumOf},
    {"minimum", ChainOp::kMinimum, ChainOp::kMinimumOf},
    {"eq", ChainOp::kEq, ChainOp::kEq},
    {"ne", ChainOp::kNe, ChainOp::kNe},
    {"lt", ChainOp::kLt, ChainOp::kGt},
    {"le", ChainOp::kLe, ChainOp::kGe},
    {"gt", ChainOp::kGt, ChainOp::kLt},
    {"ge", ChainOp::kGe, ChainOp::kLe},
    {"relu_grad", ChainOp::kReluGrad, ChainOp::kReluGradOf},
    {"tanh_grad", ChainOp::kTanhGrad, ChainOp::kTanhGradOf},
    {"sigmoid_grad", ChainOp::kSigmoidGrad, ChainOp::kSigmoidGradOf},
    {"copysign", ChainOp::kCopysign, ChainOp::kCopysignOf},
};
constexpr BinaryForm kBoolForms[] = {
    {"logical_and", ChainOp::kAnd, ChainOp::kAnd}, {"bitwise_and", ChainOp::kAnd, ChainOp::kAnd},
    {"mul", ChainOp::kAnd, ChainOp::kAnd},         {"minimum", ChainOp::kAnd, ChainOp::kAnd},
    {"logical_or", ChainOp::kOr, ChainOp::kOr},    {"bitwise_or", ChainOp::kOr, ChainOp::kOr},
    {"add", ChainOp::kOr, ChainOp::kOr},           {"maximum", ChainOp::kOr, ChainOp::kOr},
    {"logical_xor", ChainOp::kXor, ChainOp::kXor}, {"bitwise_xor", ChainOp::kXor, ChainOp::kXor},
    {"ne", ChainOp::kXor, ChainOp::kXor},
};
struct UnaryForm {
  const char* op;
  ChainOp step;
};
constexpr UnaryForm kUnaryForms[] = {
#define X(name, text) {text, ChainOp::k##name},
    PERIGEE_CHAIN_UNARY(X) PERIGEE_CHAIN_MATH(X)
#undef X
};

ChainForm unary(ChainOp op) { return {true, 1, {op, ChainOp::kCount, ChainOp::kCount}, ChainOp::kCount}; }

ChainForm binary(std::span<const BinaryForm> forms, std::string_view op, int8_t operands) {
  for (const BinaryForm& f : forms)
    if (op == f.op) return {true, operands, {f.first, f.second, ChainOp::kCount}, ChainOp::kCount};
  return {false, operands, {}, ChainOp::kCount};
}

// Powers that the span kernel, too, computes as products when the exponent is one number.
ChainOp power(const TileValue& exponent, int level) {
  if (level == 0 || exponent.kind != TileValue::Kind::kConstant) return ChainOp::kCount;
  if (exponent.number == 2) return ChainOp::kSquare;
  if (exponent.number == 3) return ChainOp::kCube;
  if (exponent.number == 0.5) return ChainOp::kSqrt;
  return exponent.number == -1 ? ChainOp::kReciprocal : ChainOp::kCount;
}

ChainForm of_floats(const TileBody& body, const TileValue& v, int level) {
  const std::string_view op = v.op->name;
  if (op == "where") return {true, 3, {ChainOp::kWhereMask, ChainOp::kWhere, ChainOp::kWhereOf}, ChainOp::kCount};
  if (op == "lerp") return {true, 3, {ChainOp::kLerp, ChainOp::kCount, ChainOp::kCount}, ChainOp::kCount};
  if (op == "pow") {
    const ChainOp step = power(body.values[size_t(v.operands[1])], level);
    if (step != ChainOp::kCount) return unary(step);
  }
  if (v.count == 1)
    for (const UnaryForm& f : kUnaryForms)
      if (op == f.op) return unary(f.step);
  return binary(kFloatForms, op, v.count);
}

ChainForm of_bools(const TileValue& v) {
  const std::string_view op = v.op->name;
  if (op == "logical_not" || op == "bitwise_not") return unary(ChainOp::kNot);
  return binary(kBoolForms, op, v.count);
}

ChainForm of_convert(const TileBody& body, const TileValue& v) {
  const DType from = body.values[size_t(v.operands[0])].dtype;
  if (v.dtype == DType::kFloat32) {
    if (from == DType::kFloat16 || from == DType::kBFloat16) return {true, 1, {}, load_op(from)};
    if (from == DType::kBool) return unary(ChainOp::kFromBool);
    if (from == DType::kFloat32) return unary(rounding_op(v.rounded));
  }
  if (v.dtype == DType::kBool && from == DType::kFloat32) return unary(ChainOp::kNonZero);
  return {false, 1, {}, ChainOp::kCount};
}

}  // namespace

ChainForm chain_form(const TileBody& body, const TileValue& v, int level) {
  if (v.kind == TileValue::Kind::kConvert) return of_convert(body, v);
  if (v.kind != TileValue::Kind::kOp) return {};
  if (v.compute == DType::kFloat32) return of_floats(body, v, level);
  if (v.compute == DType::kBool) return of_bools(v);
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
