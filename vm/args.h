// From Lua arguments to the inputs and attributes of an op, driven by the op's row.
#pragma once
#include "vm/box.h"

namespace pg::vm {

// One position of a call: an input or an attribute of the row.
struct Slot {
  bool is_input;
  int index;      // of the InputDef or AttrDef
  bool variadic;  // a list that may be given as several arguments
};

// What every Lua function of an op shares.
struct OpBinding {
  const OpDef* op;
  std::vector<Slot> slots;
  int first_list_attr = -1;  // slot of the first list attribute
};
OpBinding make_binding(const OpDef& op);

struct Call {
  SmallVector<Value, 4> inputs;  // flattened
  Attrs attrs;
};

// Reads the arguments from stack index `first` on. Throws the op's argument errors.
void read_arguments(lua_State* L, State& state, const OpBinding& binding, int first, Call& call);

// One attribute value from stack index i.
AttrValue read_attr(lua_State* L, State& state, const OpDef& op, const AttrDef& def, int i);

// A whole number; throws `op: bad argument 'name' (expected …, got …)`.
int64_t check_integer(lua_State* L, State& state, int i, const char* op, const char* name,
                      const char* expected = "a whole number");
std::string check_string(lua_State* L, State& state, int i, const char* op, const char* name,
                         const char* expected = "a string");
DType check_dtype(lua_State* L, State& state, int i, const char* op, const char* name);
Device check_device(lua_State* L, State& state, int i, const char* op, const char* name);

// Optional field of an options table; pushes it and answers whether it is there.
bool option(lua_State* L, int table, const char* name);

// Throws when the table at `i` has a key outside `known`.
void check_options(lua_State* L, State& state, int i, const char* op, std::initializer_list<std::string_view> known);
[[noreturn]] void unknown_option(const char* op, const std::string& key, std::span<const std::string_view> known);

Generator* to_generator(lua_State* L, State& state, int i);

}  // namespace pg::vm
