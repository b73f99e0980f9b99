// Handles of models: what graph.cpp and model.cpp share.
#pragma once
#include <vector>

#include "graph/io/model.h"
#include "vm/state.h"

namespace pg::vm {

void push_model(lua_State* L, Model model);
const Model& check_model(lua_State* L, int i);  // throws Error if there is none at stack index i

// Pushes a list of positions, counted from 1.
void push_places(lua_State* L, const std::vector<int32_t>& places);

// Adds the functions that look inside a model to the table core.graph on top of the stack.
void open_model(lua_State* L, State& state);

}  // namespace pg::vm
