// The module: builds `core`, runs stdlib/init.lua with it and returns the table pg.
#include <cstring>
#include <fstream>
#include <sstream>

#include "graph/passes/passes.h"
#include "tensor/buffer.h"
#include "tensor/settings.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/call_depth.h"
#include "vm/hints.h"
#include "vm/job.h"
#include "vm/sandbox.h"
#include "vm/trace.h"
#include "vm/embedded.h"

namespace pg::vm {
namespace {

const RegistryKey kModule, kRequire;

const EmbeddedFile* find_embedded(const std::string& name) {
  for (const EmbeddedFile& f : embedded_files())
    if (name == f.name) return &f;
  return nullptr;
}

// Reads a file of the stdlib: from the folder PERIGEE_STDLIB if that is set, else from the binary.
bool read_library_file(const std::string& name, std::string& text) {
  if (const char* folder = setting("PERIGEE_STDLIB")) {
    std::ifstream file(std::string(folder) + "/" + name, std::ios::binary);
    if (!file) return false;
    std::stringstream content;
    content << file.rdbuf();
    text = content.str();
    return true;
  }
  const EmbeddedFile* file = find_embedded(name);
  if (file) text.assign(reinterpret_cast<const char*>(file->data), file->size);
  return file != nullptr;
}

void load_chunk(lua_State* L, const std::string& name) {
  std::string text;
  if (!read_library_file(name, text)) {
    const char* folder = setting("PERIGEE_STDLIB");
    throw Error(folder ? fmt::format("PERIGEE_STDLIB: no file '{}/{}'", folder, name)
                       : fmt::format("the library has no file '{}'", name));
  }
  if (luaL_loadbuffer(L, text.data(), text.size(), ("@stdlib/" + name).c_str()))
    throw PositionedError(lua_tostring(L, -1));
  enter_library(L);
}

// core.require("nn.block") runs stdlib/nn/block.lua once. Upvalues 2 and 3 are core and the table of loaded modules.
int require_module(lua_State* L, State& state) {
  std::string name = check_string(L, state, 1, "require", "name");
  lua_settop(L, 1);
  lua_pushvalue(L, 1);
  lua_rawget(L, table_upvalue(L, 3));
  if (!lua_isnil(L, -1)) return 1;
  for (char& c : name)
    if (c == '.') c = '/';
  load_chunk(L, name + ".lua");
  lua_pushvalue(L, table_upvalue(L, 2));
  lua_call(L, 1, 1);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushboolean(L, true);
  }
  lua_pushvalue(L, 1);
  lua_pushvalue(L, -2);
  lua_rawset(L, table_upvalue(L, 3));
  return 1;
}

// embedded(name) → the content of a file of the stdlib, or nil
int embedded(lua_State* L, State& state) {
  std::string text;
  if (!read_library_file(check_string(L, state, 1, "embedded", "name"), text)) return lua_pushnil(L), 1;
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

int embedded_names(lua_State* L, State&) {
  push_names(L, embedded_files(), &EmbeddedFile::name);
  return 1;
}

void push_inputs(lua_State* L, const OpDef& op) {
  lua_createtable(L, int(op.inputs.size()), 0);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const InputDef& def = op.inputs[i];
    lua_newtable(L);
    lua_pushstring(L, def.name), lua_setfield(L, -2, "name");
    lua_pushstring(L, def.doc), lua_setfield(L, -2, "doc");
    lua_pushstring(L, def.arity == Arity::kOne    ? "one"
                      : def.arity == Arity::kList ? "list"
                                                  : "optional"),
        lua_setfield(L, -2, "arity");
    lua_pushnumber(L, def.low), lua_setfield(L, -2, "low");
    lua_pushnumber(L, def.high), lua_setfield(L, -2, "high");
    lua_newtable(L);
    for (int t = 0; t < kDTypeCount; ++t) {
      lua_pushboolean(L, accepts(def.dtypes, DType(t)));
      lua_setfield(L, -2, name_of(DType(t)));
    }
    lua_setfield(L, -2, "dtypes");
    lua_rawseti(L, -2, int(i) + 1);
  }
}

// Adds the rows of attributes to the table on top of the stack, without the one named `left_out`. `option`: scripts
// give them by name only.
void push_attr_rows(lua_State* L, std::span<const AttrDef> defs, bool option, const char* left_out) {
  static const char* const kinds[] = {"bool", "int",    "float", "string", "dtype",  "device",
                                      "ints", "floats", "dim",   "dims",   "random", "graph"};
  static_assert(std::size(kinds) == size_t(AttrKind::kGraph) + 1);
  for (const AttrDef& def : defs) {
    if (left_out && !std::strcmp(def.name, left_out)) continue;
    lua_newtable(L);
    lua_pushboolean(L, option), lua_setfield(L, -2, "option");
    lua_pushstring(L, def.name), lua_setfield(L, -2, "name");
    lua_pushstring(L, def.doc), lua_setfield(L, -2, "doc");
    lua_pushstring(L, kinds[int(def.kind)]), lua_setfield(L, -2, "kind");
    lua_pushboolean(L, def.optional), lua_setfield(L, -2, "optional");
    lua_pushboolean(L, def.fallback.index() == 0 && !def.optional && def.kind != AttrKind::kRandom),
        lua_setfield(L, -2, "required");
    lua_pushstring(L, to_string(def.fallback).c_str()), lua_setfield(L, -2, "default");
    push_names(L, def.choices), lua_setfield(L, -2, "choices");
    lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
  }
}

// What the aliases of an op are: {name =, call = "reshape" or "to{dtype = float32}"}.
void push_alias_rows(lua_State* L, const OpDef& op) {
  lua_newtable(L);
  for (const Alias& alias : op.aliases) {
    std::string call = op.name;
    if (const auto* dtype = std::get_if<DType>(&alias.value))
      call += fmt::format("{{{} = \"{}\"}}", alias.attr, name_of(*dtype));
    else if (alias.attr)
      call += fmt::format("{{{} = {}}}", alias.attr, to_string(alias.value));
    lua_newtable(L);
    lua_pushstring(L, alias.name), lua_setfield(L, -2, "name");
    lua_pushstring(L, call.c_str()), lua_setfield(L, -2, "call");
    lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
  }
}

// op_row(name) → the row as a table, or nil: for help, stubs and generated tests. For an alias it is the row of its op
// under this name, with the op's name in the field `main`.
int op_row(lua_State* L, State& state) {
  const std::string name = check_string(L, state, 1, "op_row", "name");
  const AliasOf* alias = registry().find_alias(name);
  const OpDef* op = alias ? alias->op : registry().find(name);
  if (!op || op->has(kBodies)) return lua_pushnil(L), 1;  // pg.cond and pg.loop are functions of their own
  const OpBinding binding = make_binding(*op, alias ? alias->alias : nullptr);
  lua_newtable(L);
  lua_pushstring(L, name.c_str()), lua_setfield(L, -2, "name");
  lua_pushstring(L, op->name), lua_setfield(L, -2, "main");
  lua_pushstring(L, public_name(name).c_str()), lua_setfield(L, -2, "public");
  lua_pushstring(L, op->doc), lua_setfield(L, -2, "doc");
  lua_pushstring(L, op->example), lua_setfield(L, -2, "example");
  const std::pair<const char*, Traits> traits[] = {
      {"view", kView},     {"pointwise", kPointwise},        {"random", kRandom},          {"no_grad", kNoGrad},
      {"hidden", kHidden}, {"dynamic_shape", kDynamicShape}, {"list_output", kListOutput}, {"in_place", kInPlace},
      {"effect", kEffect}};
  for (const auto& [name, trait] : traits) lua_pushboolean(L, op->has(trait)), lua_setfield(L, -2, name);
  lua_pushboolean(L, op->differentiable() || (op->decompose && !op->has(kNoGrad))),
      lua_setfield(L, -2, "differentiable");
  push_inputs(L, *op), lua_setfield(L, -2, "inputs");
  push_alias_rows(L, *op), lua_setfield(L, -2, "aliases");
  lua_newtable(L);
  push_attr_rows(L, op->attrs, false, binding.alias ? binding.alias->attr : nullptr);
  push_attr_rows(L, op->options, true, nullptr);
  lua_setfield(L, -2, "attrs");
  push_names(L, binding.slots, [&](const Slot& s) {
    return s.is_input ? op->inputs[size_t(s.index)].name : op->attrs[size_t(s.index)].name;
  });
  lua_setfield(L, -2, "signature");
  push_names(L, op->outputs), lua_setfield(L, -2, "outputs");
  return 1;
}

// op_names(hidden) → the sorted names of the registry
int op_names(lua_State* L, State&) {
  const bool hidden = lua_toboolean(L, 1);
  std::vector<const char*> names;
  for (const OpDef* op : registry().ops())
    if ((hidden || !op->has(kHidden)) && !op->has(kBodies)) names.push_back(op->name);
  push_names(L, names);
  return 1;
}

// op_aliases() → the sorted names of all aliases
int op_aliases(lua_State* L, State&) {
  push_names(L, registry().aliases(), [](const AliasOf& a) { return a.alias->name; });
  return 1;
}

// pass_names() → the names of the passes, in the order in which they run
int pass_names(lua_State* L, State&) {
  push_names(L, passes(), &Pass::name);
  return 1;
}

// compile(text, name) → the function of code that the library generates, or nil and the message. A sandbox's load would
// not let it have a name of the library, and positions of errors and tracebacks would count it as the script's.
int compile(lua_State* L, State& state) {
  const std::string text = check_string(L, state, 1, "compile", "text");
  const std::string name = check_string(L, state, 2, "compile", "name");
  if (luaL_loadbuffer(L, text.data(), text.size(), name.c_str()) == 0) return 1;
  lua_pushnil(L);
  lua_insert(L, -2);
  return 2;
}

int open_core(lua_State* L, State& state) {
  check_pass_settings();
  open_box(L, state);
  lua_pop(L, 1);
  lua_newtable(L);
  open_ops(L, state);
  open_autograd(L, state);
  open_tensor(L, state);
  open_index(L, state);
  open_print(L, state);
  open_effects(L, state);
  open_parameter(L, state);
  open_random(L, state);
  open_trace(L, state);
  open_symbols(L, state);
  open_memory(L, state);
  open_observe(L, state);
  open_files(L, state);
  open_graph(L, state);
  open_errors(L, state);
  open_traceback(L, state);
  open_jobs(L, state);
  open_hints(L, state);
  open_introspect(L, state);
  open_decode(L, state);
  open_hidden(L, state);
  open_terminal(L, state);
  open_library(L, state);
  push_names(L, kOpModules), lua_setfield(L, -2, "op_modules");
  if (is_sandbox(L)) lua_pushboolean(L, true), lua_setfield(L, -2, "sandboxed");
  push_newproxy(L);  // which a host may take from scripts
  lua_setfield(L, -2, "newproxy");
  load_chunk(L, "init.lua");
  lua_pushvalue(L, -2);
  lua_call(L, 1, 1);
  return 1;
}

// Trace stitching compiles across calls of C functions. It has two defects, which tests/luajit demonstrates:
// - In Debian 12's LuaJIT `local x = ...` and `(...)` get the wrong argument after such a call (fixed by LuaJIT
// 6bda30d8).
// - In all versions of v2.1 a trace may be collected, with code that was loaded and dropped, while its successor is
// recorded.
void stop_stitching(lua_State* L) {
  if (luaL_dostring(L, "if jit and jit.opt then jit.opt.start('minstitch=100000') end")) lua_pop(L, 1);
}

// next and pairs for Debian 12's LuaJIT. It compiles loops over its own next into code that may end early or never,
// once a loop around them was given up (tests/luajit/nested_pairs.lua; fixed by LuaJIT 1cdff194, 32984282, dad04f17 and
// 119fd1fa). Loops over any other function are compiled as calls.
constexpr char kTraversals[] = R"LUA(
local next, type, error = next, type, error
local function fail(name, t) error(("bad argument #1 to '%s' (table expected, got %s)"):format(name, type(t)), 3) end
local function step(t, key)
  if type(t) ~= "table" then fail("next", t) end
  return next(t, key)
end
return step, function(t)
  if type(t) ~= "table" then fail("pairs", t) end
  return step, t, nil
end)LUA";

