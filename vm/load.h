// load and loadstring for states with limits and for sandboxes.
#pragma once
#include <lua.hpp>

namespace pg::vm {

// Replaces load and loadstring in the table on top of the stack. Lua's own load catches errors that a hook raises in
// its reader, and leaves the hooks off. With `text_only` bytecode is
// refused, and no chunk gets a name of the library.
void set_load(lua_State* L, bool text_only);

}  // namespace pg::vm
