// Tile programs over small spaces of operands as they are: without threads, tiles and moving addresses.
#include <utility>

#include "tensor/cpu/pointwise/tile_code.h"
#include "tensor/cpu/scratch.h"

namespace pg::cpu {
namespace {

// A table for operands as they are, and room for an element per operand.
struct PlainTable {
  const int64_t table_bytes, shared_bytes;
  const ScratchBytes memory;
  char** const cells;
  char* elements;

  PlainTable(const TileProgram& program, std::span<const View> in, std::span<const View> out)
      : table_bytes(rounded_up(program.cells * int64_t(sizeof(char*)), 64)),
        shared_bytes(rounded_up(
            rounded_up(program.shared_bytes, kElementBytes) + int64_t((in.size() + out.size()) * kElementBytes), 64)),
        memory(Bytes(size_t(table_bytes + shared_bytes + program.local_bytes))),
        cells(reinterpret_cast<char**>(memory.get())) {
    char* const base = memory.get();
    elements = base + table_bytes + rounded_up(program.shared_bytes, kElementBytes);
    for (size_t k = 0; k < in.size(); ++k) cells[k] = in[k].as<char>();
    for (size_t k = 0; k < out.size(); ++k) cells[in.size() + k] = out[k].as<char>();
    place_constants(program, cells);
    place_registers(program.shared, base + table_bytes, cells);
    place_registers(program.local, base + table_bytes + shared_bytes, cells);
  }
};

}  // namespace

bool may_alias(std::span<const View> in, std::span<const View> out) {
  uint64_t seen[4] = {};
  const auto bit = [](const void* p) { return (reinterpret_cast<uintptr_t>(p) >> 2) * 0x9e3779b97f4a7c15u >> 56; };
  for (const View& v : out) seen[bit(v.data) >> 6] |= uint64_t(1) << (bit(v.data) & 63);
  for (const View& v : in)
    if (seen[bit(v.data) >> 6] >> (bit(v.data) & 63) & 1) return true;
  return false;
}

void run_plain(const TiledBody& t, const TileLayout& layout, std::span<const View> in, std::span<const View> out) {
  const PlainTable plain(t.program, in, out);
  char** const table = plain.cells;
  if (layout.size == 1 && !t.program.hazards.empty() && may_alias(in, out)) {
    char* copies = plain.elements;
    for (size_t k = 0; k < in.size(); ++k) {
      std::memcpy(copies + k * kElementBytes, in[k].data, size_t(size_of(in[k].dtype())));
      table[k] = copies + k * kElementBytes;
    }
  }
  run_code(t.program.levels[0], table, 1, false);
  if (layout.size > 1)
    run_code(t.program.levels[2], table, layout.size, t.program.levels[2].pure && !may_alias(in, out));
}

int64_t iterate_tiles(const TiledBody& t, const Recurrence& r, std::span<const View> in, std::span<const View> out,
                      int64_t most) {
  if (most == 0) return 0;
  const PlainTable plain(t.program, in, out);
  char** const table = plain.cells;
  for (size_t k = 0; k < in.size() + out.size(); ++k) {  // the elements become the state
    char* element = plain.elements + k * kElementBytes;
    if (k < in.size()) std::memcpy(element, in[k].data, size_t(size_of(in[k].dtype())));
    table[k] = element;
  }
  int64_t* index = r.index < 0 ? nullptr : reinterpret_cast<int64_t*>(table[r.index]);
  const char* flag = r.flag < 0 ? nullptr : table[in.size() + size_t(r.flag)];
  int64_t n = 0;
  for (bool more = true; n < most && more; ++n) {
    run_code(t.program.levels[0], table, 1, false);
    for (const Recurrence::Carry& c : r.carries) std::swap(table[c.in], table[in.size() + size_t(c.out)]);
    if (index) ++*index;
    if (flag) more = *flag != 0;
  }
  if (flag) std::memcpy(out[size_t(r.flag)].data, flag, 1);
  for (const Recurrence::Carry& c : r.carries)
    std::memcpy(out[size_t(c.out)].data, table[c.in], size_t(size_of(out[size_t(c.out)].dtype())));
  return n;
}

}  // namespace pg::cpu
