#include "vm/hints.h"

#include <algorithm>
#include <cstring>

#include "tensor/attr_check.h"
#include "vm/args.h"
#include "vm/box.h"
#include "vm/traceback.h"

namespace pg::vm {
namespace {

const RegistryKey kFind, kExplain;  // the functions of stdlib that look hints up

// Calls the function on the stack with `arguments` values above it. Returns its result if that is a string, else "".
std::string text_of_call(lua_State* L, int arguments) {
  std::string text;
  if (lua_pcall(L, arguments, 1, 0) == 0 && lua_type(L, -1) == LUA_TSTRING) text = lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

template <class Names>
void push_set(lua_State* L, const Names& names) {
  lua_createtable(L, 0, int(names.size()));
  for (const auto& name : names) {
    lua_pushlstring(L, name.data(), name.size());
    lua_pushboolean(L, true);
    lua_rawset(L, -3);
  }
}

// set_hints(find, explain)
int set_hints(lua_State* L, State&) {
  lua_settop(L, 2);
  kExplain.set(L);
  kFind.set(L);
  return 0;
}

void collect_names(lua_State* L, int i, std::vector<std::string>& names) {
  if (!lua_istable(L, i)) return;
  for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING)
      names.push_back(lua_tostring(L, -2));
    else if (lua_type(L, -1) == LUA_TSTRING)
      names.push_back(lua_tostring(L, -1));
  }
}

// suggest(name, table, …) → the most similar string key or element of the tables, or nil.
int suggest_name(lua_State* L, State& state) {
  const std::string name = check_string(L, state, 1, "suggest", "name");
  std::vector<std::string> names;
  for (int i = 2, n = lua_gettop(L); i <= n; ++i) collect_names(L, i, names);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string near = suggest(name, known);
  near.empty() ? lua_pushnil(L) : void(lua_pushstring(L, near.c_str()));
  return 1;
}

}  // namespace

std::string hint_of(lua_State* L, const char* kind, const std::string& name, const char* op,
                    std::span<const std::string_view> known) {
  if (!lua_checkstack(L, 20)) return "";
  kFind.push(L);
  if (!lua_isfunction(L, -1)) return lua_pop(L, 1), "";
  lua_pushstring(L, kind);
  lua_pushlstring(L, name.data(), name.size());
  lua_pushstring(L, op);
  push_set(L, known);
  return text_of_call(L, 4);
}

void unknown_option(lua_State* L, const char* op, std::string key, std::span<const std::string_view> known, int table) {
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) continue;
    const std::string other = lua_tostring(L, -2);
    if (other < key && std::find(known.begin(), known.end(), other) == known.end()) key = other;
  }
  pg::unknown_option(op, key, known, hint_of(L, "option", key, op, known));
}

std::string explain_lua_error(lua_State* L, const char* message, const std::set<std::string>& names) {
  if (!lua_checkstack(L, 20)) return "";
  kExplain.push(L);
  if (!lua_isfunction(L, -1)) return lua_pop(L, 1), "";
  lua_pushstring(L, message);
  push_set(L, names);
  const std::string hint = text_of_call(L, 2);
  return hint.empty() ? "" : " (" + hint + ")";
}

std::string self_is_tensor(lua_State* L, State& state) {
  lua_Debug frame;
  bool is_self = false;
  for (int level = 1; !is_self; ++level) {  // past the helpers of the library, up to the first function of a script
    if (!lua_getstack(L, level, &frame) || !lua_getinfo(L, "Sn", &frame) || *frame.what != 'L') return "";
    const char* local = lua_getlocal(L, &frame, 1);
    if (local) {
      is_self = !std::strcmp(local, "self") && to_box(L, state, -1);
      lua_pop(L, 1);
    }
    if (!is_self && !is_library_source(frame.source)) return "";
  }
  if (!frame.name) return "";
  const std::string name = frame.name;
  return "self is a tensor here: call the method with a colon, object:" + name + "(x)" +
         (name == "forward" ? ", or call the block: net(x)" : "");
}

void open_hints(lua_State* L, State& state) {
  register_functions(L, state, {{"suggest", entry<suggest_name>}, {"set_hints", entry<set_hints>}});
}

}  // namespace pg::vm
