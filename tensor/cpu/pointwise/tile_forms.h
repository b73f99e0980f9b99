// Which ops chains know.
#pragma once
#include "tensor/cpu/pointwise/tile_program.h"

namespace pg::cpu {

// The step for a value, by which operand is in the accumulator; the others are a and b in order. kCount: not that one.
struct ChainForm {
  bool chained = false;
  int8_t operands = 0;  // how many of the value's operands are read
  ChainOp by_operand[kMaxSpanInputs] = {ChainOp::kCount, ChainOp::kCount, ChainOp::kCount};
  ChainOp load = ChainOp::kCount;  // instead: the operand is loaded so
};

// `row`: of the value's op. `level`: of the value.
ChainForm chain_form(const TileBody& body, const TileValue& value, const SpanRow* row, int level);

// The steps between the accumulator and memory; kCount where there is none.
ChainOp load_op(DType memory);
ChainOp store_op(DType value, DType memory);
ChainOp rounding_op(DType t);

// The step that does two with one operand in memory each; kCount where there is none.
ChainOp pair_op(ChainOp first, ChainOp second);

// The step that applies `first` to two operands in memory and `second` to the accumulator and its result.
ChainOp join_op(ChainOp first, ChainOp second);

}  // namespace pg::cpu
