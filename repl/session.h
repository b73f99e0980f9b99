// The local variables of the prompt's session: `local` at the top level of a line is visible to later lines.
#pragma once
#include <lua.hpp>

#include <string>
#include <vector>

namespace pg::repl {

// Compiles a chunk that sees the session's locals. Pushes its function, or the message of its syntax error. Returns
// what luaL_loadbuffer does. The locals that the chunk declares at its top level belong to the session as soon as it
// has run to its end, and are the same variables that its functions have captured. A later declaration of a name hides
// the earlier variable, as in one chunk. A chunk may use 60 of them, which is LuaJIT's limit of upvalues.
int load_in_session(lua_State* L, const std::string& text, const char* chunk_name);

// Where statements of the text, outside of blocks, seem to begin, in order.
std::vector<size_t> statement_starts(const std::string& text);

// In a message handler: notes the locals that a failing chunk has declared so far, with their values.
void note_locals_of_failed_chunk(lua_State* L);

// A lua_CFunction: makes noted locals locals of the session. The chunk's functions keep variables of their own.
int adopt_noted_locals(lua_State* L);

// "attempt to index upvalue 'x'" becomes "… local 'x'" if x is a local of the session, which entries have as an
// upvalue.
std::string with_session_names(lua_State* L, const std::string& message);

// Pushes the value of a local of the session, or the n-th result for the name _n. Returns false and pushes nothing if
// there is none of that name.
bool push_session_local(lua_State* L, const std::string& name);

// Pops a result and returns its number n: entries see it as _n, and the last one as the global _. A tensor of more than
// 1 MiB is forgotten when nothing else holds it.
int keep_result(lua_State* L);

// Forgets all locals and results.
void forget_session(lua_State* L);

// Names of all locals of the session, in no order.
std::vector<std::string> session_locals(lua_State* L);

}  // namespace pg::repl
