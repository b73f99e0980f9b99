// Chains: sequences of pointwise ops on float32 as threaded code. A chain keeps one block of eight vectors, the
// accumulator, in registers. Each step applies an op to it, with further operands from memory, and jumps to the next
// step. An op costs one load and one instruction per vector; a span kernel costs two loads and a store.
//
// A bool in the accumulator is a mask (all bits of a lane); in memory it is a byte. Every step computes the bits of the
// span kernel of its op.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/dtype.h"

namespace pg::cpu {

// clang-format off
// Of the accumulator.
#define PERIGEE_CHAIN_UNARY(X) X(Square) X(Cube) X(Root) X(FromBool) X(NonZero) X(RoundHalf) X(RoundBFloat16)
// The accumulator is the first operand; of SubOf it is the second.
#define PERIGEE_CHAIN_BINARY(X) X(Add) X(Sub) X(SubOf) X(Mul)
// Operands a and b from memory: where(a bool, acc, b), where(a bool, b, acc), where(acc, a, b).
#define PERIGEE_CHAIN_TERNARY(X) X(Where) X(WhereOf) X(WhereMask)

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

enum class ChainOp : uint16_t {
  kEnd,
  // Between memory, operand a, and the accumulator.
  kLoad,
  kLoadHalf,
  kLoadBFloat16,
  kLoadBool,
  kLoadByte,  // uint8
  kStore,
  kStoreHalf,
  kStoreBFloat16,
  kStoreBool,
  kStream,  // a store of floats past the caches, to addresses that are multiples of 64
  // Adds the accumulator, or its square, to operand a: the sums of ReduceLoops::join_sums.
  kAddUp,
  kAddSquares,
#define X(name, ...) k##name,
  PERIGEE_CHAIN_UNARY(X) PERIGEE_CHAIN_BINARY(X) PERIGEE_CHAIN_TERNARY(X)
#undef X
#define X(first, second) k##first##Then##second,
      PERIGEE_CHAIN_PAIRS(X)
#undef X
#define X(first, second) kJoin##first##By##second,
          PERIGEE_CHAIN_JOINS(X)
#undef X
              kCount,
  kFormula = 256,  // the first one of formula_step
};

// The step that applies the formula of a span row, with the accumulator as `operand`. `bools`: to bools.
constexpr ChainOp formula_step(int row, bool bools, int operand) {
  return ChainOp(int(ChainOp::kFormula) + row * 4 + int(bools) * 2 + operand);
}

struct Step {
  using Code = void (*)();  // of the types that the instruction set gives; only run_chain calls them
  ChainOp op = ChainOp::kEnd;
  Code block = nullptr, part = nullptr, one = nullptr;
  int32_t a = 0, b = 0;                     // entries of the table of addresses
  int32_t a_mask = -1, b_mask = -1;         // 0: the operand's address stays for all blocks
  bool a_scalar = false, b_scalar = false;  // one element for all
  double params[kMaxSpanParams] = {};       // the op's attributes
};

// Sets the code of a step. Its other fields must be set.
void set_code(Step& step, ChainOp op);

// Roughly, picoseconds an element.
int chain_cost(ChainOp op);

// Elements of one block; block-local memory has room for as many.
int64_t chain_block();

// To be called after chains with kStream steps, before other threads may read what they stored.
void finish_streams();

// An operand that is fetched into the caches a page ahead of the steps, as the hardware does not see beyond a page.
struct Fetch {
  int32_t a = 0;     // entry of the table of addresses
  int32_t size = 0;  // bytes of an element
};

// Runs steps up to kEnd over elements [0, n): element i of an operand is at memory[a] + (i & mask).
// n = 1 is a case of its own, in which all operands are single elements. `repeatable`: elements may be computed twice,
// as nothing that is read has been written over; then a rest is done as one more block. `fetches`: large operands.
void run_chain(const Step* steps, char* const* memory, int64_t n, bool repeatable = false,
               std::span<const Fetch> fetches = {});

}  // namespace pg::cpu
