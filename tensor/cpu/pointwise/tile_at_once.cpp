// Several tile programs that share no memory, as one parallel region.
#include "tensor/cpu/pointwise/tile_machine.h"
#include "tensor/cpu/pointwise/tile_run.h"

namespace pg::cpu {
namespace {

// Picoseconds that a call takes on one thread.
int64_t work_of(const TileCall& call) {
  constexpr int64_t kStart = 100'000;
  const auto& machine = static_cast<const TileMachine&>(*call.kernel);
  return machine.layout().size * (machine.tiled().program.levels[2].cost + 1) + kStart;
}

// Whether several threads may run the call, each for some elements: none of them copies an operand that another one
// writes over, and no output has one element, which each would write.
bool splits(const TiledBody& t, const TileCall& call) {
  const auto& outputs = t.body.outputs;
  return std::all_of(call.in.begin(), call.in.end(), dense) &&
         (t.program.hazards.empty() || !may_alias(call.in, call.out)) &&
         std::none_of(outputs.begin(), outputs.end(), [](const TileOutput& o) { return o.single; });
}

// Runs the share [from, to) of a call that takes `work`. A call that cannot be split belongs to the first share.
void run_share(const TileCall& call, int64_t from, int64_t to, int64_t work) {
  const auto& machine = static_cast<const TileMachine&>(*call.kernel);
  const bool whole = from == 0 && to == work;
  if (whole || !splits(machine.tiled(), call)) {
    if (from == 0) machine.run(call.in, call.out, nullptr);
    return;
  }
  const TileLayout& layout = machine.layout();
  const auto element = [&](int64_t at) { return int64_t(double(layout.size) * double(at) / double(work)); };
  TileRun(machine.tiled(), layout, call.in, call.out, false)
      .run_part(element(from), to == work ? layout.size : element(to));
}

}  // namespace

// The calls one after the other, cut into parts of the same work.
void run_tiles_at_once(std::span<const TileCall> calls) {
  int64_t total = 0;
  for (const TileCall& c : calls) total += work_of(c);
  const int64_t parts = std::min<int64_t>(num_threads(), 4 * total / kGrainPicoseconds);
  if (parts < 2) {
    for (const TileCall& c : calls) c.kernel->run(c.in, c.out);
    return;
  }
  parallel_parts(parts, [&](int64_t begin, int64_t end) {
    int64_t from = total / parts * begin, to = end == parts ? total : total / parts * end;  // relative to the call
    for (const TileCall& c : calls) {
      const int64_t work = work_of(c);
      if (from < work && to > 0) run_share(c, std::max<int64_t>(from, 0), std::min(to, work), work);
      from -= work, to -= work;
    }
  });
}

}  // namespace pg::cpu
