// Hints in error messages: what to write instead of a name that does not exist. The table is stdlib/support/hints.lua.
// All of this runs only when an error is raised.
#pragma once
#include <set>
#include <span>
#include <string_view>

#include "vm/state.h"

namespace pg::vm {

// Returns the hint for a name, such as "write x:totable()", or "". `kind` says which table of hints; for options, `op`
// is the function and `known` its options.
std::string hint_of(lua_State* L, const char* kind, const std::string& name, const char* op = "",
                    std::span<const std::string_view> known = {});

// Throws `op: bad argument 'key' (expected one of the options …, got an unknown option; HINT)`. Of several unknown keys
// of the table at index `table` it names the first by the alphabet.
[[noreturn]] void unknown_option(lua_State* L, const char* op, std::string key, std::span<const std::string_view> known,
                                 int table);

// Returns " (HINT)" for a message of Lua itself, or "". `names` holds the methods in sight; see lua_errors.lua.
std::string explain_lua_error(lua_State* L, const char* message, const std::set<std::string>& names);

// If the running Lua function is a method whose `self` is a tensor, returns the hint to call it with a colon, else "".
std::string self_is_tensor(lua_State* L, State& state);

void open_hints(lua_State* L, State& state);  // core.suggest, core.set_hints

}  // namespace pg::vm
