// Frozen graphs between Lua states: a host takes one out of a state and gives it to others.
#pragma once
#include <lua.hpp>

#include "graph/exec/frozen.h"

namespace pg::vm {

// Pushes pg.graph's object for a frozen graph. The state must have loaded perigee.
void push_frozen_graph(lua_State* L, Ref<FrozenGraph> graph);

// The frozen graph that the object at index i stands for; null when it is none.
Ref<FrozenGraph> to_frozen_graph(lua_State* L, int i);

}  // namespace pg::vm
