// Passing frozen graphs between Lua states, for hosts.
#pragma once
#include <lua.hpp>

#include "graph/exec/frozen.h"

namespace pg::vm {

// Pushes the Graph object of scripts for a frozen graph. The state must have loaded perigee.
void push_frozen_graph(lua_State* L, Ref<FrozenGraph> graph);

// The frozen graph of the Graph object at index i, or null.
Ref<FrozenGraph> to_frozen_graph(lua_State* L, int i);

}  // namespace pg::vm
