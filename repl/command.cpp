#include "repl/command.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "repl/script.h"
#include "vm/bindings.h"

namespace pg::repl {
namespace {

// The functions below push values in calls that may raise: they hold nothing that a Lua error would have to free.

void push_string(lua_State* L, std::string_view text) { lua_pushlstring(L, text.data(), text.size()); }

void push_value(lua_State* L, const GivenOption& given) {
  const char* argument = given.row->argument;
  if (!argument)
    lua_pushboolean(L, true);
  else if (!std::strcmp(argument, "N") || !std::strcmp(argument, "S"))
    lua_pushnumber(L, std::strtod(given.value.c_str(), nullptr));
  else
    push_string(L, given.value);
}

// Options by name, without dashes. Those that may be given once for each file are lists.
void push_options(lua_State* L, const CommandLine& line) {
  lua_newtable(L);
  for (const GivenOption& given : line.options) {
    const std::string_view name = given.row->name();
    const char* const key = name.data() + name.find_first_not_of('-');
    if (!given.row->argument || *given.row->argument != '[') {
      push_value(L, given);
      lua_setfield(L, -2, key);
      continue;
    }
    lua_getfield(L, -1, key);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      lua_newtable(L);
      lua_pushvalue(L, -1);
      lua_setfield(L, -3, key);
    }
    push_value(L, given);
    lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
    lua_pop(L, 1);
  }
}

// {program, sub-command, "--name=value", …}, without --jobs and --time, which belong to the first process
void push_repetition(lua_State* L, const CommandLine& line) {
  lua_newtable(L);
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  push_string(L, size > 0 ? std::string_view(path, size_t(size)) : "perigee");
  lua_rawseti(L, -2, 1);
  lua_pushstring(L, line.command->name);
  lua_rawseti(L, -2, 2);
  for (const GivenOption& given : line.options) {
    const std::string_view name = given.row->name();
    if (name == "--jobs" || name == "--time") continue;
    push_string(L, name);
    if (given.row->argument) {
      lua_pushstring(L, name.starts_with("--") ? "=" : "");
      push_string(L, given.value);
      lua_concat(L, 3);
    }
    lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
  }
}

int call_command(lua_State* L) {
  const auto& line = *static_cast<const CommandLine*>(lua_touserdata(L, 1));
  lua_pushfstring(L, "tools.%s", line.command->name);
  vm::push_library_module(L, lua_tostring(L, -1));
  lua_newtable(L);
  for (size_t i = 0; i < line.words.size(); ++i) {
    push_string(L, line.words[i]);
    lua_rawseti(L, -2, int(i) + 1);
  }
  push_options(L, line);
  push_repetition(L, line);
  lua_call(L, 3, 2);
  return 2;
}

int call_tool_function(lua_State* L) {
  vm::push_library_module(L, lua_tostring(L, 1));
  lua_getfield(L, -1, lua_tostring(L, 2));
  lua_pushvalue(L, 3);
  lua_call(L, 1, 0);
  return 0;
}

int open_harness(lua_State* L) {
  vm::push_library_module(L, "tools.harness");
  return 1;
}

}  // namespace

void add_harness(lua_State* L) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, open_harness);
  lua_setfield(L, -2, "perigee.test");
  lua_pop(L, 2);
}

int run_command(lua_State* L, const CommandLine& line) {
  lua_pushcfunction(L, call_command);
  lua_pushlightuserdata(L, const_cast<CommandLine*>(&line));
  if (!run_function(L, 1)) return 1;
  const char* const message = lua_tostring(L, -1);
  const int code = message ? 1 : int(lua_tointeger(L, -2));
  if (message) report(message);
  lua_settop(L, 0);
  return code;
}

bool call_tool(lua_State* L, const char* file, const char* name, const std::string& text) {
  lua_pushcfunction(L, call_tool_function);
  lua_pushfstring(L, "tools.%s", file);
  lua_pushstring(L, name);
  lua_pushlstring(L, text.data(), text.size());
  if (!run_function(L, 3)) return false;
  lua_settop(L, 0);
  return true;
}

}  // namespace pg::repl