void replace_traversals(lua_State* L) {
  lua_getglobal(L, "jit");
  lua_getfield(L, -1, "version");
  if (lua_tostring(L, -1) == std::string_view("LuaJIT 2.1.0-beta3")) {  // later ones end in a date
    luaL_loadbuffer(L, kTraversals, sizeof kTraversals - 1, "@stdlib/pairs");
    lua_call(L, 0, 2);
    lua_setglobal(L, "pairs");
    lua_setglobal(L, "next");
  }
  lua_pop(L, 2);
}

// Functions of Lua that nest on the C stack. As tail calls they keep their names and places in messages.
constexpr char kNesting[] = R"LUA(
local check, gsub, sort, type = ...
return function(text, pattern, replacement, most)
  if type(replacement) ~= "string" then check("gsub") end
  return gsub(text, pattern, replacement, most)
end, function(list, before)
  check("sort")
  return sort(list, before)
end)LUA";

int check_nesting(lua_State* L) {
  if (!is_too_deep()) return 0;
  luaL_where(L, 2);
  lua_pushfstring(L, "stack overflow (too many nested calls of %s)", lua_tostring(L, 1));
  lua_concat(L, 2);
  return lua_error(L);
}

// Without this a script that nests them would end the process.
void limit_nesting(lua_State* L) {
  lua_getglobal(L, "coroutine");
  set_limited_coroutines(L, lua_gettop(L));
  lua_getglobal(L, "string");
  lua_getglobal(L, "table");
  const int table = lua_gettop(L), string = table - 1;
  luaL_loadbuffer(L, kNesting, sizeof kNesting - 1, "@stdlib/nesting");
  lua_pushcfunction(L, check_nesting);
  lua_getfield(L, string, "gsub");
  lua_getfield(L, table, "sort");
  lua_getglobal(L, "type");
  lua_call(L, 4, 2);
  lua_setfield(L, table, "sort");
  lua_setfield(L, string, "gsub");
  lua_settop(L, string - 2);
}

}  // namespace

