// Parses the bytecode of Lua functions in the format of lua_dump.
#pragma once
#include <cstdint>
#include <lua.hpp>
#include <string>
#include <vector>

namespace pg::vm {

struct Instruction {
  uint8_t op, a, c, b;
  unsigned d() const { return unsigned(c) | unsigned(b) << 8; }
};

// The kinds of constants other than numbers: BCDUMP_KGC_*.
enum ConstantKind : uint32_t { kChild, kTable, kInt64, kUint64, kComplex, kString };

struct Constant {
  ConstantKind kind = kChild;
  std::string text;  // the string, or the bytes of another constant in the dump
  size_t child = 0;  // for kChild: its index among the prototypes
};

struct Prototype {
  static constexpr unsigned kLocal = 0x8000,
                            kImmutable =
                                0x4000;  // flags of upvalues: a local of the enclosing function; never assigned
  uint8_t flags = 0, parameters = 0, frame = 0;
  std::vector<Instruction> code;
  std::vector<Constant> constants;
  std::vector<double> numbers;
  std::vector<uint16_t> upvalues;
  std::vector<int> lines;        // one per instruction, or empty
  std::vector<size_t> children;  // nested functions, by their index among the prototypes
  size_t from = 0, to = 0;       // its range of bytes in the dump, including nested functions
  bool is_vararg() const { return flags & 2; }
};

// Returns string.dump of the Lua function at stack index i.
std::string dump(lua_State* L, int i);

struct Dump {
  std::vector<Prototype> prototypes;  // the function itself is the last; empty if the format is unknown
  std::string header;                 // the bytes before the first prototype
  std::string bytes;
  bool stripped = false, wide_frames = false;  // wide: frames take two slots, as with 64-bit references
};
Dump parse(std::string bytes);

// Returns the dump of a function that returns a new value of the constant, which is not a string, at each call: a
// closure with new upvalues, a table or an FFI number.
std::string dump_maker(const Dump& from, const Constant& constant);

// The same for a new table with the sizes of TNEW's operand d.
std::string dump_new_table(const Dump& from, unsigned d);

}  // namespace pg::vm
