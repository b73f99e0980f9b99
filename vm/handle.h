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

// Of a scope that a coroutine has opened: the collector ends the scope with it.
struct Guard {
  State* state;
  uint64_t id;
};

// Pushes a guard. The caller is a function that register_guard made. The environment of the guard holds the coroutine,
// so the scope of an abandoned coroutine ends before the coroutine is freed.
inline void push_guard(lua_State* L, State& state, uint64_t id) {
  *static_cast<Guard*>(lua_newuserdata(L, sizeof(Guard))) = {&state, id};
  lua_pushvalue(L, table_upvalue(L, 2));
  lua_setmetatable(L, -2);
  lua_createtable(L, 1, 0);
  lua_pushthread(L);
  lua_rawseti(L, -2, 1);
  lua_setfenv(L, -2);
}

inline uint64_t guarded_scope(lua_State* L) { return static_cast<Guard*>(lua_touserdata(L, 1))->id; }

// The finalizer of guards, which runs end(state, id).
template <void (*end)(State& state, uint64_t id)>
int collect_guard(lua_State* L) {
  const auto* guard = static_cast<const Guard*>(lua_touserdata(L, 1));
  if (guard && lua_objlen(L, 1) == sizeof(Guard) && is_live(guard->state)) end(*guard->state, guard->id);
  return 0;
}

// Adds the function `push`, which pushes guards, to the table on top of the stack.
inline void register_guard(lua_State* L, State& state, const char* name, lua_CFunction push, lua_CFunction collect) {
  lua_pushlightuserdata(L, &state);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, collect);
  lua_setfield(L, -2, "__gc");
  lua_pushcclosure(L, push, 2);
  lua_setfield(L, -2, name);
}

}  // namespace pg::vm
