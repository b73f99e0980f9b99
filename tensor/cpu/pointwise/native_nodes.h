// The steps of a chain as a graph of vector operations in static single assignment form.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/cpu/pointwise/tile_simd.h"

namespace pg::cpu {

// How a vector of floats lies in memory. The others are converted on the way; bytes are only loaded.
enum class NativeKind : uint8_t { kFloat, kHalf, kBFloat16, kBool, kByte };

enum class NativeOp : uint8_t {
  kAccumulator,  // as the step before left it
  kConstant,     // `bits` in all lanes
  kScalar,       // one element of memory in all lanes
  kLoad,
  kStore,   // operand 0
  kStream,  // the same, past the caches
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,  // operand 1 when either is NaN, as the instruction of x86
  kMin,
  kSquareAdd,  // the square of operand 0 plus operand 1, rounded once
  kSqrt,
  kRound,  // `mode`: the rounding of x86
  // On bits. Bools are masks: all bits of a lane or none.
  kAnd,
  kAndNot,  // not operand 0, and operand 1
  kOr,
  kXor,
  kCompare,        // `mode`: the predicate of x86
  kSelect,         // operand 1 where operand 0 is a mask that holds, else operand 2
  kCompareSelect,  // operand 2 where the comparison of 0 and 1 holds, else operand 3
  kAddInts,
  kShiftRight,  // by `mode` bits; zeros come in
};

struct NativeNode {
  NativeOp op;
  uint8_t mode = 0;
  NativeKind kind = NativeKind::kFloat;  // of memory
  bool moves = false;                    // memory: an operand, read from the block's index on; else the block's own
  int32_t operands[4] = {-1, -1, -1, -1};
  int32_t cell = 0;  // memory: entry of the table of addresses
  uint32_t bits = 0;

  bool operator==(const NativeNode&) const = default;
  bool writes() const { return op == NativeOp::kStore || op == NativeOp::kStream; }
  bool uniform() const { return op == NativeOp::kConstant || op == NativeOp::kScalar; }  // the same in all lanes
};

// Nodes in the order of their steps. Equal ones are one node, but for stores.
struct NativeGraph {
  std::vector<NativeNode> nodes;
  int32_t result = -1;  // what the step after the run finds in the accumulator; -1: nothing that it reads
};

// Whether a run may have this step.
bool is_native(const Step& step);

// Whether the step computes from the accumulator.
bool reads_accumulator(const Step& step);

// The graph of the run [begin, end) of a chain that ends with kEnd. Memory of the block that no later step reads is
// not written. Its elements must keep their size, since the code may finish some vectors before it reads others.
NativeGraph trace_native(std::span<const Step> chain, size_t begin, size_t end);

}  // namespace pg::cpu
