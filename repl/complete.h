// Completion of the name before the cursor.
#pragma once
#include <lua.hpp>

#include "repl/lines.h"

namespace pg::repl {

// Completes the chain of names before the cursor (`a.b[2].c:`). It uses raw reads only, so no metamethod runs, except
// that modules of the library are loaded when one of their fields is read.
Completions complete(lua_State* L, const std::string& text);

}  // namespace pg::repl
