// How a compiled loop is left. A trace is straight code in which guards, conditional jumps to exit stubs, check what it
// was compiled for. At each guard the interpreter's state can be restored, and the interpreter then repeats the guarded
// instruction. So an exit is right even if what the guard checks holds: leave_compiled_code makes every guard
// unconditional. In a loop that ends with `jcc loop; jmp exit` it removes the jcc. LuaJIT lets a guard that often fails
// jump to a further trace; so the guards are noted while all still jump to their stubs.
#include "repl/compiled.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace pg::repl {
namespace {

#ifdef __x86_64__
constexpr bool kKnown = true;  // whether guards can be found in this processor's code
#else
constexpr bool kKnown = false;
#endif

// A jump to make unconditional, with its original target, or to remove if that is 0.
struct Guard {
  uintptr_t at, bytes, target;
};

struct Trace {
  std::atomic<uintptr_t> begin{0};
  uintptr_t end = 0;
  std::vector<Guard> guards;
  char where[128] = "";
};

constexpr size_t kTraces = 4096;  // four times LuaJIT's default limit; further traces overwrite others
std::array<Trace, kTraces> traces;

// LuaJIT makes exit stubs in groups of 32. A stub has 4 bytes.
constexpr size_t kStubs = 32, kStubBytes = 4, kGroups = 32;
std::array<std::atomic<uintptr_t>, kGroups> stub_groups;

bool is_exit(uintptr_t target) {
  for (const auto& group : stub_groups)
    if (group && target >= group && target < group + kStubs * kStubBytes) return (target - group) % kStubBytes == 0;
  return false;
}

const uint8_t* bytes_at(uintptr_t at) { return reinterpret_cast<const uint8_t*>(at); }

// Returns the target of the relative jump whose instruction begins at `at`, with `opcode` bytes before an offset of
// `size` bytes.
uintptr_t target_of(uintptr_t at, size_t opcode, size_t size) {
  int32_t offset = int8_t(bytes_at(at)[opcode]);
  if (size == 4) std::memcpy(&offset, bytes_at(at + opcode), 4);
  return at + opcode + size + uintptr_t(intptr_t(offset));
}

bool is_long_jcc(uintptr_t at) { return bytes_at(at)[0] == 0x0f && (bytes_at(at)[1] & 0xf0) == 0x80; }

// Returns the guards of a trace that jumps back to `loop`: jumps of 6 bytes to an exit, and at the end a jump of 5
// bytes to an exit behind one of 2 or 6 bytes to the loop.
std::vector<Guard> find_guards(uintptr_t begin, uintptr_t end, uintptr_t loop) {
  std::vector<Guard> guards;
  for (uintptr_t at = begin; at + 5 <= end; ++at) {
    if (at + 6 <= end && is_long_jcc(at) && is_exit(target_of(at, 2, 4)))
      guards.push_back({at, 6, target_of(at, 2, 4)});
    if (bytes_at(at)[0] != 0xe9 || !is_exit(target_of(at, 1, 4))) continue;
    const bool far = at >= begin + 6 && is_long_jcc(at - 6) && target_of(at - 6, 2, 4) == loop;
    const bool near = at >= begin + 2 && (bytes_at(at - 2)[0] & 0xf0) == 0x70 && target_of(at - 2, 1, 1) == loop;
    if (!far && !near) continue;
    guards.push_back({at - (far ? 6 : 2), uintptr_t(far ? 6 : 2), 0});
    guards.push_back({at, 5, target_of(at, 1, 4)});
  }
  return guards;
}

// Single bytes fill what is left, so that code may be entered behind each of them.
void make_exit(const Guard& guard) {
  auto* code = reinterpret_cast<uint8_t*>(guard.at);
  std::memset(code, 0x90, guard.bytes);
  if (!guard.target) return;
  const auto offset = int32_t(intptr_t(guard.target) - intptr_t(guard.at + 5));
  code[0] = 0xe9;
  std::memcpy(code + 1, &offset, 4);
}

bool protect(const Trace& trace, int protection) {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE)), first = trace.begin & ~(page - 1);
  return mprotect(reinterpret_cast<void*>(first), trace.end - first, protection) == 0;
}

const Trace* find(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Trace& trace : traces) {
    const uintptr_t begin = trace.begin;
    if (begin && at >= begin && at < trace.end) return &trace;
  }
  return nullptr;
}

uintptr_t address_at(lua_State* L, int i) { return uintptr_t(lua_tonumber(L, i)); }

// note(number, address, bytes, position, offset of the loop, the groups' first stubs…) records a trace. Returns whether
// it can be left. note() forgets all traces.
int note(lua_State* L) {
  if (lua_gettop(L) == 0) {
    for (Trace& trace : traces) trace.begin = 0;
    for (auto& group : stub_groups) group = 0;
    return 0;
  }
  Trace& trace = traces[size_t(lua_tointeger(L, 1)) % kTraces];
  trace.begin = 0;
  const uintptr_t begin = address_at(L, 2), loop = begin + address_at(L, 5);
  trace.end = begin + address_at(L, 3);
  std::snprintf(trace.where, sizeof trace.where, "%s", lua_tostring(L, 4));
  for (int i = 6; i <= lua_gettop(L) && size_t(i) < 6 + kGroups; ++i) stub_groups[size_t(i) - 6] = address_at(L, i);
  if (kKnown) trace.guards = find_guards(begin, trace.end, loop);
  trace.begin = begin;
  bool found = !kKnown;
  for (const Guard& guard : trace.guards) found |= guard.at >= loop;
  lua_pushboolean(L, found);
  return 1;
}

// LuaJIT calls the attached function when a trace starts and stops, and when all traces are flushed. A trace that jumps
// back to itself must have a guard on the way.
constexpr char kAttach[] = R"(
local note = ...
if not (jit and jit.attach) then return end
local util = require "jit.util"
local start, owner
local function stopped(number)
  local code, address, loop = util.tracemc(number)
  if not code then return end
  local info, stubs = util.traceinfo(number), {}
  for exit = 0, info.nexit - 1, 32 do stubs[#stubs + 1] = util.traceexitstub(exit) end
  local can_leave = note(number, address, #code, start, loop, unpack(stubs))
  if info.link == number and not can_leave then jit.off(owner) end
end
jit.attach(function(what, number, f, pc)
  if what == "start" then
    start, owner = util.funcinfo(f, pc).loc, f
    return
  end
  if what == "stop" and start then stopped(number)
  elseif what == "flush" then note() end
  start, owner = nil, nil  -- keeps no function alive
end, "trace")
return true
)";

}  // namespace

bool note_compiled_code(lua_State* L) {
  const int top = lua_gettop(L);
  bool works = luaL_loadbuffer(L, kAttach, sizeof kAttach - 1, "=perigee") == 0;
  if (works) {
    lua_pushcfunction(L, note);
    works = lua_pcall(L, 1, 1, 0) == 0 && lua_toboolean(L, -1);
  }
  lua_settop(L, top);
  return works && kKnown;
}

// The pages are writable only while this thread is here, so nobody runs them then. LuaJIT expects them as they were.
bool leave_compiled_code(const void* address) {
  if (!find(address)) return false;
  for (const Trace& trace : traces) {
    if (!trace.begin || !protect(trace, PROT_READ | PROT_WRITE)) continue;
    for (const Guard& guard : trace.guards) make_exit(guard);
    protect(trace, PROT_READ | PROT_EXEC);
  }
  return true;
}

const char* compiled_position(const void* address) {
  const Trace* trace = find(address);
  return trace ? trace->where : nullptr;
}

}  // namespace pg::repl
