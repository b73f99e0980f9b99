// The tiled vector machine: runs a tile program over its index space, tile by tile and on several threads.
#pragma once
#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/pointwise/tile_program.h"

namespace pg::cpu {

class TileMachine final : public TileKernel {
 public:
  explicit TileMachine(TileBody body);
  void run(std::span<const View> in, std::span<const View> out, void* stream) const override;

 private:
  friend class TileRun;
  // Small spaces of operands as they are: without threads, tiles and moving addresses.
  bool runs_plainly(std::span<const View> in, std::span<const View> out) const;
  void run_plain(std::span<const View> in, std::span<const View> out) const;

  TileBody body_;
  TileLayout layout_;
  TileProgram program_;
  Reduction reduction_ = {ReduceOp::kSum};
  ReduceLoops loops_ = {};
  bool plain_ = false;
};

// Runs the instructions over n elements; the table holds where each operand's first one stands. `repeatable`: no output
// stands where an input does.
void execute(const TileCode& code, char* const* table, int64_t n, bool repeatable = false);

}  // namespace pg::cpu
