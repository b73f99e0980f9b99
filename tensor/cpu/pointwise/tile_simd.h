// Chains: runs of pointwise ops on float32 as threaded code. A chain keeps one block of eight vectors in registers, the
// accumulator; each step applies an op to it, with further operands from memory, and jumps to the next step. So an
// op costs one load and one instruction a vector, where a span kernel costs two loads and a store.
//
// A bool in the accumulator is a mask (all bits of a lane); in memory it is a byte. Every step computes the bits of the
// span kernel of its op.
#pragma once
#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace pg::cpu {

// clang-format off
// Ops of one operand, the accumulator: name and name in the registry.
#define PERIGEE_CHAIN_UNARY(X)                                                                                     \
  X(Neg, "neg") X(Abs, "abs") X(Sign, "sign") X(Square, "square") X(Cube, "") X(Sqrt, "sqrt") X(Rsqrt, "rsqrt")    \
  X(Reciprocal, "reciprocal") X(Floor, "floor") X(Ceil, "ceil") X(Round, "round") X(Trunc, "trunc")                \
  X(Relu, "relu") X(Relu6, "relu6") X(LeakyRelu, "leaky_relu") X(Hardtanh, "hardtanh")                             \
  X(Hardsigmoid, "hardsigmoid") X(Hardswish, "hardswish") X(Softsign, "softsign")                                  \
  X(IsNan, "isnan") X(IsInf, "isinf") X(IsFinite, "isfinite")                                                      \
  X(Not, "") X(FromBool, "") X(NonZero, "") X(RoundHalf, "") X(RoundBFloat16, "")
#define PERIGEE_CHAIN_MATH(X)                                                                                      \
  X(Exp, "exp") X(Exp2, "exp2") X(Expm1, "expm1") X(Log, "log") X(Log2, "log2") X(Log1p, "log1p") X(Tanh, "tanh")  \
  X(Sigmoid, "sigmoid") X(Erf, "erf") X(Sin, "sin") X(Cos, "cos") X(Tan, "tan") X(Silu, "silu") X(Mish, "mish")    \
  X(Gelu, "gelu") X(Elu, "elu") X(Celu, "celu") X(Selu, "selu") X(Softplus, "softplus")                            \
  X(Logsigmoid, "logsigmoid")
// The accumulator is the first operand; of the names with Of it is the second.
#define PERIGEE_CHAIN_BINARY(X)                                                                                    \
  X(Add) X(Sub) X(SubOf) X(Mul) X(Div) X(DivOf) X(Maximum) X(MaximumOf) X(Minimum) X(MinimumOf)                    \
  X(Eq) X(Ne) X(Lt) X(Le) X(Gt) X(Ge)                                                                              \
  X(ReluGrad) X(ReluGradOf) X(TanhGrad) X(TanhGradOf) X(SigmoidGrad) X(SigmoidGradOf) X(Copysign) X(CopysignOf)
// Both operands bools.
#define PERIGEE_CHAIN_LOGIC(X) X(And) X(Or) X(Xor)
// Operands a and b from memory: where(a bool, acc, b), where(a bool, b, acc), where(acc, a, b), lerp(acc, a, b).
#define PERIGEE_CHAIN_TERNARY(X) X(Where) X(WhereOf) X(WhereMask) X(Lerp)

// Two steps as one: the accumulator (or a) and a by the first op, then b by the second. With two roundings.
#define PERIGEE_CHAIN_PAIRS(X)                                              \
  X(Load, Add) X(Load, Sub) X(Load, SubOf) X(Load, Mul)                     \
  X(Add, Add) X(Add, Sub) X(Add, SubOf) X(Add, Mul)                         \
  X(Sub, Add) X(Sub, Sub) X(Sub, SubOf) X(Sub, Mul)                         \
  X(SubOf, Add) X(SubOf, Sub) X(SubOf, SubOf) X(SubOf, Mul)                 \
  X(Mul, Add) X(Mul, Sub) X(Mul, SubOf) X(Mul, Mul)

// The first op applied to a and b, then the second to the accumulator and that. With two roundings.
#define PERIGEE_CHAIN_JOINS(X)                          \
  X(Mul, Add) X(Mul, Sub) X(Mul, SubOf) X(Mul, Mul)     \
  X(Add, Add) X(Add, Sub) X(Add, SubOf) X(Add, Mul)     \
  X(Sub, Add) X(Sub, Sub) X(Sub, SubOf) X(Sub, Mul)
// clang-format on

enum class ChainOp : uint8_t {
  kEnd,
  // Between memory, operand a, and the accumulator.
  kLoad,
  kLoadHalf,
  kLoadBFloat16,
  kLoadBool,
  kStore,
  kStoreHalf,
  kStoreBFloat16,
  kStoreBool,
  kStream,  // a store of floats past the caches, to addresses that are multiples of 64
#define X(name, ...) k##name,
  PERIGEE_CHAIN_UNARY(X) PERIGEE_CHAIN_MATH(X) PERIGEE_CHAIN_BINARY(X) PERIGEE_CHAIN_LOGIC(X) PERIGEE_CHAIN_TERNARY(X)
#undef X
#define X(first, second) k##first##Then##second,
      PERIGEE_CHAIN_PAIRS(X)
#undef X
#define X(first, second) kJoin##first##By##second,
          PERIGEE_CHAIN_JOINS(X)
#undef X
              kCount
};

struct Step {
  using Code = void (*)();  // of the types that the instruction set gives; only run_chain calls them
  Code block = nullptr, part = nullptr, one = nullptr;
  int32_t a = 0, b = 0;                     // entries of the table of addresses
  int32_t a_mask = -1, b_mask = -1;         // 0: the operand's address stays for all blocks
  bool a_scalar = false, b_scalar = false;  // one element for all
  double params[2] = {};                    // the op's attributes
};

// Fills in the code of a step whose other fields stand.
void set_code(Step& step, ChainOp op);

// Roughly, picoseconds an element.
int chain_cost(ChainOp op);

// Elements of one block; block-local memory has room for as many.
int64_t chain_block();

// To be called after chains with kStream steps, before other threads may read what they stored.
void finish_streams();

// Runs steps up to kEnd over elements [0, n): element i of an operand stands at memory[a] + i, with the mask i & mask.
// n = 1 is a case of its own, in which all operands are single elements. `repeatable`: elements may be computed twice,
// as nothing that is read has been written over; then a rest is done as one more block.
void run_chain(const Step* steps, char* const* memory, int64_t n, bool repeatable = false);

}  // namespace pg::cpu
