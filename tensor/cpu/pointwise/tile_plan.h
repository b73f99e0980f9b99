// What the compilers of the levels of a tile program share; a part of tile_compile.cpp.
#pragma once
#include <vector>

#include "tensor/cpu/pointwise/tile_forms.h"

namespace pg::cpu {

inline constexpr int64_t kSingleBytes = 16;          // of a register for one element
inline constexpr int64_t kRegisterBytes = 24 << 10;  // of the registers of a tile, which stay in the first-level cache

// Where a value goes, besides registers, when it is computed.
struct TileTarget {
  int32_t value;
  Cell cell;
  DType dtype;
  int32_t output = -1;             // which, when it is one
  ChainOp adds = ChainOp::kCount;  // adds the value up there instead of storing it
};

// What the compilers of the levels share.
struct TilePlan {
  const TileBody& body;
  TileProgram& program;
  std::vector<int8_t> level;  // of each value
  std::vector<ChainForm> form;
  std::vector<const SpanRow*> row;  // of ops
  std::vector<int32_t> weight;      // roughly, of what must be computed for a value
  std::vector<bool> needed;
  std::vector<Cell> place;                      // of a value at its own and at higher levels; -1: not in memory
  std::vector<int32_t> last_read, first_write;  // of inputs, of outputs: in the order of the code
  int32_t clock = 0;

  const TileValue& value(int32_t v) const { return body.values[size_t(v)]; }
  bool computed(int32_t v) const {
    return value(v).kind == TileValue::Kind::kOp || value(v).kind == TileValue::Kind::kConvert;
  }
  Cell new_cell() { return program.cells++; }
};

}  // namespace pg::cpu