void open_libraries(lua_State* L) {
  luaL_openlibs(L);
  limit_nesting(L);
  replace_traversals(L);
  stop_stitching(L);
  allow_stopped_loops(L);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, luaopen_perigee);
  lua_setfield(L, -2, "perigee");
  lua_pop(L, 2);
}

void push_library_module(lua_State* L, const char* name) {
  lua_pushcfunction(L, luaopen_perigee);
  lua_call(L, 0, 0);
  kRequire.push(L);
  lua_pushstring(L, name);
  lua_call(L, 1, 1);
}

void open_library(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"compile", entry<compile>},
                      {"embedded", entry<embedded>},
                      {"embedded_names", entry<embedded_names>},
                      {"op_row", entry<op_row>},
                      {"op_names", entry<op_names>},
                      {"op_aliases", entry<op_aliases>}});
  lua_pushlightuserdata(L, &state);
  lua_pushvalue(L, -2);
  lua_newtable(L);
  lua_pushcclosure(L, entry<require_module>, 3);
  lua_pushvalue(L, -1);
  kRequire.set(L);
  lua_setfield(L, -2, "require");
  lua_pushstring(L, PERIGEE_VERSION);
  lua_setfield(L, -2, "version");
  lua_getfield(L, -1, "testing");
  register_functions(L, state,
                     {{"op_row", entry<op_row>},
                      {"op_names", entry<op_names>},
                      {"op_aliases", entry<op_aliases>},
                      {"pass_names", entry<pass_names>}});
  lua_pop(L, 1);
}

}  // namespace pg::vm

bool pg::vm::has_library(lua_State* L) {
  kModule.push(L);
  const bool found = !lua_isnil(L, -1);
  lua_pop(L, 1);
  return found;
}

extern "C" int luaopen_perigee(lua_State* L) {
  using namespace pg::vm;
  kModule.push(L);
  if (!lua_isnil(L, -1)) return 1;
  lua_pop(L, 1);
  try {
    lua_pushlightuserdata(L, &find_state(L));
  } catch (const std::bad_alloc&) {
    return luaL_error(L, "out of memory");
  }
  lua_pushcclosure(L, entry<open_core>, 1);
  lua_call(L, 0, 1);
  lua_pushvalue(L, -1);
  kModule.set(L);
  return 1;
}
