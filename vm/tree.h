// Converts the trees of models to and from Lua tables: {kind = "input" or "output", index =}, {kind = "value", value =}
// and {kind = "table", keys = {…}, values = {trees}}. Indices count from 1.
#pragma once
#include <lua.hpp>
#include <vector>

#include "graph/io/model.h"
#include "tensor/function_ref.h"

namespace pg::vm {

void push_trees(lua_State* L, const std::vector<Tree>& trees);

// Reads the list of trees in field `name` of the table at i. place(is_output, index from 1) returns the index from 0 in
// the model.
std::vector<Tree> read_trees(lua_State* L, int i, const char* name, FunctionRef<int32_t(bool, int32_t)> place);

}  // namespace pg::vm
