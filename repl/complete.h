// Completion before the cursor, and signatures of the calls that are being typed.
#pragma once
#include <lua.hpp>

#include "repl/lines.h"

namespace pg::repl {

// Completes what the text ends with: the chain of names `a.b[2].c:`, the keys of options in `f(x, {…`, the keys of a
// table in `t["…`, the path of a file in another string, or a command `:…`. It uses raw reads only, so no
// metamethod runs, except that modules of the library are loaded when one of their fields is read.
Completions complete(lua_State* L, const std::string& text);

// Returns the arguments of the innermost call that the text has opened, as one line, or an empty text.
std::string signature(lua_State* L, const std::string& text);

}  // namespace pg::repl
