// Error functions for the stdlib. Their positions are those of the script, not of the library.
#include <algorithm>

#include "tensor/attr_check.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/hints.h"

namespace pg::vm {
namespace {

// fail(op, text) raises `file:line: op: text`. op may be the name of a script's object, which can be any value.
int raise(lua_State* L, State& state) {
  const std::string op = lua_isstring(L, 1) ? lua_tostring(L, 1) : luaL_typename(L, 1);
  const std::string text = check_string(L, state, 2, "fail", "text");
  throw Error(op + ": " + text);
}

// arg_error(op, name, expected, value)
int raise_argument(lua_State* L, State& state) {
  const std::string op = check_string(L, state, 1, "arg_error", "op"),
                    name = check_string(L, state, 2, "arg_error", "name");
  const std::string expected = check_string(L, state, 3, "arg_error", "expected");
  if (expected == "a tensor" && lua_isnil(L, 4)) {
    std::string hint = self_is_tensor(L, state);
    if (hint.empty() && name == "x" && op[0] >= 'a')  // blocks have capital letters
      hint = fmt::format("write x:{}(…) with a colon", op);
    bad_argument(op.c_str(), name.c_str(), expected,
                 "nil; " + (hint.empty() ? "the argument is missing, or a misspelled name" : hint));
  }
  bad_argument(op.c_str(), name.c_str(), expected,
               expected == "a tensor" ? describe_instead_of_tensor(L, state, 4, op.c_str()) : describe(L, state, 4));
}

std::vector<std::string> sorted_keys(lua_State* L, int i) {
  std::vector<std::string> names;
  for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING) names.push_back(lua_tostring(L, -2));
  std::sort(names.begin(), names.end());
  return names;
}

// check_options(op, options, known) raises for a key that is not in known.
int check_known(lua_State* L, State& state) {
  const std::string op = check_string(L, state, 1, "check_options", "op");
  if (lua_isnoneornil(L, 2)) return 0;
  if (!lua_istable(L, 2)) bad_argument(op.c_str(), "options", "a table of options", describe(L, state, 2));
  for (lua_pushnil(L); lua_next(L, 2);) {
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_rawget(L, 3);
    const bool known = !lua_isnil(L, -1);
    lua_pop(L, 1);
    if (known) continue;
    const std::string key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : describe(L, state, -1);
    const std::vector<std::string> names = sorted_keys(L, 3);
    const std::vector<std::string_view> views(names.begin(), names.end());
    unknown_option(L, op.c_str(), key, views, 2);
  }
  return 0;
}

int describe_value(lua_State* L, State& state) {
  lua_pushstring(L, describe(L, state, 1).c_str());
  return 1;
}

// finally(undo, f, …) → what f returns. undo() runs even if f raises. undo must not allocate, since memory may be
// exhausted, and must tolerate to run twice, since an interrupt may stop it before its end.
int run_finally(lua_State* L, State& state) {
  need_stack(L, 60, "finally");  // for the frame of undo
  const int status = protected_call(L, lua_gettop(L) - 2, LUA_MULTRET);
  for (int failures = 0;; ++failures) {
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 0, 0, 0) == 0) break;
    if (failures == 2) return lua_error(L);
    lua_pop(L, 1);
  }
  if (status == 0) return lua_gettop(L) - 1;
  note_reraise(L, state);
  return lua_error(L);
}

}  // namespace

void open_errors(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"raise", entry<raise>},
                      {"finally", entry<run_finally>},
                      {"arg_error", entry<raise_argument>},
                      {"check_options", entry<check_known>},
                      {"describe", entry<describe_value>}});
}

}  // namespace pg::vm
