// Names that may follow the text before the cursor.
#pragma once
#include <lua.hpp>

#include "repl/lines.h"

namespace pg::repl {

// Walks the chain of names before the cursor (`a.b[2].c:`) with raw reads only: no metamethod runs, except that modules
// of the library load when their fields are asked for.
Completions complete(lua_State* L, const std::string& text);

}  // namespace pg::repl
