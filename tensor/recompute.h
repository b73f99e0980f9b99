// Rematerialization: a large value that a few cheap ops make from values that stay in memory anyway is computed again
// where it is read much later, instead of being kept. Graphs do so in graph/passes/recompute.cpp, the tape here.
#pragma once
#include "tensor/tape.h"

namespace pg {

constexpr Bytes kWorthRecomputing = Bytes(256 << 10);  // smaller values are not worth a step
constexpr int kRecomputeDepth = 3;                     // length of a chain of ops that recomputes a value

// How output 1 of an op with the trait kCheap is computed again, with the same bits. Operands: k is input k of the
// application, ~k its output k.
struct Recomputation {
  const OpDef* op;
  SmallVector<int32_t, 5> operands;
};
Recomputation recomputation(const OpDef& op, size_t inputs);

// For a new node of the tape, after it has saved what its rule reads: drops the arrays that the nodes behind them
// compute again (TapeNode::again), and output 1 if the node itself can do so (TapeNode::chain).
void save_less(TapeNode& node);

// Returns input or output k of a node of an op, with its link; if the node's rule reads it, with its data. Throws if
// the node that computes it has been released.
Value rule_input(Context& ctx, TapeNode& node, size_t k);
Value rule_output(Context& ctx, TapeNode& node, size_t k);

}  // namespace pg
