#include "repl/compiled.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>

namespace pg::repl {
namespace {

struct Trace {
  std::atomic<uintptr_t> begin{0};
  uintptr_t end = 0;
  char where[128] = "";
};

constexpr size_t kTraces = 4096;  // four times LuaJIT's default limit; further traces overwrite others
std::array<Trace, kTraces> traces;

// note(number, address, bytes, position) records a trace; note() clears all.
int note(lua_State* L) {
  if (lua_gettop(L) == 0) {
    for (Trace& trace : traces) trace.begin = 0;
    return 0;
  }
  Trace& trace = traces[size_t(lua_tointeger(L, 1)) % kTraces];
  const uintptr_t begin = uintptr_t(lua_tonumber(L, 2));
  trace.begin = 0;
  trace.end = begin + uintptr_t(lua_tonumber(L, 3));
  std::snprintf(trace.where, sizeof trace.where, "%s", lua_tostring(L, 4));
  trace.begin = begin;
  return 0;
}

// LuaJIT calls the attached function when a trace starts and stops, and when all traces are flushed.
constexpr char kAttach[] = R"(
local note = ...
if not (jit and jit.attach) then return end
local util = require "jit.util"
local start
jit.attach(function(what, number, f, pc)
  if what == "start" then start = util.funcinfo(f, pc).loc
  elseif what == "stop" and start then
    local code, address = util.tracemc(number)
    if code then note(number, address, #code, start) end
  elseif what == "flush" then note()
  end
end, "trace")
)";

}  // namespace

void note_compiled_code(lua_State* L) {
  if (luaL_loadbuffer(L, kAttach, sizeof kAttach - 1, "=perigee")) return lua_pop(L, 1);
  lua_pushcfunction(L, note);
  if (lua_pcall(L, 1, 0, 0)) lua_pop(L, 1);
}

const char* compiled_position(const void* address) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  for (const Trace& trace : traces) {
    const uintptr_t begin = trace.begin;
    if (begin && at >= begin && at < trace.end) return trace.where;
  }
  return nullptr;
}

}  // namespace pg::repl
