// The tiled vector machine: runs a tile program over its index space, tile by tile and on several threads.
#pragma once
#include "tensor/cpu/tile_program.h"
#include "tensor/kernel.h"

namespace pg::cpu {

// Immutable; `run` may be called from several threads at once. Results do not depend on the number of threads.
class TileMachine {
 public:
  explicit TileMachine(TileBody body);

  // `in`: the body's inputs, of any strides. `out`: its outputs, contiguous, and last the result of its reduction when
  // it has one. An output may be the memory of an input of the same shape and element size.
  void run(std::span<const View> in, std::span<const View> out) const;

 private:
  friend class TileRun;
  // Small spaces of operands as they are: without threads, tiles and moving addresses.
  bool runs_plainly(std::span<const View> in, std::span<const View> out) const;
  void run_plain(std::span<const View> in, std::span<const View> out) const;

  TileBody body_;
  TileLayout layout_;
  TileProgram program_;
  ReduceLoops loops_ = {};
  bool plain_ = false;
};

// Runs the instructions over n elements; the table holds where each operand's first one stands. `repeatable`: no output
// stands where an input does.
void execute(const TileCode& code, char* const* table, int64_t n, bool repeatable = false);

}  // namespace pg::cpu
