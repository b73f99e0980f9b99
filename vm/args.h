// Reads the inputs and attributes of an op from Lua arguments, as the op's row specifies.
#pragma once
#include "vm/box.h"

namespace pg::vm {

// One position of a call: an input or an attribute of the row.
struct Slot {
  bool is_input;
  int index;      // into the InputDefs or AttrDefs
  bool variadic;  // a list that may also be given as several arguments
};

inline bool is_list(AttrKind kind) {
  return kind == AttrKind::kInts || kind == AttrKind::kFloats || kind == AttrKind::kDims;
}

// The data that all Lua functions of an op share.
struct OpBinding {
  const OpDef* op;
  std::vector<Slot> slots;
  int first_list_attr = -1;      // slot of the first list attribute
  const Alias* alias = nullptr;  // of a binding for an alias that sets an attribute, which has no slot
};
OpBinding make_binding(const OpDef& op, const Alias* alias = nullptr);

struct Call {
  SmallVector<Value, 4> inputs;  // flattened
  Attrs attrs;
  Attrs options;  // empty, or the values of OpDef::options
};

// Reads the arguments from stack index `first` on. Throws the op's argument errors.
void read_arguments(lua_State* L, State& state, const OpBinding& binding, int first, Call& call);

// Reads one attribute value from stack index i.
AttrValue read_attr(lua_State* L, State& state, const OpDef& op, const AttrDef& def, int i);

// These return the value at stack index i, or throw `op: bad argument 'name' (expected …, got …)`.
int64_t check_integer(lua_State* L, State& state, int i, const char* op, const char* name,
                      const char* expected = "a whole number");
std::string check_string(lua_State* L, State& state, int i, const char* op, const char* name,
                         const char* expected = "a string");
DType check_dtype(lua_State* L, State& state, int i, const char* op, const char* name);
Device check_device(lua_State* L, State& state, int i, const char* op, const char* name);

// Pushes a field of the options table and returns whether it is not nil.
bool option(lua_State* L, int table, const char* name);

// A field of the table; "", `fallback` or false where it is nil or of another type. flag_option takes any value for a
// table, which need not be one.
std::string text_field(lua_State* L, int table, const char* name);
double number_field(lua_State* L, int table, const char* name, double fallback);
bool flag_field(lua_State* L, int table, const char* name, bool fallback);
bool flag_option(lua_State* L, int table, const char* name);

// Throws if the table at `i` has a key outside of `known`.
void check_options(lua_State* L, State& state, int i, const char* op, std::initializer_list<std::string_view> known);

// Returns what a script may pass for input i of the op: "a tensor" or "a tensor or a number".
const char* expected_input(const OpDef& op, size_t i);

// Runs f, which reads or writes files and may be interrupted. Its errors name the function `op` that the script called.
template <class F>
void access_files(State& state, std::string_view op, F&& f) {
  with_name(op, [&] { state.ctx.cancellable(f); });
}

Generator* to_generator(lua_State* L, State& state, int i);

}  // namespace pg::vm
