// Shared by the runs of tile programs.
#pragma once
#include <cstring>

#include "tensor/cpu/pointwise/tile_machine.h"

namespace pg::cpu {

inline constexpr size_t kElementBytes = 8;  // at most

inline int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

inline void place_constants(const TileProgram& program, char** table) {
  for (const auto& c : program.constant_cells)
    table[c.cell] = const_cast<char*>(reinterpret_cast<const char*>(&program.constants[size_t(c.at)]));
}

inline void place_registers(std::span<const TileProgram::Register> registers, char* base, char** table) {
  for (const auto& r : registers) table[r.cell] = base + r.offset;
}

// Runs the instructions over n elements. `table`: the address of the first element of each operand. `repeatable`: no
// output uses the memory of an input. `fetches`: see run_chain. Inline, since short runs come one after the other.
[[gnu::always_inline]] inline void run_code(const TileCode& code, char* const* table, int64_t n, bool repeatable,
                                            std::span<const Fetch> fetches = {}) {
  using Kind = TileInstruction::Kind;
  for (const TileInstruction& i : code.instructions) {
    if (i.kind == Kind::kChain) {
      run_chain(&code.steps[size_t(i.first_step)], table, n, repeatable && code.pure,  // else registers are reused
                fetches);
    } else if (i.kind == Kind::kSpan) {
      const void* in[kMaxSpanInputs] = {table[i.in[0]], table[i.in[1]], table[i.in[2]]};
      i.span(n, table[i.out], in, i.scalars, i.params);
    } else {
      i.convert(n, table[i.in[0]], i.scalars ? 0 : 1, table[i.out]);
    }
  }
}

// Whether an output may use the memory of an input. May return true by mistake, never false.
bool may_alias(std::span<const View> in, std::span<const View> out);

// Runs a plain program over the whole space.
void run_plain(const TiledBody& t, const TileLayout& layout, std::span<const View> in, std::span<const View> out);

}  // namespace pg::cpu
