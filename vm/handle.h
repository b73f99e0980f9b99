// Handles: userdata that own one C++ object. Scripts have no access to their metatables.
#pragma once
#include <initializer_list>

#include "vm/bindings.h"
#include "vm/state.h"

namespace pg::vm {

// The data of the userdata at stack index i if its metatable is the one stored under the key, else null.
template <class T>
T* to_handle(lua_State* L, int i, const RegistryKey& key) {
  void* data = lua_touserdata(L, i);
  if (!data || !lua_getmetatable(L, i)) return nullptr;
  key.push(L);
  const bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? static_cast<T*>(data) : nullptr;
}

// Makes the metatable of a class with a finalizer and methods, and stores it under the key.
inline void make_class(lua_State* L, State& state, const RegistryKey& key, lua_CFunction collect,
                       std::initializer_list<Registration> methods) {
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, collect);
  lua_setfield(L, -2, "__gc");
  lua_newtable(L);
  register_functions(L, state, methods);
  lua_setfield(L, -2, "__index");
  lua_pushstring(L, "perigee");
  lua_setfield(L, -2, "__metatable");
  key.set(L);
}

}  // namespace pg::vm
