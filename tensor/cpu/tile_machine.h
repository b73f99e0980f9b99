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
  void run_single(std::span<const View> in, std::span<const View> out) const;

  TileBody body_;
  TileLayout layout_;
  TileProgram program_;
  ReduceLoops loops_ = {};
};

// Runs the instructions over n elements; the table holds where each operand's first one stands.
void execute(const TileCode& code, char* const* table, int64_t n);

}  // namespace pg::cpu
