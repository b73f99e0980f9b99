#include "repl/complete.h"

#include <filesystem>
#include <set>

#include "repl/session.h"
#include "vm/bindings.h"

namespace pg::repl {
namespace {

std::vector<std::string> files(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "" : path.substr(0, slash + 1), start = path.substr(folder.size());
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(start) || (start.empty() && name[0] == '.')) continue;
    std::error_code unknown;
    names.push_back(folder + name + (it->is_directory(unknown) ? "/" : ""));
  }
  return names;
}

int push_list(lua_State* L, const std::vector<std::string>& names) {
  lua_createtable(L, int(names.size()), 0);
  for (size_t i = 0; i < names.size(); ++i) {
    lua_pushlstring(L, names[i].data(), names[i].size());
    lua_rawseti(L, -2, int(i) + 1);
  }
  return 1;
}

// The fields of `session` in stdlib/tools/complete.lua.
int local_of(lua_State* L) {
  lua_pushboolean(L, 1);
  if (push_session_local(L, lua_tostring(L, 1))) return 2;
  lua_pushboolean(L, 0);
  return 1;
}
int locals(lua_State* L) { return push_list(L, session_locals(L)); }
int files_at(lua_State* L) { return push_list(L, files(lua_tostring(L, 1))); }

void push_session(lua_State* L) {
  lua_newtable(L);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_setfield(L, -2, "globals");
  const std::pair<const char*, lua_CFunction> functions[] = {
      {"local_of", local_of}, {"locals", locals}, {"files", files_at}};
  for (const auto& [name, f] : functions) lua_pushcfunction(L, f), lua_setfield(L, -2, name);
}

struct Request {
  const std::string& text;
  const char* function;  // of stdlib/tools/complete.lua
  int results;
  Completions found = {};
  std::string signature = {};
};

int ask(lua_State* L) {
  auto* request = static_cast<Request*>(lua_touserdata(L, 1));
  vm::push_library_module(L, "tools.complete");
  lua_getfield(L, -1, request->function);
  push_session(L);
  lua_pushlstring(L, request->text.data(), request->text.size());
  lua_call(L, 2, request->results);
  if (request->results == 1) {
    if (lua_isstring(L, -1)) request->signature = lua_tostring(L, -1);
    return 0;
  }
  std::set<std::string> names;
  for (int i = 1; i <= int(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    names.insert(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  request->found.word = size_t(lua_tointeger(L, -2));
  request->found.names.assign(names.begin(), names.end());
  return 0;
}

// An error means that there is nothing to show.
Request asked(lua_State* L, Request request) {
  const int top = lua_gettop(L);
  if (lua_cpcall(L, ask, &request)) request.found.names.clear();
  lua_settop(L, top);
  return request;
}

}  // namespace

Completions complete(lua_State* L, const std::string& text) { return asked(L, {text, "search", 2}).found; }

std::string signature(lua_State* L, const std::string& text) { return asked(L, {text, "signature", 1}).signature; }

}  // namespace pg::repl
