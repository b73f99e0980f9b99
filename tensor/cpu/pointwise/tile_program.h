// Programs of the tiled vector machine: the code for a TileBody.
//
// A value that is the same for the whole space is computed once (level 0). A value that is the same along the innermost
// dim is computed once per run (level 1), any other value per element (level 2).
#pragma once
#include <vector>

#include "tensor/cpu/pointwise/native.h"
#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/cpu/pointwise/tile_simd.h"
#include "tensor/cpu/reduce/reduce.h"
#include "tensor/small_vector.h"
#include "tensor/tile.h"

namespace pg::cpu {

static_assert(kMaxTileOperands == kMaxSpanInputs && kMaxTileParams == kMaxSpanParams);

// The index space with neighbouring dims merged where the strides of every input allow it.
struct TileLayout {
  Dims shape;
  SmallVector<Dims, 3> strides;  // of each input, in elements
  int64_t size = 1, inner = 1;
  bool runs = false;  // tiles keep within a run of the innermost dim

  enum class Access : uint8_t {
    kSingle,  // one element for all
    kLinear,  // as the space
    kRun,     // with runs: linear along the innermost dim
    kColumn,  // with runs: constant along the innermost dim
    kGather,  // elements are copied together, tile by tile
  };
  SmallVector<Access, 8> access;

  explicit TileLayout(const TileBody& body);                // inputs without gaps
  TileLayout(const Dims& space, std::span<const View> in);  // inputs as they are in memory
  int8_t level(size_t input) const;                         // at which a program reads the input
  int64_t offset(size_t input, int64_t position) const;     // in elements of the input
  bool periodic(size_t input) const;                        // kGather of the same elements for each run

 private:
  void find_access();
};

// Elements that are reduced at once: what the loops of a reduction take for a block. Longer rows are reduced one by
// one.
inline constexpr int64_t kTotalsBlock = 4096;
inline bool is_long_row(int64_t row) { return row > kTotalsBlock / 2; }

// An entry of the table of addresses.
using Cell = int32_t;

struct TileInstruction {
  enum class Kind : uint8_t { kChain, kSpan, kConvert };
  Kind kind = Kind::kChain;
  uint8_t scalars = 0;  // of kSpan; of kConvert: bit 0
  int32_t first_step = 0;
  SpanFn span = nullptr;
  ConvertFn convert = nullptr;
  Cell in[kMaxSpanInputs] = {}, out = 0;
  double params[kMaxSpanParams] = {};
};

struct TileCode {
  std::vector<TileInstruction> instructions;
  std::vector<Step> steps;
  std::shared_ptr<const NativeCode> native;  // which blocks of the steps run; null: there is none
  bool pure = true;                          // one chain, which needs no tiles
  int64_t cost = 0;                          // picoseconds an element
};

struct TileProgram {
  TileCode levels[3];
  // Level 2 with stores past the caches, for large outputs at multiples of 64 bytes; empty if there is no such code.
  TileCode streaming;
  // Level 2 that adds up the elements of the reductions (ReduceLoops::join_sums), and with such stores too; empty if
  // there is no such code.
  TileCode adding, streaming_adding;

  // The table: inputs, outputs, the elements of each reduction, then the cells below.
  int32_t cells = 0;
  struct Constant {
    Cell cell;
    int32_t at;  // index into `constants`
  };
  struct Register {
    Cell cell;
    int64_t offset;  // bytes
  };
  std::vector<int64_t> constants;  // the bits of one element each
  std::vector<Constant> constant_cells;
  std::vector<Register> shared, local;  // of the run, of a thread of it
  int64_t shared_bytes = 0, local_bytes = 0;
  int64_t tile = kTile;  // elements of a register
  // Pairs where a part of the output is written before the same part of the input is read for the last time.
  struct Hazard {
    int32_t output, input;
  };
  std::vector<Hazard> hazards;

  Cell input_cell(size_t i) const { return Cell(i); }
};

// Sizes of a space from which its code is another one: machine code, which takes some 25 us to make; the same for
// stores past the caches, as the operands of smaller spaces stay in them; such stores for a single op, too.
inline constexpr int64_t kNativeSpace = 1 << 9, kStreamSpace = 1 << 18, kWideSpace = 1 << 22;
inline int space_class(int64_t size) {
  return (size > 1) + (size >= kNativeSpace) + (size >= kStreamSpace) + (size >= kWideSpace);
}

// What an op of tile_reduces computes; null for other ops.
const Reduction* find_reduction(const OpDef& op);

// The code for a body in layouts of the same levels and about this size. Throws nothing but std::bad_alloc for a body
// that keeps the rules of tensor/tile.h.
TileProgram compile_tiles(const TileBody& body, const TileLayout& layout);

}  // namespace pg::cpu
