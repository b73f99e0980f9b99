// The tiled vector machine: runs a tile program over its index space, tile by tile and on several threads.
#pragma once
#include "tensor/cpu/pointwise/tile_program.h"
#include "tensor/cpu/reduce/reduce.h"

namespace pg::cpu {

// A body with its code, for all layouts of the same levels.
struct TiledBody {
  struct Totals {
    Reduction reduction;
    ReduceLoops loops;
  };
  TileBody body;
  TileProgram program;
  std::vector<Totals> totals;  // by reduction of the body
  int64_t widest = 1;          // bytes of an element of the widest operand
  bool one_op = false;

  TiledBody(TileBody body, const TileLayout& layout);
};

// Whether the operands are read as they are: on one thread, without tiles and moving addresses.
bool is_plain(const TiledBody& tiled, const TileLayout& layout);
// Whether threads share `size` elements.
bool is_shared(const TiledBody& tiled, int64_t size);

// `plain`: is_plain of these. `exact`: the layout has the strides of `in`; otherwise it is that of inputs without gaps,
// and those with gaps are read as they are or copied together first.
void run_tiles(const TiledBody& tiled, const TileLayout& layout, bool plain, bool exact, std::span<const View> in,
               std::span<const View> out);

// See TileKernel::run_all. The kernels are TileMachines.
void run_tiles_at_once(std::span<const TileCall> calls);

class TileMachine final : public TileKernel {
 public:
  explicit TileMachine(TileBody body);
  void run(std::span<const View> in, std::span<const View> out, void* stream) const override;
  int64_t iterate(const Recurrence& r, std::span<const View> in, std::span<const View> out,
                  int64_t most) const override;
  bool batches() const override { return tiled_.body.reductions.empty(); }
  void run_all(std::span<const TileCall> calls, void*) const override { run_tiles_at_once(calls); }

  const TileLayout& layout() const { return layout_; }
  const TiledBody& tiled() const { return tiled_; }

 private:
  const TileLayout layout_;
  const TiledBody tiled_;
  const bool plain_;
};

// See TileKernel::iterate. The space is plain and has one element.
int64_t iterate_tiles(const TiledBody& tiled, const Recurrence& r, std::span<const View> in, std::span<const View> out,
                      int64_t most);

}  // namespace pg::cpu
