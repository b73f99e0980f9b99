// The code of a tile program: the level of each value, the cells of inputs and constants, then the code level by level.
#include "tensor/cpu/reduce/reduce_simd.h"
#include "tensor/cpu/pointwise/tile_level.h"

namespace pg::cpu {
namespace {

using Kind = TileValue::Kind;

void find_levels(TilePlan& p, const TileLayout& layout) {
  for (size_t v = 0; v < p.level.size(); ++v) {
    const TileValue& value = p.body.values[v];
    if (value.kind == Kind::kInput) p.level[v] = layout.level(size_t(value.index));
    for (int k = 0; k < value.count; ++k) p.level[v] = std::max(p.level[v], p.level[size_t(value.operands[k])]);
    if (value.kind == Kind::kOp) p.row[v] = find_span(value.op->name);
    p.form[v] = chain_form(p.body, value, p.row[v], p.level[v]);
    int64_t weight = p.computed(int32_t(v)) ? 1 : 0;
    for (int k = 0; k < p.form[v].operands; ++k)
      if (p.level[size_t(value.operands[k])] == p.level[v]) weight += p.weight[size_t(value.operands[k])];
    p.weight[v] = int32_t(std::min<int64_t>(weight, 1 << 20));
  }
}

// One op from memory to memory takes fewer jumps as a span. The span of where picks element by element, its step does
// not.
void prefer_span(TilePlan& p, const TileLayout& layout) {
  const TileBody& body = p.body;
  if (layout.size >= kWideSpace) return;
  if (!body.reductions.empty() || body.outputs.size() != 1 || body.outputs[0].single) return;
  for (size_t v = 0; v + 1 < body.values.size(); ++v)
    if (p.form[v].chained) return;
  const TileValue& last = body.values.back();
  const bool spans = last.kind == Kind::kOp && !p.row.back()->condition;
  if (spans && size_t(body.outputs[0].value) + 1 == body.values.size() && body.outputs[0].dtype == last.dtype)
    p.form.back() = {false, last.count};
}

void find_needed(TilePlan& p) {
  for (const TileOutput& out : p.body.outputs) p.needed[size_t(out.value)] = true;
  for (const TileReduction& r : p.body.reductions) p.needed[size_t(r.value)] = true;
  for (size_t v = p.needed.size(); v-- > 0;)
    for (int k = 0; p.needed[v] && k < p.form[v].operands; ++k) p.needed[size_t(p.body.values[v].operands[k])] = true;
}

// By dtype and bits.
using KnownConstants = std::map<std::pair<DType, int64_t>, Cell>;

Cell constant_cell(TilePlan& p, KnownConstants& known, const TileValue& value) {
  int64_t bits = 0;
  store_number(value.dtype, &bits, value.number);
  const auto [found, fresh] = known.try_emplace({value.dtype, bits}, p.program.cells);
  if (!fresh) return found->second;
  p.program.constant_cells.push_back({p.new_cell(), int32_t(p.program.constants.size())});
  p.program.constants.push_back(bits);
  return found->second;
}

void place_sources(TilePlan& p) {
  KnownConstants known;
  for (size_t v = 0; v < p.place.size(); ++v) {
    const TileValue& value = p.body.values[v];
    if (value.kind == Kind::kInput) p.place[v] = p.program.input_cell(size_t(value.index));
    if (value.kind == Kind::kConstant && p.needed[v]) p.place[v] = constant_cell(p, known, value);
  }
}

std::vector<TileTarget> output_targets(const TilePlan& p, int level) {
  std::vector<TileTarget> out;
  const size_t inputs = p.body.inputs.size();
  for (size_t i = 0; i < p.body.outputs.size(); ++i) {
    const TileOutput& o = p.body.outputs[i];
    if ((o.single ? 0 : 2) == level) out.push_back({o.value, Cell(inputs + i), o.dtype, int32_t(i)});
  }
  for (size_t k = 0; level == 2 && k < p.body.reductions.size(); ++k) {
    const TileReduction& r = p.body.reductions[k];
    const DType dtype = r.storage == DType::kBool ? DType::kBool : reduce_compute_type(r.storage);
    out.push_back({r.value, Cell(inputs + p.body.outputs.size() + k), dtype});
  }
  return out;
}

// Cells for the values of a lower level that others read.
std::vector<TileTarget> crossing_targets(TilePlan& p, int level) {
  std::vector<bool> crosses(p.level.size(), false);
  for (size_t v = 0; v < p.level.size(); ++v)
    for (int k = 0; p.needed[v] && p.level[v] > level && k < p.form[v].operands; ++k)
      crosses[size_t(p.body.values[v].operands[k])] = true;
  for (const TileTarget& t : output_targets(p, 2)) crosses[size_t(t.value)] = true;
  std::vector<TileTarget> out;
  for (size_t v = 0; v < p.level.size(); ++v) {
    if (!crosses[v] || p.level[v] != level || !p.computed(int32_t(v))) continue;
    const Cell cell = p.new_cell();
    int64_t& bytes = level == 0 ? p.program.shared_bytes : p.program.local_bytes;
    (level == 0 ? p.program.shared : p.program.local).push_back({cell, bytes});
    bytes += kSingleBytes;
    out.push_back({int32_t(v), cell, p.body.values[v].dtype});
  }
  return out;
}

void compile_level(TilePlan& p, int level) {
  std::vector<TileTarget> targets = output_targets(p, level);
  std::vector<TileTarget> crossing;
  if (level < 2) crossing = crossing_targets(p, level);
  targets.insert(targets.end(), crossing.begin(), crossing.end());
  if (targets.empty()) return;
  LevelCompiler compiler(p, level, p.program.levels[level], targets);
  compiler.compile();
  for (const TileTarget& t : crossing) p.place[size_t(t.value)] = t.cell;
}

// Large outputs of floats only.
bool may_stream(const TilePlan& p) {
  return p.program.levels[2].pure && std::any_of(p.body.outputs.begin(), p.body.outputs.end(), [](const TileOutput& o) {
           return !o.single && o.dtype == DType::kFloat32;
         });
}

void compile_streaming(TilePlan& p) {
  if (!may_stream(p)) return;
  LevelCompiler compiler(p, 2, p.program.streaming, output_targets(p, 2), true);
  compiler.compile();
}

ChainOp adding_op(const TileReduction& r) {
  if (reduce_compute_type(r.storage) != DType::kFloat32) return ChainOp::kCount;
  switch (find_reduction(*r.op)->op) {
    case ReduceOp::kSum:
      return ChainOp::kAddUp;
    case ReduceOp::kSumSquares:
      return ChainOp::kAddSquares;
    default:
      return ChainOp::kCount;
  }
}

// For long rows, which are computed block by block in one call each.
void compile_adding(TilePlan& p, const TileLayout& layout) {
  const std::vector<TileReduction>& reductions = p.body.reductions;
  if (reductions.empty() || !is_long_row(reductions[0].row) || layout.runs || !p.program.levels[2].pure) return;
  std::vector<TileTarget> targets = output_targets(p, 2);
  for (size_t k = 0; k < reductions.size(); ++k) {
    ChainOp& adds = targets[targets.size() - reductions.size() + k].adds;
    adds = adding_op(reductions[k]);
    if (adds == ChainOp::kCount) return;
  }
  LevelCompiler(p, 2, p.program.adding, targets).compile();
  if (may_stream(p)) LevelCompiler(p, 2, p.program.streaming_adding, targets, true).compile();
}

void add_native(TileProgram& program, const TileLayout& layout) {
  if (layout.size >= kNativeSpace) program.adding.native = compile_native(program.adding.steps);
  if (layout.size >= kNativeSpace && !program.adding.native)
    program.levels[2].native = compile_native(program.levels[2].steps);
  if (layout.size < kStreamSpace) return;
  program.streaming_adding.native = compile_native(program.streaming_adding.steps);
  if (!program.streaming_adding.native) program.streaming.native = compile_native(program.streaming.steps);
}

void find_hazards(TilePlan& p) {
  for (size_t o = 0; o < p.first_write.size(); ++o)
    for (size_t i = 0; i < p.last_read.size(); ++i)
      if (p.last_read[i] > p.first_write[o]) p.program.hazards.push_back({int32_t(o), int32_t(i)});
}

}  // namespace

TileProgram compile_tiles(const TileBody& body, const TileLayout& layout) {
  TileProgram program;
  const size_t count = body.values.size();
  program.cells = int32_t(body.inputs.size() + body.outputs.size() + body.reductions.size());
  TilePlan p{body,
             program,
             std::vector<int8_t>(count, 0),
             std::vector<ChainForm>(count),
             std::vector<const SpanRow*>(count, nullptr),
             std::vector<int32_t>(count, 0),
             std::vector<bool>(count, false),
             std::vector<Cell>(count, -1),
             std::vector<int32_t>(body.inputs.size(), -1),
             std::vector<int32_t>(body.outputs.size(), INT32_MAX)};
  find_levels(p, layout);
  prefer_span(p, layout);
  find_needed(p);
  place_sources(p);
  for (int level = 0; level < 3; ++level) compile_level(p, level);
  find_hazards(p);
  compile_streaming(p);
  compile_adding(p, layout);
  add_native(program, layout);
  return program;
}

}  // namespace pg::cpu
