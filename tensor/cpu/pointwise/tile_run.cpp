// The choice between the ways to run a tile program.
#include "tensor/cpu/pointwise/tile_run.h"

#include "tensor/cpu/pointwise/tile_machine.h"

namespace pg::cpu {
namespace {

bool all_dense(const TileLayout& layout, std::span<const View> in) {
  for (size_t k = 0; k < in.size(); ++k)
    if (layout.access[k] == TileLayout::Access::kLinear && !dense(in[k])) return false;
  return true;
}

bool same_levels(const TileLayout& a, const TileLayout& b) {
  for (size_t k = 0; k < a.access.size(); ++k)
    if (a.level(k) != b.level(k)) return false;
  return true;
}

// Smaller spaces are copied together in less time than a layout takes to make.
constexpr int64_t kWorthALayout = 1 << 11;

}  // namespace

bool is_plain(const TiledBody& t, const TileLayout& layout) {
  if (!t.body.reductions.empty() || layout.size == 0 || !t.program.levels[2].pure) return false;
  int64_t bytes = 0;
  for (size_t k = 0; k < t.body.inputs.size(); ++k) {
    if (layout.access[k] != TileLayout::Access::kSingle && layout.access[k] != TileLayout::Access::kLinear)
      return false;
    bytes += size_of(t.body.inputs[k].dtype) * layout.size;
  }
  for (const TileOutput& o : t.body.outputs) bytes += size_of(o.dtype) * layout.size;
  return bytes < kStreamBytes;
}

// A program of several ops shares by its work too.
bool is_shared(const TiledBody& t, int64_t size) {
  const int64_t cost = t.program.levels[2].cost + 1;
  return is_shared(size, t.widest, cost) || (!t.one_op && size * cost > kFewestSplit);
}

void run_tiles(const TiledBody& t, const TileLayout& layout, bool plain, bool exact, std::span<const View> in,
               std::span<const View> out) {
  if (!exact && layout.size >= kWorthALayout && !all_dense(layout, in)) {
    const TileLayout own(t.body.space, in);
    if (same_levels(own, layout)) return run_tiles(t, own, is_plain(t, own), true, in, out);
  }
  plain = plain && (layout.size == 1 || (!is_shared(t, layout.size) && (exact || all_dense(layout, in)) &&
                                         (t.program.hazards.empty() || !may_alias(in, out))));
  if (plain) return run_plain(t, layout, in, out);
  TileRun(t, layout, in, out, exact).run();
}

}  // namespace pg::cpu
