// The bytecode of Lua functions as lua_dump writes it.
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

// The kinds of constants that are no numbers: BCDUMP_KGC_*.
enum ConstantKind : uint32_t { kChild, kTable, kInt64, kUint64, kComplex, kString };

struct Constant {
  ConstantKind kind = kChild;
  std::string text;  // of a string; of others, its bytes in the dump
  size_t child = 0;  // kChild: its place among the prototypes
};

struct Prototype {
  static constexpr unsigned kLocal = 0x8000,
                            kImmutable = 0x4000;  // flags of upvalues: of the function around it; never assigned
  uint8_t flags = 0, parameters = 0, frame = 0;
  std::vector<Instruction> code;
  std::vector<Constant> constants;
  std::vector<double> numbers;
  std::vector<uint16_t> upvalues;
  std::vector<int> lines;        // one an instruction, or empty
  std::vector<size_t> children;  // functions in it, by their place among the prototypes
  size_t from = 0, to = 0;       // its bytes in the dump, with those of the functions in it
  bool is_vararg() const { return flags & 2; }
};

// What string.dump gives of the Lua function at stack index i.
std::string dump(lua_State* L, int i);

struct Dump {
  std::vector<Prototype> prototypes;  // the function itself is the last; empty where the form is unknown
  std::string header;                 // the bytes before the first prototype
  std::string bytes;
  bool stripped = false, wide_frames = false;  // wide: frames take two slots, as where references have 64 bits
};
Dump parse(std::string bytes);

// A dump of a function that returns what a constant that is no string makes, each time anew: a closure (whose upvalues
// are its own), a table, a number of the FFI.
std::string dump_maker(const Dump& from, const Constant& constant);

// The same for a new table with the room that TNEW's operand d says.
std::string dump_new_table(const Dump& from, unsigned d);

}  // namespace pg::vm
