#include "vm/host/files.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "tensor/error.h"

namespace pg::host {
namespace {

class CallbackFile : public HostFile {
 public:
  explicit CallbackFile(const perigee_file& file) : file_(file) {}
  ~CallbackFile() override { close(0); }
  int64_t read(void* data, size_t size) override { return file_.read ? file_.read(file_.handle, data, size) : -1; }
  int64_t write(const void* data, size_t size) override {
    return file_.write ? file_.write(file_.handle, data, size) : -1;
  }
  bool commit() override { return close(1) >= 0; }

 private:
  int close(int commit) {
    const auto function = std::exchange(file_.close, nullptr);
    return function ? function(file_.handle, commit) : 0;
  }
  perigee_file file_;
};

bool refuses_bytecode(lua_State* L) { return lua_toboolean(L, lua_upvalueindex(1)); }

// Runs f(), which may throw but raises no Lua errors. Returns whether it failed, with the text on the stack.
template <class F>
bool fails(lua_State* L, F&& f) {
  try {
    f();
    return false;
  } catch (const std::bad_alloc&) {
    lua_pushliteral(L, "out of memory");
  } catch (const std::exception& e) {
    lua_pushstring(L, e.what());
  }
  return true;
}

// Leaves the chunk of a file on the stack, or a message. Returns a status of Lua.
int load_file(lua_State* L, const char* path) {
  int status = 0;
  const bool failed = fails(L, [&] {
    const std::string text = read_host_file(*HostFiles::current(), path);
    const std::string name = std::string("@") + path;
    status = luaL_loadbufferx(L, text.data(), text.size(), name.c_str(), refuses_bytecode(L) ? "t" : nullptr);
  });
  return failed ? LUA_ERRFILE : status;
}

int loadfile(lua_State* L) {
  if (load_file(L, luaL_checkstring(L, 1)) == 0) {
    if (!lua_istable(L, 3)) return 1;
    lua_pushvalue(L, 3);
    return lua_setfenv(L, -2), 1;
  }
  lua_pushnil(L);
  lua_insert(L, -2);
  return 2;
}

int dofile(lua_State* L) {
  if (load_file(L, luaL_checkstring(L, 1))) return lua_error(L);
  const int base = lua_gettop(L);
  lua_call(L, 0, LUA_MULTRET);
  return lua_gettop(L) - base + 1;
}

// Pushes package.path, or the one of a state without it.
const char* push_search_path(lua_State* L) {
  lua_getglobal(L, "package");
  if (lua_istable(L, -1)) lua_getfield(L, -1, "path");
  if (lua_type(L, -1) != LUA_TSTRING) lua_pushliteral(L, "?.lua;?/init.lua");
  return lua_tostring(L, -1);
}

// Returns the first file that a template of `path` names, or "". Adds those that are missing to `tried`.
std::string find_file(std::string_view path, std::string name, std::string& tried) {
  std::replace(name.begin(), name.end(), '.', '/');
  while (!path.empty()) {
    const size_t end = std::min(path.find(';'), path.size());
    std::string file(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    for (size_t at = 0; (at = file.find('?', at)) != file.npos; at += name.size()) file.replace(at, 1, name);
    if (HostFiles::current()->open(file, "rb")) return file;
    tried += "\n\tthe host gives no file '" + file + "'";
  }
  return "";
}

}  // namespace

std::unique_ptr<HostFile> CallbackFiles::open(const std::string& path, const char* mode) {
  auto file = perigee_file{};
  if (!open_ || path.find('\0') != path.npos || !open_(user_, path.c_str(), mode, &file)) return nullptr;
  return std::make_unique<CallbackFile>(file);
}

void set_file_functions(lua_State* L, bool text_only) {
  const std::pair<const char*, lua_CFunction> functions[] = {{"loadfile", loadfile}, {"dofile", dofile}};
  for (const auto& [name, function] : functions) {
    lua_pushboolean(L, text_only);
    lua_pushcclosure(L, function, 1);
    lua_setfield(L, -2, name);
  }
}

int find_file_module(lua_State* L) {
  const char* name = luaL_checkstring(L, 1);
  const char* path = push_search_path(L);
  bool found = false;
  if (fails(L, [&] {
        std::string tried;
        const std::string file = find_file(path, name, tried);
        found = !file.empty();
        lua_pushstring(L, found ? file.c_str() : tried.c_str());
      }))
    return lua_error(L);
  if (!found) return 1;
  const char* file = lua_tostring(L, -1);
  if (load_file(L, file) == 0) return 1;
  return luaL_error(L, "cannot load module '%s' from file '%s':\n\t%s", name, file, lua_tostring(L, -1));
}

}  // namespace pg::host
