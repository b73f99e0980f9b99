// Decodes the bytecode of a Lua function for the interpreter of traces (stdlib/hybrid/interpret.lua).
#include <new>

#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/dump.h"

namespace pg::vm {
namespace {

void load_maker(lua_State* L, const std::string& bytes) {
  const int status = luaL_loadbuffer(L, bytes.data(), bytes.size(), "=maker");
  if (status == LUA_ERRMEM) throw std::bad_alloc();
  if (status) throw Error(std::string("decode: ") + lua_tostring(L, -1));
}

// Pushes a table of the constants: strings as they are, others as functions that make a new value at each call.
void push_constants(lua_State* L, const Dump& from, const Prototype& p) {
  lua_createtable(L, int(p.constants.size()), 1);
  for (size_t i = 0; i < p.constants.size(); ++i) {
    const Constant& k = p.constants[i];
    if (k.kind == kString)
      lua_pushlstring(L, k.text.data(), k.text.size());
    else
      load_maker(L, dump_maker(from, k));
    lua_rawseti(L, -2, int(i));
  }
}

template <class List>
void push_numbers(lua_State* L, const List& list, int first) {
  lua_createtable(L, int(list.size()) + 1, 1);
  for (size_t i = 0; i < list.size(); ++i) {
    lua_pushnumber(L, double(list[i]));
    lua_rawseti(L, -2, int(i) + first);
  }
}

// decode(f) → {code = a string of 4 bytes per instruction (op, a, c, b), constants = a table from index 0, numbers = a
// table from index 0, upvalues = the captured register or upvalue of each, parameters =, frame = the number of
// registers, vararg =, lines = one per instruction, arguments = the offset of a call's arguments from its function}.
// Returns nothing for C functions.
int decode(lua_State* L, State& state) {
  if (!lua_isfunction(L, 1)) bad_argument("decode", "f", "a function", describe(L, state, 1));
  if (lua_iscfunction(L, 1)) return 0;
  const Dump all = parse(dump(L, 1));
  if (all.prototypes.empty()) throw Error("decode: bytecode of an unknown form");
  const Prototype& p = all.prototypes.back();
  lua_createtable(L, 0, 8);
  std::string code;
  for (const Instruction& i : p.code) code += {char(i.op), char(i.a), char(i.c), char(i.b)};
  lua_pushlstring(L, code.data(), code.size());
  lua_setfield(L, -2, "code");
  push_constants(L, all, p);
  lua_setfield(L, -2, "constants");
  push_numbers(L, p.numbers, 0);
  lua_setfield(L, -2, "numbers");
  push_numbers(L, p.upvalues, 1);
  lua_setfield(L, -2, "upvalues");
  push_numbers(L, p.lines, 1);
  lua_setfield(L, -2, "lines");
  lua_pushnumber(L, p.parameters);
  lua_setfield(L, -2, "parameters");
  lua_pushnumber(L, p.frame);
  lua_setfield(L, -2, "frame");
  lua_pushboolean(L, p.is_vararg());
  lua_setfield(L, -2, "vararg");
  lua_pushnumber(L, all.wide_frames ? 2 : 1);
  lua_setfield(L, -2, "arguments");
  return 1;
}

// new_table(d) → a function that makes tables as the instruction TNEW with operand d does.
int new_table(lua_State* L, State& state) {
  const int64_t d = check_integer(L, state, 1, "new_table", "d");
  if (luaL_loadbuffer(L, "", 0, "=maker")) throw std::bad_alloc();
  const Dump empty = parse(dump(L, lua_gettop(L)));
  load_maker(L, dump_new_table(empty, unsigned(d) & 0xffff));
  return 1;
}

// set_interpreter(position, run, list) sets three functions of the interpreter of traces. position() → the file and
// line of the innermost script frame, or nothing. run is the function that runs frames. list() → the script's frames,
// innermost first, as pairs of "file:line" and a description, with false after the frames of each call of run.
int interpreter(lua_State* L, State& state) {
  for (const int i : {1, 2, 3})
    if (!lua_isfunction(L, i)) bad_argument("set_interpreter", "f", "functions", describe(L, state, i));
  lua_settop(L, 3);
  set_interpreted_frames(L);
  set_interpreter(L);
  return 0;
}

// is_own(f) → whether f is a C function of this library.
int is_own(lua_State* L, State& state) {
  const bool has = lua_iscfunction(L, 1) && lua_getupvalue(L, 1, 1);
  lua_pushboolean(L, has && lua_islightuserdata(L, -1) && lua_touserdata(L, -1) == &state);
  return 1;
}

}  // namespace

void open_decode(lua_State* L, State& state) {
  lua_getfield(L, -1, "introspect");
  register_functions(L, state,
                     {{"decode", entry<decode>},
                      {"new_table", entry<new_table>},
                      {"is_own", entry<is_own>},
                      {"set_interpreter", entry<interpreter>}});
  lua_pop(L, 1);
}

}  // namespace pg::vm
